"""Steps and phases of a Kineto capture that has no ranges for them. Called by steps.

A step ends where an optimizer's step ends. Backward is from its first autograd operator to the
last, forward what is before, optimizer what is behind (clipping included).
"""

import numpy as np

from profiling.analysis.columns import called
from profiling.timeline.trace import Ranges, Trace

BACKWARD = "autograd::engine::evaluate_function"
OPTIMIZER = "Optimizer.step#"

StepsFound = tuple[int, str, None, np.ndarray, np.ndarray]


def optimizer_steps(trace: Trace, process: int | None) -> StepsFound | None:
    """(thread, step name, no first iteration, starts, ends) of the steps; None without any."""
    ends = begun = None
    for table in (trace.ranges, trace.operators):
        if table is None or trace.operators is None:
            continue
        rows = rows_called(trace, table, OPTIMIZER, process)
        if len(rows):
            ends, begun = table.end_ns[rows], table.start_ns[rows]
            thread = int(table.thread[rows[0]])
            break
    if ends is None:
        return None
    assert begun is not None
    of_process = trace.operators.process == process
    first = min(trace.operators.start_ns[of_process].min(initial=begun[0]), begun[0])
    starts = np.concatenate(([first], ends[:-1])).astype(np.int64)
    return thread, OPTIMIZER.rstrip("#"), None, starts, ends


def rows_called(trace: Trace, table: Ranges, prefix: str, process: int | None) -> np.ndarray:
    wanted = called(trace.names, table.name, lambda name: name.startswith(prefix))
    return np.flatnonzero(wanted & (table.process == process))


def operator_phases(
    trace: Trace,
    process: int | None,
    thread: int | None,
    step_start_ns: np.ndarray,
    step_end_ns: np.ndarray,
) -> tuple[np.ndarray, ...] | None:
    """Columns of steps.Spans; adds the phases' names to the trace's. None without autograd's."""
    table = trace.operators
    rows = rows_called(trace, table, BACKWARD, process)
    if not len(rows):
        return None
    order = {name: name_index(trace, name) for name in ("forward", "backward", "optimizer")}
    starts, ends, names = [], [], []
    for start, end in zip(step_start_ns, step_end_ns, strict=True):
        inside = rows[(table.start_ns[rows] >= start) & (table.start_ns[rows] < end)]
        if not len(inside):
            continue
        first, last = table.start_ns[inside].min(), min(table.end_ns[inside].max(), end)
        bounds = (("forward", start, first), ("backward", first, last), ("optimizer", last, end))
        for name, begin, stop in bounds:
            starts.append(begin)
            ends.append(stop)
            names.append(order[name])
    columns = (starts, ends, names, [thread] * len(starts), [0] * len(starts))
    return tuple(np.array(column, np.int64) for column in columns)


def name_index(trace: Trace, name: str) -> int:
    if name not in trace.names:
        trace.names.append(name)
    return trace.names.index(name)
