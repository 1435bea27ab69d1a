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
from profiling.analysis.columns import Intervals, concatenate_columns, is_one_of, name_mask, union
from profiling.analysis.gpu_time.host_activity import (
    FETCHES,
    LONG_NS,
    NUMBERS_BYTES,
    STAGED_BYTES,
)
from profiling.analysis.gpu_time.pool_releases import release_begins_ns
from profiling.analysis.gpu_work.families import FAMILIES
from profiling.analysis.whatif.constants import (
    ASKED_NS,
    ASKING_NS,
    GRAPH_GAP_NS,
    GRAPH_LAG_NS,
    HAND_OVER_NS,
    MOST_ASKING,
    NO_WAIT_NS,
    OWN_NS,
    PAUSE_NS,
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
    causes: frozenset[str] = frozenset()  # of NO that it takes away, or parts of it do


def without_data(work: Work) -> Work:
    """The next batch is there when it is asked for: to be handed over takes at most HAND_OVER_NS of
    each step, and its copy to the GPU stays."""
    host = work.host
    step = np.cumsum(np.bincount(work.step_first[1:-1], minlength=len(host.kind)))
    of_step = np.bincount(step, host.data_ns, minlength=work.steps)
    data_ns = host.data_ns * (HAND_OVER_NS / np.maximum(of_step, HAND_OVER_NS))[step]
    left_ns = np.maximum(host.think_ns - (host.data_ns - data_ns), 0)
    think_ns = np.where(host.think_ns > 0, left_ns, host.think_ns)
    gone = host.in_data & (host.kind != LAUNCHING) & (host.kind != TRANSFER)
    work = replace(work, host=replace(host, think_ns=think_ns, data_ns=data_ns))
    return drop(work, gone)


def without_cpu(work: Work) -> Work:
    """Pauses are as short as the host's other times, and what was fetched for them stays."""
    host, pauses = work.host, long_pauses(work)
    think_ns = think_without(work, pauses)
    large_home = work.gpu.to_host & (work.gpu.bytes > STAGED_BYTES)
    fetching = calls_of(work, large_home)
    fed = right_before(work, pauses, fetching | (host.kind == WAITING))
    if not (fed & fetching).any():
        return with_think(work, think_ns)
    return drop(with_think(work, think_ns), fed, large_home & fed[work.gpu.call])


def long_pauses(work: Work) -> np.ndarray:
    """(calls,) mask of those with so long a pause before them, without data, that it is no
    framework's own time: an optimizer that sorts its parameters takes up to a millisecond. Right
    behind a copy home of more than a few numbers, each stall is what the program does with it."""
    host = work.host
    fetched = calls_of(work, work.gpu.to_host & (work.gpu.bytes > NUMBERS_BYTES))
    pauses: np.ndarray = host.is_stall & (
        (host.think_ns - host.data_ns > PAUSE_NS) | right_behind(work, fetched)
    )
    return pauses


def think_without(work: Work, pauses: np.ndarray) -> np.ndarray:
    """(calls,) ns before each call, those of the `pauses` as short as the host's other times."""
    host = work.host
    return np.where(pauses, host.data_ns + usual_think_ns(work), host.think_ns)


def without_pauses(work: Work) -> Work:
    """All pauses are as short as the host's other times: the program's and the framework's."""
    return with_think(work, think_without(work, work.host.is_stall))


def short_pauses(work: Work) -> np.ndarray:
    """(calls,) mask of those with a pause before them that `--no cpu` leaves."""
    short: np.ndarray = work.host.is_stall & ~long_pauses(work)
    return short


def pauses_ms(work: Work, pauses: np.ndarray) -> float:
    """Milliseconds per step of the `pauses`, without the making of batches."""
    host = work.host
    return float((host.think_ns - host.data_ns)[pauses].clip(0).sum()) / 1e6 / work.steps


def usual_think_ns(work: Work) -> float:
    think_ns = work.host.think_ns
    short = think_ns[(think_ns > 0) & (think_ns < LONG_NS)]
    return float(np.median(short)) if len(short) else USUAL_THINK_NS


def right_before(work: Work, pauses: np.ndarray, marked: np.ndarray) -> np.ndarray:
    """(calls,) mask of the `marked` calls that no other call but questions parts from one of the
    `pauses`."""
    real = np.flatnonzero(work.host.kind != OTHER)
    stop = np.searchsorted(real, np.flatnonzero(pauses))
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
    """No call waits for the GPU, and small results stay there. A loop of questions goes as a
    whole."""
    small_home = work.gpu.to_host & (work.gpu.bytes <= STAGED_BYTES)
    gone = (work.host.kind == WAITING) | calls_of(work, small_home)
    work = without_loops_of(work, gone)
    host = work.host
    own = (host.kind == LAUNCHING) & (host.awaited >= work.first[:-1])
    own &= work.first[1:] > work.first[:-1]
    awaited = np.where(own, -1, host.awaited)  # a launch that a full queue holds up still waits
    return drop(without_asking(with_awaited(work, awaited), gone), gone, small_home)


def without_loops_of(work: Work, questions: np.ndarray) -> Work:
    """The work without what lies between questions that follow each other closely: at most
    MOST_ASKING launches of a short operation each, which make the value, and the host's time but
    for pauses. Where that is rare, each question may be one of its own."""
    host, gpu = work.host, work.gpu
    took_ns = np.bincount(gpu.call, gpu.took_ns, len(host.kind))
    makes = (host.kind == LAUNCHING) & (np.diff(work.first) == 1) & (took_ns <= ASKED_NS)
    parts = (host.kind != OTHER) & ~makes & ~questions
    made, parted = (np.concatenate(([0], np.cumsum(mask))) for mask in (makes, parts))
    asks = np.flatnonzero(questions)
    begin, end = asks[:-1] + 1, asks[1:]
    close = (made[end] - made[begin] <= MOST_ASKING) & (parted[end] == parted[begin])
    begin, end = begin[close], end[close]
    if np.count_nonzero(calls_of(work, gpu.to_host)[end]) < FETCHES * work.steps:
        return work
    within = (
        np.bincount(begin, minlength=len(questions))
        - np.bincount(end + 1, minlength=len(questions) + 1)[:-1]
    )
    inside = np.cumsum(within) > 0
    # a callback of a compiled function: from one wait to the next nothing else is asked
    called = (host.kind == WAITING) & (host.think_ns <= PAUSE_NS)
    asking = inside & (host.data_ns <= 0) & (~host.is_stall | called)
    work = with_think(work, np.where(asking, np.minimum(host.think_ns, 0), host.think_ns))
    gone = inside & makes
    return drop(work, gone, gone[gpu.call])


def without_allocation(work: Work) -> Work:
    """No call allocates or frees, and waits end with the GPU's work: they give no memory back."""
    host, gpu = work.host, work.gpu
    begins_ns = release_begins_ns(
        work.names, host.name, host.start_ns, host.end_ns, gpu.start_ns, gpu.end_ns
    )
    releases = begins_ns < host.end_ns
    took_ns = np.where(releases, np.minimum(host.took_ns, OWN_NS), host.took_ns)
    lag_ns = np.where(releases, np.minimum(host.wait_lag_ns, NO_WAIT_NS), host.wait_lag_ns)
    work = replace(work, host=replace(host, took_ns=took_ns, wait_lag_ns=lag_ns))
    gone = host.kind == ALLOCATION
    return drop(without_asking(work, gone), gone)


def without_copies(work: Work) -> Work:
    """Nothing but single numbers is copied between host and GPU, and the host has nothing to do
    with what large copies, and others right behind them, brought home, nor between two copies to
    the GPU."""
    host, gpu = work.host, work.gpu
    behind = gpu.from_host & np.roll(gpu.from_host, 1)  # another copy to the GPU, round and round
    copied = (gpu.to_host | gpu.from_host) & (gpu.bytes > SCALAR_BYTES)
    copied |= behind | np.roll(behind, -1)
    large_home = gpu.to_host & (gpu.bytes > STAGED_BYTES)
    handled = host.is_stall & right_behind(
        work, calls_of(work, large_home), calls_of(work, gpu.to_host)
    )
    think_ns = think_without(work, handled)
    joined = calls_of(work, behind) & ~host.is_stall & (host.data_ns <= 0)
    think_ns = np.where(joined, np.minimum(think_ns, 0), think_ns)
    work = without_waits_for(with_think(work, think_ns), copied)
    return drop(work, calls_of(work, copied), copied)


def without_waits_for(work: Work, operations: np.ndarray) -> Work:
    awaits = np.append(operations, False)[work.host.awaited]
    return with_awaited(work, np.where(awaits, -1, work.host.awaited))


def right_behind(work: Work, marked: np.ndarray, passed: np.ndarray | None = None) -> np.ndarray:
    """(calls,) mask of those that only waits, questions and calls that are `passed` part from one
    of the `marked` calls; in front of the first call comes the last one."""
    own = ~is_one_of(work.host.kind, (OTHER, WAITING))
    if passed is not None:
        own &= marked | ~passed
    latest = np.maximum.accumulate(np.where(own, np.arange(len(own)), -1))
    latest = np.concatenate((latest[-1:], np.where(latest < 0, latest[-1], latest)[:-1]))
    behind: np.ndarray = marked[latest]
    return behind


def with_graphs(work: Work) -> Work:
    """The host launches once: its short times are gone, and kernels follow each other at once."""
    host, gpu = work.host, work.gpu
    stays = long_pauses(work) | (host.data_ns > 0) | (host.think_ns < 0)
    replayed = is_one_of(host.kind, (LAUNCHING, WAITING, ALLOCATION))
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
    causes = frozenset().union(*(each.causes for each in changes))
    return Change(" ".join(each.words for each in changes), change, leaves, causes)


def without(cause: str, apply: Callable[[Work], Work], *leaves: str) -> Change:
    return Change(f"--no {cause}", apply, leaves, frozenset({cause}))


NO = {
    "data": without("data", without_data, "copies of batches to the GPU"),
    "sync": without(
        "sync", without_sync, "the kernels that make the values, but for short ones in a loop"
    ),
    "copies": without(
        "copies", without_copies, "single copies of up to 4 KiB, and copies inside the GPU"
    ),
    "allocation": without("allocation", without_allocation),
    "cpu": without("cpu", without_cpu, "the host's pauses of up to 2 ms"),
}
GRAPHS = Change(
    "--graphs", with_graphs, ("kernels as they are", "batches, copies and stalls of the host")
)
