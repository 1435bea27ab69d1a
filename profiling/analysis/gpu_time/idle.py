"""Explain why the GPU was idle: split each gap by what the host did. Called by analysis.

Take a gap that ends with operation N, whose launching call returned at time L:

- If L is before the gap began, or if one call launched both N and the operation before the gap, the
  work was queued. The gap is `queue`: dependencies and the GPU's own latency.
- Otherwise the host was late, and the gap is split, in this order, by what the thread with the
  steps and the threads that launch kernels did up to L:
  1. The time inside a copy of more than 64 KiB from or to pageable memory, outside the data phase,
     is `staging`, for a copy to the host only from when it begins on the GPU. The driver then moves
     the bytes through a buffer of its own, and the GPU has nothing to do until that is done.
  2. The time inside a call that allocates or frees memory is `allocation`. The time inside a call
     that waits for the GPU is `synchronization`, or `data` in the data phase.
  3. Over 200 us without any CUDA call, or the time inside another copy from pageable memory, is
     `data` in the data phase or while waiting for another process (a loader's), else `cpu`
     (Python).
  4. The rest counts as in 2 after a wait that had drained the queue; else it is `data` in the data
     phase; else `launch`: CUDA API, the framework's dispatch, and after L the latency of a launch
     that nothing hid.
- In both cases, time before a copy to the host that is then waited for (`.item()`) counts as in 2.

The data phase is a range of that name, or PyTorch's own around a DataLoader. Where a capture has
neither, CPU work just before the copy of a batch to the GPU was making that batch, unless the host
slept, wrote files, compiled, or had just fetched results. CPU work just behind such a copy was
making the next batch, as the loaders of accelerate and the HF Trainer do. Copies with no other
operation between them are one batch. What lies between two of them is `staging`, outside the data
phase, as one copy of all would have no such gaps; but for allocations, and for 200 us without a
call, in which the next one was made.

Launches that all return only after their kernels (CUDA_LAUNCH_BLOCKING) are calls that wait. JAX
waits without any call of CUDA: its threads report results by a futex. Such a wait, or a fetch of an
array in JAX's own trace, counts if a copy to the host lies in it; block_until_ready always does.

While a wait held up the host and the GPU was busy, the host would have got ahead without the wait.
So each wait is owed its length, and the parts 3 and 4 of the gaps after it pay that debt, `launch`
first: a `.item()` in a step whose GPU is slower than its host owns the whole gap after it. Part 3
pays all or nothing: a loader that takes longer than the wait lasted would still have been late
without it. A debt ends with the step after the one that waited: a single wait, in a warm-up, could
not have hidden what every step does.

A copy from the GPU to pageable memory waits as a synchronising call does, and so does one to the
GPU in the data phase. Larger ones are staged: CUDA's API synchronization behavior has the driver
wait for the stream and move the bytes. Up to 64 KiB, a copy to the GPU delays nobody (CUDA C++
Programming Guide, asynchronous concurrent execution), and a copy back takes no more than a latency,
as in `.item()`.

All sums are integers: the causes of a gap add up to it to the nanosecond.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from profiling.analysis.columns import Intervals, distinct, name_mask, union
from profiling.analysis.gpu_time.attribution import OwnedOperations
from profiling.analysis.gpu_time.breakdown import Activity
from profiling.analysis.gpu_time.host_waits import (
    charge,
    find_awaited,
    find_drained,
    launches_block,
    wait_begin_ns,
)
from profiling.analysis.steps.operators import loading_times
from profiling.analysis.steps.steps import Steps
from profiling.shared.causes import CAUSES
from profiling.shared.host_work import JAX_WAITS, XLA_ALLOCATES, XLA_COMPILES
from profiling.timeline.trace import COPY, Calls, Operations, Ranges, Trace

LONG_NS = 200_000  # a long time without a CUDA call; a launch and its dispatch take 5 to 50 us
BLOCKING = re.compile(
    r"((cuda|hip)(Stream|Device|Event|Thread)Synchronize|cu(Stream|Ctx|Event)Synchronize|"
    r"(cuda|hip)Memcpy(2D|WithStream)?|(cu|hip)Memcpy(DtoH|HtoD|DtoD)?)(_ptsz|_ptds|_spt)?(_v\d+)?|"
    r"synchronize(Stream|Device|Event)?"  # MTIA's calls
)
ALLOCATING = re.compile(
    r"((cuda|hip)(Ext)?(Malloc|Free)(Host|Array|Pitch|Managed|WithFlags)?|"
    r"(cuda|hip)Host(Alloc|Malloc|Free|Register|Unregister)|"
    r"cuMem(Alloc|Free)(Host|Pitch|Managed)?|(cu|hip)Mem(Create|Map|Unmap|Release|SetAccess|"
    r"AddressReserve|AddressFree)|"
    # of a pool, which asks the driver where it has given its memory back
    r"(cuda|hip)(Malloc(FromPool)?|Free)Async|cuMem(Alloc(FromPool)?|Free)Async|"
    r"(cuda|cu|hip)MemPoolTrimTo)(_ptsz)?(_v\d+)?"
)
TO_HOST, FROM_HOST = "Device-to-Host", "Host-to-Device"  # in the name of a copy
BATCH_BYTES = 4096  # smaller copies are scalars
STAGED_BYTES = 65536  # larger copies of pageable memory go through a buffer of the driver's
DATA_PHASES = ("data", "dataloader", "data_loading", "get_batch", "load", "batch")
# the system's calls that wait for another process (a bare futex is for threads of this one), those
# that pause at the program's request, and those that put files on the disk
FOREIGN_WAITS = re.compile(
    r"p?poll|p?select|epoll_p?wait\d?|read(v|64)?|recv(from|msg)?|sem_(wait|timedwait|clockwait)|"
    r"wait(pid|id|3|4)?|v?fork|posix_spawnp?"
)
SLEEPS = re.compile(r"(clock_)?nanosleep|u?sleep")
FETCHES = re.compile(r"futex|np\.asarray\(jax\.Array\)")
WRITES = re.compile(r"p?write(v|64)?|f(data)?sync|sync(fs)?|msync|fwrite|fflush")
SHORT_WRITE_NS = 100_000  # shorter writes wake another thread or process
# what a late host did (fields of Host, and `launching` for the rest) -> the cause of that part of
# the gap, unless a wait is charged with it
LATE = {
    "data_stalls": "data",
    "sleeps": "cpu",
    "stalls": "cpu",
    "data": "data",
    "launching": "launch",
}
STALLS = ("data_stalls", "sleeps", "stalls")
NOTHING = union(np.empty(0), np.empty(0))


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


@dataclass(frozen=True)
class Host:
    """Activity of the threads that drive the device, as sets of intervals in the steps."""

    data: Intervals  # in the data phase
    staging: Intervals  # in large copies from or to pageable memory, outside the data phase
    allocations: Intervals  # in calls that allocate or free memory
    data_waits: Intervals  # in the data phase: waiting for the GPU, or copying pageable memory
    other_waits: Intervals  # in calls that wait for the GPU, outside the data phase
    data_stalls: Intervals  # long without a call: in the data phase, or waiting for a process
    other_work: Intervals  # known to make no batch: files are written, XLA compiles
    sleeps: Intervals  # long without a call: in a pause that the program asked for
    stalls: Intervals  # long without a call, or copying from pageable memory
    quiet: Intervals  # long without a call


def find_gaps(
    trace: Trace,
    owned: OwnedOperations,
    activity: Activity,
    bounds_ns: np.ndarray,
    charged: bool = True,
) -> Gaps | None:
    """The idle gaps with their causes, or None where the capture has no calls to tell them by.

    `bounds_ns` are the n + 1 boundaries of the n steps on the GPU's time line. With `charged`,
    waits own what later gaps owe to them; otherwise each gap counts as what the host did in it.
    """
    calls, operations, idle = trace.calls, owned.operations, activity.idle
    if calls is None:
        return None
    before, after = neighbours(operations, owned.steps.rows_of(operations), idle)
    launches = launches_around(trace.names, operations, calls, idle, before, after)
    host = host_activity(trace, calls, owned, activity)
    cause_ns = np.zeros((len(CAUSES), len(after)), np.int64)
    cause_ns[CAUSES.index("queue")] = idle.end_ns - idle.start_ns
    # only these gaps need splitting; the others, mostly many more, are `queue` as a whole
    rows = np.flatnonzero((launches.late_until_ns > idle.start_ns) | launches.to_host)
    batch = np.zeros(len(rows), bool)
    if not len(host.data.start_ns):
        mine = owned.steps.rows_of(operations)
        batch = beside_batch(trace.names, operations, mine, before[rows], after[rows])
        other_ns = host.other_work.ns_within(idle.start_ns[rows], idle.end_ns[rows])
        batch &= other_ns < SHORT_WRITE_NS
    run = copies(trace.names, operations, before[rows], FROM_HOST)
    run &= copies(trace.names, operations, after[rows], FROM_HOST)
    busy = activity.busy if charged else None
    cause_ns[:, rows] = split_causes(launches.rows(rows), batch, run, host, busy, bounds_ns)
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
    by_end = rows[np.argsort(operations.end_ns[rows], kind="stable")]
    last = np.searchsorted(operations.end_ns[by_end], idle.start_ns, side="right") - 1
    before = np.where(last >= 0, by_end[np.maximum(last, 0)], -1)
    first = np.searchsorted(operations.start_ns[rows], idle.end_ns, side="left")
    after = np.where(first < len(rows), rows[np.minimum(first, len(rows) - 1)], -1)
    return before, after


def copies(
    names: list[str], operations: Operations, rows: np.ndarray, direction: str
) -> NDArray[np.bool_]:
    """Mask of the `rows` that are copies in that direction; False where the row is -1."""
    return (rows >= 0) & name_mask(names, operations.name[rows], lambda name: direction in name)


def beside_batch(
    names: list[str],
    operations: Operations,
    rows: NDArray[np.intp],
    before: NDArray[np.intp],
    after: NDArray[np.intp],
) -> NDArray[np.bool_]:
    """(gaps,) mask: a batch is copied to the GPU just before it, or just after it and then no
    results were fetched before it.

    `rows` are those of the process on the GPU. A small copy counts with the copies right beside it:
    labels, say, with the images that they belong to.
    """
    fetched = copies(names, operations, before, TO_HOST) & (operations.bytes[before] >= BATCH_BYTES)
    brought = copies(names, operations, rows, FROM_HOST)
    run = np.cumsum(~brought)  # the same for copies without another operation between them
    run_bytes = np.bincount(run[brought], operations.bytes[rows][brought], len(rows) + 1)
    of_batch = np.zeros(len(operations.name) + 1, bool)  # the last for row -1
    of_batch[rows] = brought & (run_bytes[run] >= BATCH_BYTES)
    beside: NDArray[np.bool_] = of_batch[before] | (of_batch[after] & ~fetched)
    return beside


def host_activity(trace: Trace, calls: Calls, owned: OwnedOperations, activity: Activity) -> Host:
    names, begin, end = trace.names, activity.begin_ns, activity.end_ns
    steps, operations = owned.steps, owned.operations
    threads = set(distinct(owned.thread[owned.kernels_and_graphs]).tolist()) | {steps.thread}
    of_host = np.isin(calls.thread, [thread for thread in threads if thread is not None])
    of_host &= (calls.end_ns > begin) & (calls.start_ns < end) & (calls.end_ns > calls.start_ns)
    quiet = long_pauses(calls.start_ns[of_host], calls.end_ns[of_host], begin, end)

    pageable = np.flatnonzero((operations.kind == COPY) & operations.pageable)
    pageable = pageable[operations.call[pageable] >= 0]
    pageable = pageable[of_host[operations.call[pageable]]]
    to_host = copies(names, operations, pageable, TO_HOST)
    fetching, staging = operations.call[pageable[to_host]], operations.call[pageable[~to_host]]
    allocating = np.flatnonzero(of_host & name_mask(names, calls.name, ALLOCATING.fullmatch))
    waits = name_mask(names, calls.name, BLOCKING.fullmatch)
    if launches_block(operations, calls, owned.row):
        waits[owned.call[owned.kernels_and_graphs & (owned.call >= 0)]] = True
    waiting = np.flatnonzero(of_host & waits)

    def during(rows: np.ndarray) -> Intervals:
        return union(calls.start_ns[rows], calls.end_ns[rows]).clip(begin, end)

    waited = during(np.union1d(waiting, fetching)).union(
        fetches(trace, steps, operations, owned.row)
    )
    waited = waited.union(times_named(trace, steps, JAX_WAITS, trace.frames))
    by_xla = times_named(trace, steps, XLA_ALLOCATES, trace.frames).clip(begin, end)
    asks = by_xla.end_ns - by_xla.start_ns > LONG_NS  # shorter: XLA has the memory
    by_xla = Intervals(by_xla.start_ns[asks], by_xla.end_ns[asks])
    staged = during(staging)
    moved = staging_times(operations, calls, pageable, to_host)
    stalls = quiet.union(staged)

    data = data_ranges(trace, steps).clip(begin, end)
    foreign = times_named(trace, steps, FOREIGN_WAITS, trace.os_calls).intersection(
        quiet, begin, end
    )
    elsewhere = data.gaps(begin, end)
    other_work = times_named(trace, steps, WRITES, trace.os_calls)
    compiling = times_named(trace, steps, XLA_COMPILES, trace.ranges, trace.frames)
    other_work = other_work.union(compiling)
    return Host(
        data,
        staging=moved.intersection(elsewhere, begin, end),
        allocations=during(allocating).union(by_xla),
        data_waits=waited.union(staged).intersection(data, begin, end),
        other_waits=waited.intersection(elsewhere, begin, end),
        data_stalls=stalls.intersection(data, begin, end).union(foreign),
        other_work=other_work.clip(begin, end),
        sleeps=times_named(trace, steps, SLEEPS, trace.os_calls).intersection(quiet, begin, end),
        stalls=stalls,
        quiet=quiet,
    )


def staging_times(
    operations: Operations, calls: Calls, rows: np.ndarray, to_host: np.ndarray
) -> Intervals:
    """The times at which the host moved the bytes of the large copies among `rows`.

    The rows are copies from or to pageable memory. `to_host` is a mask of those to the host. Such a
    copy counts from its begin on the GPU: until then the host waits for the work before it.
    """
    call, large = operations.call[rows], operations.bytes[rows] > STAGED_BYTES
    begun_ns = np.where(to_host, operations.start_ns[rows], calls.start_ns[call])
    return union(begun_ns[large], calls.end_ns[call][large])


def long_pauses(start_ns: np.ndarray, end_ns: np.ndarray, begin: int, end: int) -> Intervals:
    """The parts of [begin, end) that are longer than LONG_NS without any of the calls.

    The calls are sorted, and none of them is empty.
    """
    ended = np.maximum.accumulate(np.concatenate(([begin], end_ns)))
    following = np.concatenate((start_ns, [end]))
    long = following - ended > LONG_NS
    return Intervals(ended[long], following[long])


def data_ranges(trace: Trace, steps: Steps) -> Intervals:
    """The times at which the steps' thread was in the data phase or in PyTorch's DataLoader."""
    phases = steps.phases.rows(steps.phase_mask(trace.names, DATA_PHASES))
    return union(phases.start_ns, phases.end_ns).union(loading_times(trace, steps))


def times_named(
    trace: Trace, steps: Steps, wanted: re.Pattern[str], *tables: Calls | Ranges | None
) -> Intervals:
    """The times at which the steps' thread was in an event of the tables that has such a name."""
    times = NOTHING
    for table in tables:
        if table is not None and len(table.start_ns):
            mask = table.thread == steps.thread
            mask &= name_mask(trace.names, table.name, wanted.fullmatch)
            times = times.union(union(table.start_ns[mask], table.end_ns[mask]))
    return times


def fetches(
    trace: Trace, steps: Steps, operations: Operations, rows: NDArray[np.intp]
) -> Intervals:
    """The waits of the steps' thread, outside of CUDA's calls, for copies to the host.

    `rows` are the operations of the process. A wait counts if such a copy lies in it.
    """
    waits = times_named(trace, steps, FETCHES, trace.os_calls, trace.frames)
    to_host = rows[copies(trace.names, operations, rows, TO_HOST)]
    starts, ends = np.sort(operations.start_ns[to_host]), np.sort(operations.end_ns[to_host])
    ended = np.searchsorted(ends, waits.end_ns, side="right")
    fetching = ended > np.searchsorted(starts, waits.start_ns)
    return Intervals(waits.start_ns[fetching], waits.end_ns[fetching])


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
