"""Why the GPU had nothing to do: each gap split by what the host did. Called by analysis.

For a gap that ends with operation N, launched by a call that returned at L:

- L before the gap began, or N comes out of the same call as the operation before it: the work was
  queued. `queue`: dependencies and the GPU's own latency.
- Otherwise the host was late, and the gap is split, in this order, by what the thread with the
  steps and the threads that launch kernels did up to L:
  1. inside a call that waits for the GPU: `synchronization`; in the data phase `data`;
  2. over 200 us without any CUDA call, or inside a copy from pageable memory: `data` in the data
     phase, else `cpu` (Python);
  3. the rest: as 1 if a wait had drained the queue right before; else `data` in the data phase;
     else `launch`: CUDA API, the framework's dispatch, and behind L the latency of a launch that
     nothing hid.
- Of either kind, what is before a copy to the host that is then waited for (`.item()`) is as 1.

For as long as a wait held up the host while the GPU was busy, the host would have been ahead
without it. So each wait is owed its length, and the parts 2 and 3 of the gaps behind it pay,
`launch` first: a `.item()` in a step whose GPU is slower than its host owns the whole gap behind
it, and a slow loader is not blamed on a wait that was short.

A copy from the GPU to pageable memory waits as a synchronising call does, and so does one to the
GPU in the data phase. All sums are integers: the causes of a gap add up to it to the nanosecond.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from profiling.analysis.columns import Intervals, called, distinct, union
from profiling.analysis.gpu_time.attribution import Owned
from profiling.analysis.gpu_time.breakdown import Activity
from profiling.analysis.gpu_time.waits import charge, find_awaited, find_drained
from profiling.causes import CAUSES
from profiling.timeline.trace import COPY, Calls, Operations, Trace

LONG_NS = 200_000  # without a CUDA call; a launch and its dispatch take 5 to 50 us
BLOCKING = re.compile(
    r"(cuda(Stream|Device|Event|Thread)Synchronize|cu(Stream|Ctx|Event)Synchronize|cudaFree|"
    r"cuMemFree|cudaMemcpy|cudaMemcpy2D|cuMemcpy(DtoH|HtoD|DtoD)?)(_ptsz|_ptds)?(_v\d+)?"
)
TO_HOST = "Device-to-Host"  # in the name of a copy
DATA_PHASES = ("data", "dataloader", "data_loading", "get_batch", "load", "batch")
# what a late host did, as in Host, and the rest: the cause that it is, unless a wait is charged
LATE = {
    "data_stalls": "data",
    "stalls": "cpu",
    "data": "data",
    "launching": "launch",
}
NOTHING = union(np.empty(0), np.empty(0))


@dataclass(frozen=True)
class Gaps:
    """The device's idle intervals in the steps. `cause_ns` is (gaps, CAUSES) and sums to them."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    before: np.ndarray  # row in Trace.operations; -1: none
    after: np.ndarray
    cause_ns: np.ndarray


@dataclass(frozen=True)
class GapLaunches:
    """How the operations around each gap were launched."""

    before_ns: np.ndarray  # begin of the call for the one before; of the gap where it is unknown
    returned_ns: np.ndarray  # end of the call for the one behind; of the gap where it is unknown
    same_call: np.ndarray  # bool: one call launched both
    to_host: np.ndarray  # bool: a known call launched the one behind, which copies to the host


@dataclass(frozen=True)
class Host:
    """What the threads that drive the device did, as sets of intervals in the steps."""

    data: Intervals  # in the data phase
    data_waits: Intervals  # in calls that wait for the GPU or copy from pageable memory there
    other_waits: Intervals  # in calls that wait for the GPU, elsewhere
    data_stalls: Intervals  # long without a call in the data phase
    stalls: Intervals  # long without a call, or copying from pageable memory


def find_gaps(trace: Trace, owned: Owned, activity: Activity) -> Gaps | None:
    """None where the capture has no calls: then nothing tells a cause."""
    calls, operations, idle = trace.calls, owned.operations, activity.idle
    if calls is None:
        return None
    before, after = neighbours(operations, owned.steps.rows_of(operations), idle)
    call_before = np.where(before >= 0, operations.call[before], -1)
    call = np.where(after >= 0, operations.call[after], -1)
    launches = GapLaunches(
        before_ns=np.where(call_before >= 0, calls.start_ns[call_before], idle.start_ns),
        returned_ns=np.where(call >= 0, calls.end_ns[call], idle.end_ns),
        same_call=(call >= 0) & (call_before == call),
        to_host=(call >= 0) & is_to_host(trace.names, operations, after),
    )
    host = host_activity(trace.names, calls, owned, activity)
    cause_ns = split_causes(idle, launches, host, activity.busy)
    return Gaps(idle.start_ns, idle.end_ns, before, after, cause_ns)


def neighbours(
    operations: Operations, rows: np.ndarray, idle: Intervals
) -> tuple[np.ndarray, np.ndarray]:
    """Which of the rows ends the busy time before each gap, and which follows it; -1: none."""
    by_end = rows[np.argsort(operations.end_ns[rows], kind="stable")]
    last = np.searchsorted(operations.end_ns[by_end], idle.start_ns, side="right") - 1
    before = np.where(last >= 0, by_end[np.maximum(last, 0)], -1)
    first = np.searchsorted(operations.start_ns[rows], idle.end_ns, side="left")
    after = np.where(first < len(rows), rows[np.minimum(first, len(rows) - 1)], -1)
    return before, after


def is_to_host(names: list[str], operations: Operations, rows: np.ndarray) -> np.ndarray:
    return called(names, operations.name[rows], lambda name: TO_HOST in name)


def host_activity(names: list[str], calls: Calls, owned: Owned, activity: Activity) -> Host:
    begin, end = activity.begin_ns, activity.end_ns
    steps, operations = owned.steps, owned.operations
    threads = set(distinct(owned.thread[owned.kernels_and_graphs]).tolist()) | {steps.thread}
    of_host = np.isin(calls.thread, [thread for thread in threads if thread is not None])
    of_host &= (calls.end_ns > begin) & (calls.start_ns < end)
    rows = np.flatnonzero(of_host)

    quiet = union(calls.start_ns[rows], calls.end_ns[rows]).gaps(begin, end)
    long = quiet.end_ns - quiet.start_ns > LONG_NS
    quiet = Intervals(quiet.start_ns[long], quiet.end_ns[long])

    copies = np.flatnonzero((operations.kind == COPY) & operations.pageable)
    copies = copies[operations.call[copies] >= 0]
    copies = copies[of_host[operations.call[copies]]]
    to_host = is_to_host(names, operations, copies)
    fetching, staging = operations.call[copies[to_host]], operations.call[copies[~to_host]]
    waiting = rows[called(names, calls.name[rows], BLOCKING.fullmatch)]

    def during(rows: np.ndarray) -> Intervals:
        return union(calls.start_ns[rows], calls.end_ns[rows]).clipped(begin, end)

    waits, staged = during(np.union1d(waiting, fetching)), during(staging)
    stalls = quiet.joined(staged)

    phases = steps.phases.rows(steps.phases_called(names, DATA_PHASES))
    data = union(phases.start_ns, phases.end_ns).clipped(begin, end)
    return Host(
        data,
        data_waits=waits.joined(staged).common(data, begin, end),
        other_waits=waits.common(data.gaps(begin, end), begin, end),
        data_stalls=stalls.common(data, begin, end),
        stalls=stalls,
    )


def split_causes(idle: Intervals, launches: GapLaunches, host: Host, busy: Intervals) -> np.ndarray:
    """(gaps, CAUSES) in nanoseconds; each row adds up to its gap."""
    start, end = idle.start_ns, idle.end_ns
    returned = np.clip(launches.returned_ns, start, end)
    late_until = np.where(launches.same_call, start, returned)  # the host; else the gap is queued
    queued = np.where(late_until > start, 0, end - start)

    did = (getattr(host, what) for what in LATE if what != "launching")
    sets = (host.data_waits, host.other_waits, *did)
    in_data_waits, in_other_waits, *parts = exclusive_ns(sets, start, late_until)
    parts.append(end - start - queued - in_data_waits - in_other_waits - sum(parts))
    late = dict(zip(LATE, parts, strict=True))
    cause_ns = {cause: np.zeros(len(start), np.int64) for cause in CAUSES}
    for waits, inside, cause in (
        (host.data_waits, in_data_waits, "data"),
        (host.other_waits, in_other_waits, "synchronization"),
    ):
        charged = cause_ns[cause]
        charged += inside
        fetched = launches.to_host & find_awaited(waits, launches.returned_ns)
        move(queued, charged, np.where(fetched, queued, 0))
        drained = fetched | find_drained(waits, start, late_until, launches.before_ns)
        for what in ("data", "launching"):
            move(late[what], charged, np.where(drained, late[what], 0))
        debt = charge(waits, busy, start, np.sum(list(late.values()), axis=0))
        for part in reversed(late.values()):
            paid = np.minimum(part, debt)
            move(part, charged, paid)
            debt -= paid
    for what, cause in LATE.items():
        cause_ns[cause] += late[what]
    cause_ns["queue"] += queued
    return np.stack(list(cause_ns.values()), axis=1)


def exclusive_ns(
    sets: Iterable[Intervals], start_ns: np.ndarray, end_ns: np.ndarray
) -> list[np.ndarray]:
    """Of each [start, end) how much is in each of the sets and in none before it."""
    held, measured = NOTHING, np.zeros(len(start_ns), np.int64)
    found = []
    for each in sets:
        held = held.joined(each)
        reached = held.within(start_ns, end_ns)
        found.append(reached - measured)
        measured = reached
    return found


def move(source_ns: np.ndarray, target_ns: np.ndarray, ns: np.ndarray) -> None:
    source_ns -= ns
    target_ns += ns
