"""Find steps and phases in a Kineto capture that has no ranges for them. Called by find.

A step ends where an optimizer's step ends. Backward lasts from its first autograd operator to the
last, forward is the time before, optimizer the time after (clipping included).
"""

import numpy as np

from profiling.analysis.columns import name_mask
from profiling.analysis.steps.steps import StepRanges, Steps
from profiling.timeline.trace import ANY_THREAD, Ranges, Trace

BACKWARD = "autograd::engine::evaluate_function"
OPTIMIZER = "Optimizer.step#"


def optimizer_steps(trace: Trace, process: int | None, device: int | None) -> Steps | None:
    """Steps that end with the optimizer's steps, or None where the capture has none of those."""
    operators = trace.operators
    if operators is None:
        return None
    for table in (trace.ranges, operators):
        if table is not None and len(rows := rows_with_prefix(trace, table, OPTIMIZER, process)):
            thread, name = int(table.thread[rows[0]]), OPTIMIZER.rstrip("#")
            of_process = operators.process == process
            first = operators.start_ns[of_process].min(initial=table.start_ns[rows[0]])
            ends = table.end_ns[rows]
            starts = np.concatenate(([first], ends[:-1])).astype(np.int64)
            return Steps(process, device, thread, name, None, starts, ends)
    return None


def rows_with_prefix(trace: Trace, table: Ranges, prefix: str, process: int | None) -> np.ndarray:
    wanted = name_mask(trace.names, table.name, lambda name: name.startswith(prefix))
    return np.flatnonzero(wanted & (table.process == process))


def operator_phases(trace: Trace, steps: Steps) -> StepRanges | None:
    """The phases of the steps, or None without autograd's operators.

    Appends the phases' names to `trace.names`.
    """
    table = trace.operators
    if table is None or not len(rows := rows_with_prefix(trace, table, BACKWARD, steps.process)):
        return None
    names = [name_index(trace, name) for name in ("forward", "backward", "optimizer")]
    thread = ANY_THREAD if steps.thread is None else steps.thread
    rows_of_phases = []
    for start, end in zip(steps.start_ns, steps.end_ns, strict=True):
        inside = rows[(table.start_ns[rows] >= start) & (table.start_ns[rows] < end)]
        if not len(inside):
            continue
        first, last = table.start_ns[inside].min(), min(table.end_ns[inside].max(), end)
        bounds = ((start, first), (first, last), (last, end))
        for name, (begin, stop) in zip(names, bounds, strict=True):
            rows_of_phases.append((begin, stop, name, thread, 0))
    return StepRanges(*np.array(rows_of_phases, np.int64).reshape(-1, 5).T)


def name_index(trace: Trace, name: str) -> int:
    if name not in trace.names:
        trace.names.append(name)
    return trace.names.index(name)
