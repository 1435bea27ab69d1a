"""Hardware counters inside the steps, as nsys samples them. Called by summary."""

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.report import CounterMean
from profiling.timeline.trace import CounterSamples


def means(analysis: Analysis) -> list[CounterMean] | None:
    """Of the counters of the GPU that the report is about; None: not captured."""
    metrics, device = analysis.trace.counters, analysis.steps.device
    if metrics is None:
        return None
    return [mean(each, analysis) for each in metrics if device is None or each.device == device]


def mean(metric: CounterSamples, analysis: Analysis) -> CounterMean:
    """Over the samples in the steps, and over those while the GPU was busy."""
    inside = (metric.time_ns >= analysis.begin_ns) & (metric.time_ns <= analysis.end_ns)
    time_ns, value = metric.time_ns[inside], metric.value[inside]
    while_busy = np.zeros(len(time_ns), bool)
    if analysis.activity is not None:
        while_busy = analysis.activity.busy.within(time_ns, time_ns + 1) > 0
    return CounterMean(
        metric.name,
        float(value[while_busy].mean()) if while_busy.any() else None,
        float(value.mean()) if len(value) else None,
    )
