"""Estimate how much capturing itself added to a step, without a manifest. Called by health.

A profiler notes each event on the host, which takes the host's time. Measured on one machine (H200,
PyTorch 2.11, nsys 2025.3.1, 2026-11-21) with 14 host-bound programs of torchvision, timm and
transformers, each with and without a profiler: 1.6 to 2.4 us for an operator or a CUDA call under
torch.profiler, 1.2 to 2.8 us for a CUDA call under nsys.
"""

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import union

EVENT_NS = 2_000


def estimated_ms(analysis: Analysis) -> float | None:
    """Milliseconds that capturing added to a step, or None without host events."""
    trace, steps = analysis.trace, analysis.steps
    tables = [table for table in (trace.calls, trace.operators) if table is not None]
    if not tables:
        return None
    begin, end = analysis.begin_ns, analysis.end_ns
    added_ns = 0
    for table in tables:
        inside = (table.start_ns >= begin) & (table.start_ns < end)
        added_ns += EVENT_NS * int(np.count_nonzero(inside & (table.process == steps.process)))
    if trace.overhead is not None:
        mine = trace.overhead.thread == steps.thread
        held_up = union(trace.overhead.start_ns[mine], trace.overhead.end_ns[mine])
        added_ns += held_up.clip(begin, end).total_ns()
    return added_ns / 1e6 / analysis.step_count
