"""Add to CUDA's calls what the host did for the GPU outside of them. Called by work.

host_activity decides what that is. A wait without a call, as JAX's, becomes a call that waits, less
the times in which a thread that launches was in a call: JAX's other threads copy the result. Where
that result is staged as a whole, most of the wait is the copy's, and it stays a pause. What is left
of a dispatch becomes a call, too, so that it is no pause.
"""

import re
from dataclasses import replace

import numpy as np

from profiling.analysis.columns import Intervals, is_one_of, union
from profiling.analysis.gpu_time.host_activity import (
    STAGED_BYTES,
    TO_HOST,
    UNSEEN_WAITS,
    copies,
    dispatch_times,
    fetches,
    unseen_waits,
)
from profiling.analysis.steps.steps import Steps
from profiling.shared.host_work import JAX_DISPATCHES
from profiling.timeline.trace import Calls, Operations, Trace


def with_unseen(
    trace: Trace, steps: Steps, calls: Calls, operations: Operations, threads: list[int]
) -> tuple[Calls, Operations]:
    """The calls with those that CUDA does not show, and the operations, which name calls by row.

    `threads` are those that launch.
    """
    rows = steps.rows_of(operations)
    mine = is_one_of(calls.thread, threads)
    waits = unseen_waits(trace, steps, operations, rows)
    home = rows[copies(trace.names, operations, rows, TO_HOST)]
    large = fetches(waits, operations, home[operations.bytes[home] > STAGED_BYTES])
    in_calls = union(calls.start_ns[mine], calls.end_ns[mine])
    waits = outside(waits, in_calls.union(large))
    dispatches = dispatch_times(trace, steps, int(calls.start_ns[0]), int(calls.end_ns.max()))
    dispatches = outside(dispatches, in_calls.union(waits))
    for times, wanted in ((waits, UNSEEN_WAITS), (dispatches, JAX_DISPATCHES)):
        calls, operations = with_calls(trace, steps, calls, operations, times, wanted)
    return calls, operations


def outside(times: Intervals, others: Intervals) -> Intervals:
    """The part of the `times` that is in none of the `others`."""
    if not len(times.start_ns):
        return times
    begin, end = int(times.start_ns[0]), int(times.end_ns[-1])
    return times.intersection(others.gaps(begin, end), begin, end)


def with_calls(
    trace: Trace,
    steps: Steps,
    calls: Calls,
    operations: Operations,
    times: Intervals,
    wanted: re.Pattern[str],
) -> tuple[Calls, Operations]:
    """The calls, and more of the steps' thread at these times, by the first name that is wanted."""
    count = len(times.start_ns)
    if not count:
        return calls, operations
    name = next(row for row, text in enumerate(trace.names) if wanted.fullmatch(text))
    new = {
        "start_ns": times.start_ns,
        "end_ns": times.end_ns,
        "name": np.full(count, name),
        "process": np.full(count, steps.process),
        "thread": np.full(count, steps.thread),
        "failed": np.zeros(count, bool),
    }
    columns = {key: np.concatenate((column, new[key])) for key, column in vars(calls).items()}
    order = np.argsort(columns["start_ns"], kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    call = np.where(operations.call >= 0, place[operations.call], -1)
    return Calls(**columns).rows(order), replace(operations, call=call)
