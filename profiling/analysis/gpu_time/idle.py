"""Why the GPU had nothing to do: each gap split by what the host did. Called by summary.

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
from dataclasses import dataclass
from typing import Any

import numpy as np

from profiling.analysis.columns import Intervals, called, distinct, union
from profiling.analysis.gpu_time.attribution import Owned
from profiling.analysis.gpu_time.waits import called_by, charge, drained_by, fetched_by, is_to_host
from profiling.analysis.steps.steps import Window
from profiling.timeline.trace import COPY, GRAPH, KERNEL, Trace

CAUSES = ("launch", "synchronization", "data", "cpu", "queue")
LAUNCH, SYNCHRONIZATION, DATA, CPU, QUEUE = range(5)
LONG_NS = 200_000  # without a CUDA call; a launch and its dispatch take 5 to 50 us
BLOCKING = re.compile(
    r"(cuda(Stream|Device|Event|Thread)Synchronize|cu(Stream|Ctx|Event)Synchronize|cudaFree|"
    r"cuMemFree|cudaMemcpy|cudaMemcpy2D|cuMemcpy(DtoH|HtoD|DtoD)?)(_ptsz|_ptds)?(_v\d+)?"
)
DATA_PHASES = ("data", "dataloader", "data_loading", "get_batch", "load", "batch")


@dataclass(frozen=True)
class Gaps:
    """The device's idle intervals in the window. `cause_ns` is (gaps, causes) and sums to them."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    before: np.ndarray  # row in Trace.operations; -1: none
    after: np.ndarray
    cause_ns: np.ndarray


@dataclass(frozen=True)
class Host:
    """What the threads that drive the device did, as sets of intervals in the window."""

    data: Intervals  # in the data phase
    data_waits: Intervals  # in calls that wait for the GPU or copy from pageable memory there
    other_waits: Intervals  # in calls that wait for the GPU, elsewhere
    data_stalls: Intervals  # long without a call in the data phase
    stalls: Intervals  # long without a call, or copying from pageable memory


def find_gaps(
    trace: Trace, window: Window, owned: Owned, busy: Intervals, bounds_ns: np.ndarray
) -> Gaps | None:
    """None where the capture has no calls: then nothing tells a cause."""
    if trace.calls is None:
        return None
    begin, end = int(bounds_ns[0]), int(bounds_ns[-1])
    idle = busy.gaps(begin, end)
    before, after = neighbours(trace, window, idle)
    host = host_activity(trace, window, owned, begin, end)
    cause_ns = split_causes(trace, idle, before, after, host, busy)
    return Gaps(idle.start_ns, idle.end_ns, before, after, cause_ns)


def neighbours(trace: Trace, window: Window, idle: Intervals) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the operations that end each gap's busy time before it, and that follow it."""
    operations = trace.operations
    mine = np.flatnonzero(
        (operations.process == window.process) & (operations.device == window.device)
    )
    by_end = mine[np.argsort(operations.end_ns[mine], kind="stable")]
    last = np.searchsorted(operations.end_ns[by_end], idle.start_ns, side="right") - 1
    before = np.where(last >= 0, by_end[np.maximum(last, 0)], -1)
    first = np.searchsorted(operations.start_ns[mine], idle.end_ns, side="left")
    after = np.where(first < len(mine), mine[np.minimum(first, len(mine) - 1)], -1)
    return before, after


def host_activity(trace: Trace, window: Window, owned: Owned, begin: int, end: int) -> Host:
    calls, operations = trace.calls, trace.operations
    launches = (owned.kind == KERNEL) | (owned.kind == GRAPH)
    threads = set(distinct(owned.thread[launches]).tolist()) | {window.thread}
    of_host = np.isin(calls.thread, [thread for thread in threads if thread is not None])
    of_host &= (calls.end_ns > begin) & (calls.start_ns < end)
    rows = np.flatnonzero(of_host)
    every = union(calls.start_ns[rows], calls.end_ns[rows])
    quiet = every.gaps(begin, end)
    long = quiet.end_ns - quiet.start_ns > LONG_NS
    quiet = Intervals(quiet.start_ns[long], quiet.end_ns[long])

    waiting = rows[called(trace.names, calls.name[rows], BLOCKING.fullmatch)]
    copies = np.flatnonzero((operations.kind == COPY) & operations.pageable)
    copies = copies[operations.call[copies] >= 0]
    is_host = np.zeros(len(calls.start_ns), bool)
    is_host[rows] = True
    copies = copies[is_host[operations.call[copies]]]
    to_host = is_to_host(trace, copies)
    fetching, staging = operations.call[copies[to_host]], operations.call[copies[~to_host]]

    phases, chosen = window.phases(), window.phases_called(trace, DATA_PHASES)
    data = union(phases.start_ns[chosen], phases.end_ns[chosen]).clipped(begin, end)
    blocking = np.union1d(waiting, fetching)
    waits = union(calls.start_ns[blocking], calls.end_ns[blocking]).clipped(begin, end)
    staged = union(calls.start_ns[staging], calls.end_ns[staging]).clipped(begin, end)
    stalls = quiet.joined(staged)
    not_data = data.gaps(begin, end)
    return Host(
        data,
        data_waits=waits.joined(staged).common(data, begin, end),
        other_waits=waits.common(not_data, begin, end),
        data_stalls=stalls.common(data, begin, end),
        stalls=stalls,
    )


def split_causes(
    trace: Trace,
    idle: Intervals,
    before: np.ndarray,
    after: np.ndarray,
    host: Host,
    busy: Intervals,
) -> np.ndarray:
    """(gaps, causes) in nanoseconds; each row adds up to its gap."""
    start, end = idle.start_ns, idle.end_ns
    causes = np.zeros((len(start), len(CAUSES)), np.int64)
    call = called_by(trace, after)
    same_call = (call >= 0) & (called_by(trace, before) == call)
    returned = np.where(call >= 0, trace.calls.end_ns[call], end)
    late_end = np.where(same_call, start, np.clip(returned, start, end))
    queued = np.where(late_end > start, 0, end - start)

    # layers, each adding what the ones before it do not hold
    layers = (host.data_waits, host.other_waits, host.data_stalls, host.stalls, host.data)
    held, parts, measured = host.data_waits, [], np.zeros(len(start), np.int64)
    for layer in layers:
        held = held.joined(layer)
        reached = held.within(start, late_end)
        parts.append(reached - measured)
        measured = reached
    parts.append(end - start - queued - measured)
    causes[:, DATA] += parts[0]
    causes[:, SYNCHRONIZATION] += parts[1]
    late = dict(zip(("data_stalls", "stalls", "data", "launch"), parts[2:], strict=True))
    for waits, cause in ((host.data_waits, DATA), (host.other_waits, SYNCHRONIZATION)):
        fetched = fetched_by(trace, waits, after)
        causes[:, cause] += np.where(fetched, queued, 0)
        queued = np.where(fetched, 0, queued)
        drained = fetched | drained_by(trace, waits, start, late_end, before)
        for name in ("data", "launch"):
            causes[:, cause] += np.where(drained, late[name], 0)
            late[name] = np.where(drained, 0, late[name])
        owed = charge(waits, busy, start, np.sum(list(late.values()), axis=0))
        causes[:, cause] += owed
        for name in ("launch", "data", "stalls", "data_stalls"):
            paid = np.minimum(late[name], owed)
            late[name], owed = late[name] - paid, owed - paid
    causes[:, DATA] += late["data_stalls"] + late["data"]
    causes[:, CPU] += late["stalls"]
    causes[:, LAUNCH] += late["launch"]
    causes[:, QUEUE] += queued
    return causes


def by_cause(gaps: Gaps, steps: int) -> dict[str, float]:
    """Milliseconds a step."""
    total = gaps.cause_ns.sum(axis=0)
    return {cause: int(ns) / 1e6 / steps for cause, ns in zip(CAUSES, total, strict=True)}


def by_phase(
    trace: Trace, window: Window, owned: Owned, gaps: Gaps, steps: int
) -> dict[str, dict[str, float]]:
    """Phase -> cause -> milliseconds a step, of the gaps before what the phase launched."""
    phases = window.phases()
    phase = phase_of(owned, gaps.after)
    name = np.where(phase >= 0, phases.name[phase], -1) if len(phases.name) else phase
    found = {}
    for row in sorted(set(name.tolist()) - {-1}):
        total = gaps.cause_ns[name == row].sum(axis=0).tolist()
        causes = zip(CAUSES, total, strict=True)
        found[trace.names[row]] = {cause: ns / 1e6 / steps for cause, ns in causes if ns}
    return found


def phase_of(owned: Owned, rows: np.ndarray) -> np.ndarray:
    """The row in window.phases() of each of these operations; -1: none."""
    if not len(owned.row):
        return np.full(len(rows), -1)
    at = np.minimum(np.searchsorted(owned.row, rows), len(owned.row) - 1)
    return np.where(owned.row[at] == rows, owned.phase[at], -1)


def longest(
    trace: Trace, window: Window, owned: Owned, gaps: Gaps, bounds_ns: np.ndarray, count: int = 10
) -> list[dict[str, Any]]:
    """The longest: when (from the window's begin), their main cause, what is around them."""
    length = gaps.end_ns - gaps.start_ns
    chosen = np.argpartition(-length, min(count, len(length) - 1))[:count] if len(length) else []
    chosen = sorted(chosen, key=lambda i: (-length[i], i))
    phases = window.phases()
    found = []
    for i in chosen:
        step = np.searchsorted(bounds_ns, gaps.start_ns[i], side="right") - 1
        phase = int(phase_of(owned, gaps.after[i : i + 1])[0])
        found.append(
            {
                "start_ms": int(gaps.start_ns[i] - bounds_ns[0]) / 1e6,
                "ms": int(length[i]) / 1e6,
                "step": int(min(step, len(bounds_ns) - 2)),
                "cause": CAUSES[int(np.argmax(gaps.cause_ns[i]))],
                "phase": trace.names[phases.name[phase]] if phase >= 0 else None,
                "before": operation_name(trace, int(gaps.before[i])),
                "after": operation_name(trace, int(gaps.after[i])),
            }
        )
    return found


def operation_name(trace: Trace, row: int) -> str | None:
    return trace.names[trace.operations.name[row]] if row >= 0 else None
