"""One step of a capture event by event: the one whose time is the median.

Called by profiling.report. The step is that of the report's window, from one boundary to the next,
so that its busy and idle time are those of the breakdown. What began before it or ends behind it is
cut at the boundary.
"""

from dataclasses import dataclass, replace

import numpy as np

from profiling.analysis.gpu_time import idle
from profiling.analysis.gpu_time.attribution import Owned, attribute, boundaries
from profiling.analysis.kernels.families import FAMILIES, families_of
from profiling.analysis.kernels.sums import operations_of
from profiling.analysis.steps.find import Window, find_window
from profiling.analysis.summary import device_activity
from profiling.timeline.trace import ANY_THREAD, COPY, GRAPH, MEMSET, Trace

MOST_ROWS = 4000  # of calls, and of operations: more than a page should draw
KINDS = {COPY: "copy", MEMSET: "copy", GRAPH: "other"}  # a graph as a whole has no family


@dataclass(frozen=True)
class Slices:
    """Events as columns, sorted by start."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    name: np.ndarray  # index in MedianStep.names
    lane: np.ndarray  # depth, thread or stream

    def rows(self, chosen: np.ndarray) -> "Slices":
        columns = (self.start_ns, self.end_ns, self.name, self.lane)
        return Slices(*(column[chosen] for column in columns))


@dataclass(frozen=True)
class MedianStep:
    number: int  # of the iteration, or of the step in the window where iterations have no number
    start_ns: int
    end_ns: int
    names: list[str]
    ranges: Slices  # lane: depth
    projected: Slices  # the phases as the GPU had them, from first operation to last; lane: 0
    calls: Slices  # lane: thread
    waits: np.ndarray  # bool, of calls: it waits for the GPU
    operations: Slices  # lane: stream
    families: list[str]  # of operations; copies and memsets are "copy"
    owners: list[str | None]  # of operations: the phase that launched them
    gaps: Slices  # lane: 0
    causes: list[str]  # of gaps: what most of each is due to
    left_out: int  # calls and operations beyond MOST_ROWS, the shortest

    @property
    def step_ms(self) -> float:
        return (self.end_ns - self.start_ns) / 1e6


def median_step(
    trace: Trace,
    *,
    step: str | None = None,
    phases: list[str] | None = None,
    device: int | None = None,
) -> MedianStep | None:
    """None where no GPU activity was captured. The choices are those of summary.summarize."""
    window = find_window(trace, step, phases, device)
    owned = attribute(trace, window)
    if owned is None:
        return None
    bounds_ns = boundaries(window, owned)
    length = np.diff(bounds_ns)
    index = int(np.argmin(np.abs(length - np.median(length))))
    begin, end = int(bounds_ns[index]), int(bounds_ns[index + 1])
    operations, families, owners, few = operations_in(trace, window, owned, begin, end)
    calls, waits, fewer = calls_in(trace, window, begin, end)
    gaps, causes = gaps_in(trace, window, owned, bounds_ns, begin, end)
    return MedianStep(
        index + (window.first_iteration or 0),
        begin,
        end,
        trace.names,
        ranges_in(window, begin, end),
        projections(window, owned, begin, end),
        calls,
        waits,
        operations,
        families,
        owners,
        gaps,
        causes,
        few + fewer,
    )


def ranges_in(window: Window, begin: int, end: int) -> Slices:
    spans = window.spans
    chosen = (spans.start_ns < end) & (spans.end_ns > begin)
    chosen &= (spans.thread == window.thread) | (spans.thread == ANY_THREAD)
    found = Slices(spans.start_ns, spans.end_ns, spans.name, spans.depth).rows(chosen)
    return cut(found, begin, end)


def projections(window: Window, owned: Owned, begin: int, end: int) -> Slices:
    """Each phase from its first operation on the GPU to its last.

    A host that runs ahead has left the phase by then.
    """
    chosen = (owned.start_ns < end) & (owned.end_ns > begin) & (owned.phase >= 0)
    phases, which = np.unique(owned.phase[chosen], return_inverse=True)
    start_ns = np.full(len(phases), end)
    end_ns = np.full(len(phases), begin)
    np.minimum.at(start_ns, which, owned.start_ns[chosen])
    np.maximum.at(end_ns, which, owned.end_ns[chosen])
    names = window.phases().name[phases]
    return cut(Slices(start_ns, end_ns, names, np.zeros(len(phases), np.int64)), begin, end)


def calls_in(trace: Trace, window: Window, begin: int, end: int) -> tuple[Slices, np.ndarray, int]:
    """(the process's calls, which of them wait for the GPU, how many were left out)."""
    calls = trace.calls
    if calls is None:
        none = np.empty(0, np.int64)
        return Slices(none, none, none, none), np.empty(0, bool), 0
    chosen = (calls.process == window.process) & (calls.start_ns < end) & (calls.end_ns > begin)
    rows, few = longest(np.flatnonzero(chosen), calls.start_ns, calls.end_ns)
    names = [name for name in np.unique(calls.name[rows]) if waits_for_gpu(trace.names[name])]
    waits = np.isin(calls.name[rows], names)
    found = Slices(calls.start_ns, calls.end_ns, calls.name, calls.thread).rows(rows)
    return cut(found, begin, end), waits, few


def waits_for_gpu(name: str) -> bool:
    return idle.BLOCKING.fullmatch(name) is not None


def operations_in(
    trace: Trace, window: Window, owned: Owned, begin: int, end: int
) -> tuple[Slices, list[str], list[str | None], int]:
    """(what ran on the device, families, owning phases, how many were left out)."""
    operations = trace.operations
    rows = operations_of(operations, window.process, window.device)
    rows = rows[(operations.start_ns[rows] < end) & (operations.end_ns[rows] > begin)]
    rows, few = longest(rows, operations.start_ns, operations.end_ns)
    family = families_of(trace.names, operations.name[rows])
    families = [
        KINDS.get(kind, FAMILIES[of])
        for kind, of in zip(
            operations.kind[rows].tolist(), family[operations.name[rows]].tolist(), strict=True
        )
    ]
    phase = np.full(len(operations.start_ns), -1)
    phase[owned.row] = owned.phase
    phase_name = [trace.names[name] for name in window.phases().name]
    owners = [phase_name[of] if of >= 0 else None for of in phase[rows].tolist()]
    found = Slices(operations.start_ns, operations.end_ns, operations.name, operations.stream).rows(
        rows
    )
    return cut(found, begin, end), families, owners, few


def gaps_in(
    trace: Trace, window: Window, owned: Owned, bounds_ns: np.ndarray, begin: int, end: int
) -> tuple[Slices, list[str]]:
    """The idle gaps and the main cause of each; "idle" where nothing tells causes."""
    family = families_of(trace.names, trace.operations.name)
    busy = device_activity(trace, window, family).busy
    gaps = idle.find_gaps(trace, window, owned, busy, bounds_ns)
    if gaps is None:
        free = busy.gaps(begin, end)
        start_ns, end_ns = free.start_ns, free.end_ns
        causes = ["idle"] * len(start_ns)
    else:
        chosen = (gaps.start_ns < end) & (gaps.end_ns > begin)
        start_ns, end_ns = gaps.start_ns[chosen], gaps.end_ns[chosen]
        causes = [idle.CAUSES[i] for i in np.argmax(gaps.cause_ns[chosen], axis=1).tolist()]
    zeros = np.zeros(len(start_ns), np.int64)
    return cut(Slices(start_ns, end_ns, zeros, zeros), begin, end), causes


def longest(rows: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray) -> tuple[np.ndarray, int]:
    """At most MOST_ROWS of the rows, still in order, and how many were left out."""
    over = len(rows) - MOST_ROWS
    if over <= 0:
        return rows, 0
    took = (end_ns - start_ns)[rows]
    return np.sort(rows[np.argsort(-took, kind="stable")[:MOST_ROWS]]), over


def cut(slices: Slices, begin: int, end: int) -> Slices:
    return replace(
        slices,
        start_ns=np.maximum(slices.start_ns, begin),
        end_ns=np.minimum(slices.end_ns, end),
    )
