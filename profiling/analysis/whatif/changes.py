"""Changes to a Work: what it would be without a cause of idle time, with CUDA graphs, with kernels
that take another time. Each makes a new one. What it makes of the GPU's times does not depend on
how fast the host is, nor the other way round: they are replayed at several speeds of both.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import Intervals, concatenate_columns, name_mask, union
from profiling.analysis.gpu_time.idle import LONG_NS, STAGED_BYTES
from profiling.analysis.gpu_work.families import FAMILIES
from profiling.analysis.whatif.constants import (
    ASKING_NS,
    GRAPH_GAP_NS,
    GRAPH_LAG_NS,
    SCALAR_BYTES,
    USUAL_THINK_NS,
)
from profiling.analysis.whatif.waits import NEVER
from profiling.analysis.whatif.work import ALLOCATION, LAUNCHING, OTHER, TRANSFER, WAITING, Work
from profiling.timeline.trace import COPY, KERNEL


@dataclass(frozen=True)
class Change:
    words: str  # as it is typed
    apply: Callable[[Work], Work]
    leaves: tuple[str, ...] = ()  # what it does not take away


def without_data(work: Work) -> Work:
    """The next batch is there when it is asked for; its copy to the GPU stays."""
    host = work.host
    think_ns = np.where(
        host.think_ns > 0, np.maximum(host.think_ns - host.data_ns, 0), host.think_ns
    )
    gone = host.in_data & (host.kind != LAUNCHING) & (host.kind != TRANSFER)
    return drop(with_think(work, think_ns), gone)


def without_cpu(work: Work) -> Work:
    """Stalls are as short as the host's other times, and what was fetched for them stays."""
    host = work.host
    short = host.think_ns[(host.think_ns > 0) & (host.think_ns < LONG_NS)]
    usual_ns = float(np.median(short)) if len(short) else USUAL_THINK_NS
    think_ns = np.where(host.is_stall, np.minimum(host.think_ns, usual_ns), host.think_ns)
    large_home = work.gpu.to_host & (work.gpu.bytes > STAGED_BYTES)
    fetching = calls_of(work, large_home)
    fed = right_before_stalls(work, fetching | (host.kind == WAITING))
    if not (fed & fetching).any():
        return with_think(work, think_ns)
    return drop(with_think(work, think_ns), fed, large_home & fed[work.gpu.call])


def right_before_stalls(work: Work, marked: np.ndarray) -> np.ndarray:
    """(calls,) mask of the `marked` calls that no other call but questions parts from a stall."""
    real = np.flatnonzero(work.host.kind != OTHER)
    stop = np.searchsorted(real, np.flatnonzero(work.host.is_stall))
    numbers = np.arange(len(real))
    unmarked = np.maximum.accumulate(np.where(marked[real], -1, numbers))
    begin = np.append(unmarked, -1)[stop - 1] + 1
    within = np.zeros(len(real) + 1, np.int64)
    np.add.at(within, begin[stop > 0], 1)
    np.add.at(within, stop[stop > 0], -1)
    before = np.zeros(len(work.host.kind), bool)
    before[real] = np.cumsum(within)[:-1] > 0
    return before


def without_sync(work: Work) -> Work:
    """No call waits for the GPU, and small results stay there."""
    host = work.host
    small_home = work.gpu.to_host & (work.gpu.bytes <= STAGED_BYTES)
    gone = (host.kind == WAITING) | calls_of(work, small_home)
    own = (host.kind == LAUNCHING) & (host.awaited >= work.first[:-1])
    own &= work.first[1:] > work.first[:-1]
    awaited = np.where(own, -1, host.awaited)  # a launch that a full queue holds up still waits
    return drop(without_asking(with_awaited(work, awaited), gone), gone, small_home)


def without_allocation(work: Work) -> Work:
    gone = work.host.kind == ALLOCATION
    return drop(without_asking(work, gone), gone)


def without_copies(work: Work) -> Work:
    """Nothing but numbers is copied between host and GPU."""
    copied = (work.gpu.to_host | work.gpu.from_host) & (work.gpu.bytes > SCALAR_BYTES)
    of_copies = np.append(copied, False)[work.host.awaited]
    awaited = np.where(of_copies, -1, work.host.awaited)
    return drop(with_awaited(work, awaited), calls_of(work, copied), copied)


def with_graphs(work: Work) -> Work:
    """The host launches once: its short times are gone, and kernels follow each other at once."""
    host, gpu = work.host, work.gpu
    stays = host.is_stall | (host.data_ns > 0) | (host.think_ns < 0)
    replayed = np.isin(host.kind, (LAUNCHING, WAITING, ALLOCATION))
    return replace(
        work,
        host=replace(
            host,
            think_ns=np.where(stays, host.think_ns, 0.0),
            took_ns=np.where(host.kind == TRANSFER, host.took_ns, 0.0),
            awaited=np.where(replayed, -1, host.awaited),
        ),
        gpu=replace(
            gpu,
            host_lag_ns=np.minimum(gpu.host_lag_ns, GRAPH_LAG_NS),
            stream_lag_ns=np.minimum(gpu.stream_lag_ns, GRAPH_GAP_NS),
        ),
    )


def scaled(family: str, factor: float) -> Callable[[Work], Work]:
    """A change: kernels of the family take `factor` times as long, and copies if it is `copy`."""

    def change(work: Work) -> Work:
        gpu = work.gpu
        chosen = (gpu.kind == KERNEL) & (gpu.family == FAMILIES.index(family))
        if family == "copy":
            chosen |= gpu.kind == COPY
        took_ns = np.where(chosen, gpu.took_ns * factor, gpu.took_ns)
        return replace(work, gpu=replace(gpu, took_ns=took_ns))

    return change


def without_times(times: Intervals) -> Callable[[Work], Work]:
    """A change: the host does nothing of what it did in these times, and launches nothing of it.

    The times are in ns from the begin of the first step.
    """

    def change(work: Work) -> Work:
        host = work.host
        before_ns = np.concatenate(([host.start_ns[0] - host.think_ns[0]], host.end_ns[:-1]))
        before_ns = np.maximum.accumulate(before_ns)
        span_ns = np.maximum(host.start_ns - before_ns, 1)
        inside_ns = times.ns_within(before_ns, before_ns + span_ns)
        gone = times.ns_within(host.start_ns, np.maximum(host.end_ns, host.start_ns + 1)) > 0
        left = 1 - np.minimum(inside_ns / span_ns, 1)
        think_ns = np.where(host.think_ns > 0, host.think_ns * left, host.think_ns)
        return drop(with_think(work, think_ns), gone, gone[work.gpu.call])

    return change


def named_times(analysis: Analysis, wanted: re.Pattern[str]) -> Intervals | None:
    """The times of operators and ranges of the process whose whole name matches, in ns from the
    begin of the first step; None where no name does."""
    trace, steps = analysis.trace, analysis.steps
    tables = [table for table in (trace.operators, trace.ranges) if table is not None]
    chosen = [
        table.rows(
            name_mask(trace.names, table.name, wanted.fullmatch) & (table.process == steps.process)
        )
        for table in tables
    ]
    start_ns = concatenate_columns([rows.start_ns for rows in chosen]) - steps.start_ns[0]
    end_ns = concatenate_columns([rows.end_ns for rows in chosen]) - steps.start_ns[0]
    return union(start_ns, end_ns) if len(start_ns) else None


def with_think(work: Work, think_ns: np.ndarray) -> Work:
    return replace(work, host=replace(work.host, think_ns=think_ns))


def with_awaited(work: Work, awaited: np.ndarray) -> Work:
    return replace(work, host=replace(work.host, awaited=awaited))


def without_asking(work: Work, gone: np.ndarray) -> Work:
    """The work without the host's time that led to the calls that are `gone`."""
    think_ns = work.host.think_ns
    left_ns = np.maximum(think_ns - ASKING_NS, 0)
    return with_think(work, np.where(gone & (think_ns > 0), left_ns, think_ns))


def calls_of(work: Work, operations: np.ndarray) -> np.ndarray:
    """(calls,) mask of those that launched one of the operations of a mask."""
    calls = np.zeros(len(work.host.kind), bool)
    calls[work.gpu.call[operations]] = True
    return calls


def drop(work: Work, calls: np.ndarray, operations: np.ndarray | None = None) -> Work:
    """The work without what these masks choose: calls that are not made, operations that do not
    run. What waits for such an operation waits for the one before it on its stream."""
    host, gpu = work.host, work.gpu
    host = replace(
        host,
        took_ns=np.where(calls, 0.0, host.took_ns),
        awaited=np.where(calls, -1, host.awaited),
    )
    if operations is not None and operations.any():
        gpu = replace(
            gpu,
            took_ns=np.where(operations, 0.0, gpu.took_ns),
            host_lag_ns=np.where(operations, NEVER, gpu.host_lag_ns),
            stream_lag_ns=np.where(operations, 0.0, gpu.stream_lag_ns),
            other=np.where(operations, -1, gpu.other),
        )
    return replace(work, host=host, gpu=gpu)


def together(changes: list[Change]) -> Change:
    """All of the changes at once, each once."""
    changes = [*dict.fromkeys(changes)]

    def change(work: Work) -> Work:
        return reduce(lambda made, each: each.apply(made), changes, work)

    leaves = tuple(dict.fromkeys(line for each in changes for line in each.leaves))
    return Change(" ".join(each.words for each in changes), change, leaves)


NO = {
    "data": Change("--no data", without_data, ("copies of batches to the GPU",)),
    "sync": Change("--no sync", without_sync, ("the kernels that make the values",)),
    "copies": Change("--no copies", without_copies, ("copies of up to 4 KiB and inside the GPU",)),
    "allocation": Change("--no allocation", without_allocation),
    "cpu": Change("--no cpu", without_cpu, ("the host's times of up to 0.2 ms",)),
}
GRAPHS = Change(
    "--graphs", with_graphs, ("kernels as they are", "batches, copies and stalls of the host")
)
