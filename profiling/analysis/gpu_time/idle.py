"""Explain why the GPU was idle: split each gap by what the host did. Called by analysis.

Take a gap that ends with operation N, whose launching call returned at time L:

- If L is before the gap began, or if one call launched both N and the operation before the gap, the
  work was queued. The gap is `queue`: dependencies and the GPU's own latency.
- Otherwise the host was late, and the gap is split, in this order, by what the thread with the
  steps and the threads that launch kernels did up to L:
  1. The time inside a copy of more than 64 KiB from or to pageable memory, outside the data phase,
     is `staging`, for a copy to the host only from when it begins on the GPU. The driver then moves
     the bytes through a buffer of its own, and the GPU has nothing to do until that is done.
  2. The time inside a call that allocates or frees memory is `allocation`, and so is the time in
     which a wait gives memory back. The time inside a call that waits for the GPU is
     `synchronization`, or `data` in the data phase.
  3. Over 200 us without any CUDA call or wait, or the time inside another copy from pageable
     memory, is `data` in the data phase or while waiting for another process (a loader's), else
     `cpu` (Python).
  4. The rest counts as in 2 after a wait that had drained the queue; else it is `data` in the data
     phase; else `launch`: CUDA API, the framework's dispatch, and after L the latency of a launch
     that nothing hid.
- In both cases, time before a copy to the host that is then waited for (`.item()`) counts as in 2.

Where a capture has no data phase, CPU work just before the copy of a batch to the GPU was making
that batch, unless the host slept, wrote files, compiled, drew random numbers for most of the time,
or had just fetched results. What it wrote while it waited longer for other processes' answers went
to them, not into files. CPU work just behind such a copy was making the next batch, as the loaders
of accelerate and the HF Trainer do. Copies with no other operation between them are one batch. What
lies between two of them is `staging`, outside the data phase, as one copy of all would have no such
gaps; but for allocations, and for 200 us without a call, in which the next one was made. Queued
time between two copies to the host is `staging`, too: between JAX's, a function on the stream
empties the buffer that they share. Copies of several sizes in a row with many such times among them
are no batch: they bring the weights of a module, say, each when it has been made.
`host_activity` says what counts as the data phase, and as a wait.

While a wait held up the host and the GPU was busy, the host would have got ahead without the wait.
So each wait is owed its length, and the parts 3 and 4 of the gaps after it pay that debt, `launch`
first: a `.item()` in a step whose GPU is slower than its host owns the whole gap after it. Part 3
pays all or nothing: a loader that takes longer than the wait lasted would still have been late
without it. A debt ends with the step after the one that waited: a single wait, in a warm-up, could
not have hidden what every step does.

All sums are integers: the causes of a gap add up to it to the nanosecond.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from profiling.analysis.columns import Intervals
from profiling.analysis.gpu_time.attribution import OwnedOperations
from profiling.analysis.gpu_time.breakdown import Activity
from profiling.analysis.gpu_time.host_activity import (
    FROM_HOST,
    LATE,
    LONG_NS,
    NOTHING,
    NUMBERS_BYTES,
    TO_HOST,
    Host,
    copies,
    host_activity,
    in_large_runs,
    is_other_work,
    large_results,
    piece_by_piece,
    where_often,
)
from profiling.analysis.gpu_time.host_waits import (
    charge,
    find_awaited,
    find_drained,
    wait_begin_ns,
)
from profiling.shared.causes import CAUSES
from profiling.timeline.reading import in_order
from profiling.timeline.trace import Calls, Operations, Trace

STALLS = ("data_stalls", "sleeps", "stalls")


@dataclass(frozen=True)
class Gaps:
    """The device's idle intervals in the steps, and their causes.

    `cause_ns` is (CAUSES, gaps) in nanoseconds; its columns add up to the length of each gap.
    """

    start_ns: np.ndarray
    end_ns: np.ndarray
    before: np.ndarray  # row in Trace.operations of the operation before the gap; -1: none
    after: np.ndarray  # the same, of the operation after the gap
    cause_ns: np.ndarray
    late_until_ns: np.ndarray  # when the launch of the operation after it returned, in the gap
    quiet: Intervals  # long times in which the threads that launch made no CUDA call
    data_waits: Intervals  # times in which they waited for the GPU in the data phase
    waits: Intervals  # the same, outside the data phase


@dataclass(frozen=True)
class GapLaunches:
    """Gaps, and the launches of the operations before and after each.

    Where the call of an operation is unknown, `before_ns` is the begin of the gap and `returned_ns`
    its end.
    """

    start_ns: np.ndarray
    end_ns: np.ndarray
    before_ns: np.ndarray  # begin of the call that launched the operation before
    returned_ns: np.ndarray  # end of the call that launched the operation after
    late_until_ns: np.ndarray  # returned_ns clipped to the gap; its begin if one call launched both
    to_host: np.ndarray  # bool: the operation after copies to the host, and its call is known

    def rows(self, chosen: np.ndarray) -> "GapLaunches":
        return GapLaunches(*(column[chosen] for column in vars(self).values()))


def find_gaps(
    trace: Trace,
    owned: OwnedOperations,
    activity: Activity,
    bounds_ns: np.ndarray,
    charged: bool = True,
) -> Gaps | None:
    """The idle gaps with their causes, or None where the capture lacks the calls that tell them.

    `bounds_ns` are the n + 1 boundaries of the n steps on the GPU's time line. With `charged`,
    waits own what later gaps owe to them; otherwise each gap counts as what the host did in it.
    """
    calls, operations, idle = trace.calls, owned.operations, activity.idle
    if calls is None:
        return None
    before, after = neighbours(operations, owned.steps.rows_of(operations), idle)
    if not launches_are_known(operations, idle, after):
        return None
    launches = launches_around(trace.names, operations, calls, idle, before, after)
    host = host_activity(trace, calls, owned, activity.begin_ns, activity.end_ns)
    cause_ns = np.zeros((len(CAUSES), len(after)), np.int64)
    cause_ns[CAUSES.index("queue")] = idle.end_ns - idle.start_ns
    # only these gaps need splitting; the others, mostly many more, are `queue` as a whole
    rows = np.flatnonzero((launches.late_until_ns > idle.start_ns) | launches.to_host)
    batch = np.zeros(len(rows), bool)
    if not len(host.data.start_ns):
        mine = owned.steps.rows_of(operations)
        steps = len(bounds_ns) - 1
        start_ns, end_ns = idle.start_ns[rows], idle.end_ns[rows]
        paused = host.quiet.ns_within(start_ns, end_ns) > LONG_NS
        beside = before[rows], after[rows]
        batch = beside_batch(trace.names, operations, mine, *beside, paused, steps)
        did = (host.other_work, host.data_stalls, host.draws, host.quiet)
        batch &= ~is_other_work(*(times.ns_within(start_ns, end_ns) for times in did))
    run = copies(trace.names, operations, before[rows], FROM_HOST)
    run &= copies(trace.names, operations, after[rows], FROM_HOST)
    busy = activity.busy if charged else None
    cause_ns[:, rows] = split_causes(launches.rows(rows), batch, run, host, busy, bounds_ns)
    fetches = copies(trace.names, operations, before, TO_HOST)
    fetches &= copies(trace.names, operations, after, TO_HOST)
    queue_ns, staging_ns = cause_ns[CAUSES.index("queue")], cause_ns[CAUSES.index("staging")]
    move(queue_ns, staging_ns, np.where(fetches, queue_ns, 0))
    return Gaps(
        idle.start_ns,
        idle.end_ns,
        before,
        after,
        cause_ns,
        launches.late_until_ns,
        host.quiet,
        host.data_waits,
        host.other_waits,
    )


def launches_are_known(operations: Operations, idle: Intervals, after: np.ndarray) -> bool:
    """Whether the calls that launched the operations `after` the gaps were captured.

    It is enough that they are known for half of the idle time.
    """
    length_ns = idle.end_ns - idle.start_ns
    unknown = (after >= 0) & (operations.call[after] < 0)
    return 2 * int(length_ns[unknown].sum()) <= int(length_ns.sum())


def launches_around(
    names: list[str],
    operations: Operations,
    calls: Calls,
    idle: Intervals,
    before: np.ndarray,
    after: np.ndarray,
) -> GapLaunches:
    """The launches around the `idle` gaps.

    `before` and `after` are the rows of the operations before and after each gap, or -1.
    """
    start, end = idle.start_ns, idle.end_ns
    call_before = np.where(before >= 0, operations.call[before], -1)
    call = np.where(after >= 0, operations.call[after], -1)
    known = call >= 0
    returned = np.where(known, calls.end_ns[call], end)
    return GapLaunches(
        start,
        end,
        before_ns=np.where(call_before >= 0, calls.start_ns[call_before], start),
        returned_ns=returned,
        late_until_ns=np.where(known & (call_before == call), start, np.clip(returned, start, end)),
        to_host=known & copies(names, operations, after, TO_HOST),
    )


def neighbours(
    operations: Operations, rows: np.ndarray, idle: Intervals
) -> tuple[np.ndarray, np.ndarray]:
    """(row of the operation that ended last before each gap, row of the next one), or -1."""
    ends_ns = operations.end_ns[rows]
    by_end = rows if in_order(ends_ns) else rows[np.argsort(ends_ns, kind="stable")]
    last = np.searchsorted(operations.end_ns[by_end], idle.start_ns, side="right") - 1
    before = np.where(last >= 0, by_end[np.maximum(last, 0)], -1)
    first = np.searchsorted(operations.start_ns[rows], idle.end_ns, side="left")
    after = np.where(first < len(rows), rows[np.minimum(first, len(rows) - 1)], -1)
    return before, after


def beside_batch(
    names: list[str],
    operations: Operations,
    rows: NDArray[np.intp],
    before: NDArray[np.intp],
    after: NDArray[np.intp],
    paused: NDArray[np.bool_],
    steps: int,
) -> NDArray[np.bool_]:
    """(gaps,) mask: a batch is copied to the GPU just before it, or just after it and then no
    results were fetched before it.

    `rows` are those of the process on the GPU; in gaps of the mask `paused` the host was long
    without a call. A small copy counts with the copies right beside it.
    Results are as large as a batch, or more than scalars and fetched again and again in each of the
    `steps`.
    """
    of_batch, fetched = (np.zeros(len(operations.name) + 1, bool) for _ in range(2))  # and row -1
    bytes_ = operations.bytes[rows]
    to_gpu = copies(names, operations, rows, FROM_HOST)
    of_batch[rows] = in_large_runs(to_gpu, bytes_)
    paused = paused & (before >= 0) & (after >= 0)
    around = (np.searchsorted(rows, gaps[paused]) for gaps in (before, after))
    of_batch[rows] &= ~piece_by_piece(to_gpu, bytes_, *around)
    fetched[rows] = large_results(copies(names, operations, rows, TO_HOST), bytes_)
    small = copies(names, operations, before, TO_HOST) & of_batch[after]
    small &= operations.bytes[before] > NUMBERS_BYTES
    answered = fetched[before] | where_often(small, steps)
    beside: NDArray[np.bool_] = of_batch[before] | (of_batch[after] & ~answered)
    return beside


def split_causes(
    gaps: GapLaunches,
    beside_batch: np.ndarray,
    in_run: np.ndarray,
    host: Host,
    busy: Intervals | None,
    bounds_ns: np.ndarray,
) -> np.ndarray:
    """(CAUSES, gaps) in nanoseconds; each column adds up to its gap.

    `beside_batch` is a mask of the gaps beside the copy of a batch to the GPU, and `in_run` of
    those between two copies to the GPU, see the top. `busy` are the GPU's busy times; None charges
    no wait with anything.
    """
    start, end, late_until = gaps.start_ns, gaps.end_ns, gaps.late_until_ns
    queued = np.where(late_until > start, 0, end - start)  # 0 where the host was late

    did = tuple(getattr(host, what) for what in LATE if what != "launching")
    waited = (
        (host.allocations, "allocation"),
        (host.data_waits, "data"),
        (host.other_waits, "synchronization"),
    )
    sets = (host.staging, *(waits for waits, _ in waited), *did)
    staged, *parts = exclusive_ns(sets, start, late_until)
    parts.append(end - start - queued - staged - sum(parts))
    latency = np.where(queued > 0, 0, np.maximum(end - late_until - LONG_NS, 0))
    # no launch takes as long as that, so the GPU had other work
    move(parts[-1], queued, latency)
    in_waits, parts = parts[: len(waited)], parts[len(waited) :]
    late = dict(zip(LATE, parts, strict=True))
    if in_run.any():
        quiet_ns = host.quiet.ns_within(start, late_until)
        join_copies(in_run, quiet_ns, late, in_waits[-1], staged)
    making = np.where(beside_batch, late["stalls"], 0)
    move(late["stalls"], late["data_stalls"], making)
    cause_ns = {cause: np.zeros(len(start), np.int64) for cause in CAUSES}
    known = reduce(Intervals.union, sets)
    for (waits, cause), inside in zip(waited, in_waits, strict=True):
        if len(waits.start_ns):
            cause_ns[cause] += inside
        if busy is not None and len(waits.start_ns):
            charge_waits(waits, gaps, queued, late, cause_ns[cause], known, busy, bounds_ns)
    for what, cause in LATE.items():
        cause_ns[cause] += late[what]
    cause_ns["staging"] += staged
    cause_ns["queue"] += queued
    return np.stack(list(cause_ns.values()))


def join_copies(
    in_run: np.ndarray,
    quiet_ns: np.ndarray,
    late: dict[str, np.ndarray],
    waited: np.ndarray,
    staged: np.ndarray,
) -> None:
    """Move to `staged` what the host did between two copies to the GPU, outside the data phase.

    Long times without a call stay, of which each gap has `quiet_ns`; `waited` is for the GPU.
    """
    stall_ns = np.sum([late[what] for what in STALLS], axis=0)
    copying = np.clip(stall_ns - quiet_ns, 0, late["stalls"])
    for part, ns in (
        (late["stalls"], copying),
        (late["launching"], late["launching"]),
        (waited, waited),
    ):
        move(part, staged, np.where(in_run, ns, 0))


def charge_waits(
    waits: Intervals,
    gaps: GapLaunches,
    queued: np.ndarray,
    late: dict[str, np.ndarray],
    charged: np.ndarray,
    known: Intervals,
    busy: Intervals,
    bounds_ns: np.ndarray,
) -> None:
    """Move to `charged` the part of each gap's queue and lateness that waits of one kind caused.

    `known` are all times at which the host is known to have done something.
    """
    start, late_until = gaps.start_ns, gaps.late_until_ns
    fetched = gaps.to_host & find_awaited(waits, gaps.returned_ns)
    move(queued, charged, np.where(fetched, queued, 0))
    drained = fetched | find_drained(waits, start, late_until, gaps.before_ns)
    first = np.where(fetched, start, wait_begin_ns(waits, start, late_until))
    before = first - start - known.ns_within(start, first)
    before = np.where(before > LONG_NS, before, 0)
    behind = np.maximum(late["launching"] - before, 0)
    move(late["data"], charged, np.where(drained, late["data"], 0))
    move(late["launching"], charged, np.where(drained, behind, 0))
    late_ns = np.sum(list(late.values()), axis=0)
    pay(late, charged, charge(waits, busy, start, late_ns, bounds_ns))


def pay(late: dict[str, np.ndarray], charged: np.ndarray, debt: np.ndarray) -> None:
    """Move up to `debt` ns of each gap's lateness to `charged`, launch time first.

    STALLS are moved as wholes or not at all. `debt` is reduced by what was moved.
    """
    for what, part in reversed(late.items()):
        paid = np.minimum(part, debt)
        if what in STALLS:
            paid = np.where(part > debt, 0, paid)
        move(part, charged, paid)
        debt -= paid


def exclusive_ns(
    sets: Iterable[Intervals], start_ns: np.ndarray, end_ns: np.ndarray
) -> list[np.ndarray]:
    """Nanoseconds of each [start, end) that are in each set and in none of the sets before it."""
    covered, measured = NOTHING, np.zeros(len(start_ns), np.int64)
    exclusive = []
    for intervals in sets:
        if not len(intervals.start_ns):
            exclusive.append(np.zeros_like(measured))
            continue
        covered = covered.union(intervals)
        reached = covered.ns_within(start_ns, end_ns)
        exclusive.append(reached - measured)
        measured = reached
    return exclusive


def move(source_ns: np.ndarray, target_ns: np.ndarray, ns: np.ndarray) -> None:
    source_ns -= ns
    target_ns += ns
