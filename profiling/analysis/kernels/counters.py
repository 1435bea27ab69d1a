"""Hardware counters inside the window, as nsys samples them. Called by summary and diagnosis."""

from typing import Any

import numpy as np

from profiling.analysis.columns import Intervals
from profiling.timeline.trace import CounterSamples


def means(
    metrics: list[CounterSamples] | None,
    device: int | None,
    busy: Intervals | None,
    bounds_ns: np.ndarray,
) -> list[dict[str, Any]] | None:
    """Each counter's mean over the samples in the window, and over those while the GPU was busy."""
    if metrics is None:
        return None
    found = []
    for metric in metrics:
        if device is not None and metric.device != device:
            continue
        inside = (metric.time_ns >= bounds_ns[0]) & (metric.time_ns <= bounds_ns[-1])
        time_ns, value = metric.time_ns[inside], metric.value[inside]
        while_busy = np.zeros(len(time_ns), bool)
        if busy is not None:
            while_busy = busy.within(time_ns, time_ns + 1) > 0
        found.append(
            {
                "name": metric.name,
                "mean_busy": float(value[while_busy].mean()) if while_busy.any() else None,
                "mean_window": float(value.mean()) if len(value) else None,
            }
        )
    return found
