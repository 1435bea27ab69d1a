"""One step of a capture event by event: the one whose time is the median.

Called by profiling.analysis.capture. The step is one of the report's, from one boundary to the
next, so that its busy and idle time are those of the breakdown. What began before it or ends behind
it is cut at the boundary.
"""

from dataclasses import dataclass, replace

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import called
from profiling.analysis.gpu_time.attribution import Owned, owning_phases
from profiling.analysis.gpu_time.idle import BLOCKING
from profiling.analysis.kernels.families import FAMILIES
from profiling.analysis.steps.steps import Steps
from profiling.causes import CAUSES
from profiling.timeline.trace import ANY_THREAD, COPY, GRAPH, MEMSET

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


def median_step(analysis: Analysis) -> MedianStep | None:
    """None where no GPU activity was captured."""
    owned, bounds_ns = analysis.owned, analysis.bounds_ns
    if owned is None:
        return None
    length = np.diff(bounds_ns)
    index = int(np.argmin(np.abs(length - np.median(length))))
    begin, end = int(bounds_ns[index]), int(bounds_ns[index + 1])
    operations, families, owners, few = operations_in(analysis, owned, begin, end)
    calls, waits, fewer = calls_in(analysis, begin, end)
    gaps, causes = gaps_in(analysis, begin, end)
    return MedianStep(
        index + (analysis.steps.first_iteration or 0),
        begin,
        end,
        analysis.trace.names,
        ranges_in(analysis.steps, begin, end),
        projections(owned, begin, end),
        calls,
        waits,
        operations,
        families,
        owners,
        gaps,
        causes,
        few + fewer,
    )


def ranges_in(steps: Steps, begin: int, end: int) -> Slices:
    ranges = steps.ranges
    chosen = (ranges.start_ns < end) & (ranges.end_ns > begin)
    chosen &= (ranges.thread == steps.thread) | (ranges.thread == ANY_THREAD)
    found = Slices(ranges.start_ns, ranges.end_ns, ranges.name, ranges.depth).rows(chosen)
    return cut(found, begin, end)


def projections(owned: Owned, begin: int, end: int) -> Slices:
    """Each phase from its first operation on the GPU to its last.

    A host that runs ahead has left the phase by then.
    """
    chosen = (owned.start_ns < end) & (owned.end_ns > begin) & (owned.phase >= 0)
    phases, which = np.unique(owned.phase[chosen], return_inverse=True)
    start_ns = np.full(len(phases), end)
    end_ns = np.full(len(phases), begin)
    np.minimum.at(start_ns, which, owned.start_ns[chosen])
    np.maximum.at(end_ns, which, owned.end_ns[chosen])
    names = owned.steps.phases.name[phases]
    return cut(Slices(start_ns, end_ns, names, np.zeros(len(phases), np.int64)), begin, end)


def calls_in(analysis: Analysis, begin: int, end: int) -> tuple[Slices, np.ndarray, int]:
    """(the process's calls, which of them wait for the GPU, how many were left out)."""
    calls, names = analysis.trace.calls, analysis.trace.names
    if calls is None:
        none = np.empty(0, np.int64)
        return Slices(none, none, none, none), np.empty(0, bool), 0
    chosen = calls.process == analysis.steps.process
    chosen &= (calls.start_ns < end) & (calls.end_ns > begin)
    rows, few = longest(np.flatnonzero(chosen), calls.start_ns, calls.end_ns)
    waits = called(names, calls.name[rows], BLOCKING.fullmatch)
    found = Slices(calls.start_ns, calls.end_ns, calls.name, calls.thread).rows(rows)
    return cut(found, begin, end), waits, few


def operations_in(
    analysis: Analysis, owned: Owned, begin: int, end: int
) -> tuple[Slices, list[str], list[str | None], int]:
    """(what ran on the device, families, owning phases, how many were left out)."""
    operations, names = owned.operations, analysis.trace.names
    rows = owned.steps.rows_of(operations)
    rows = rows[(operations.start_ns[rows] < end) & (operations.end_ns[rows] > begin)]
    rows, few = longest(rows, operations.start_ns, operations.end_ns)
    kinds, family = operations.kind[rows].tolist(), analysis.family[operations.name[rows]].tolist()
    families = [KINDS.get(kind, FAMILIES[of]) for kind, of in zip(kinds, family, strict=True)]
    phases = owning_phases(owned)[rows].tolist()
    owners = [names[phase] if phase >= 0 else None for phase in phases]
    slices = Slices(operations.start_ns, operations.end_ns, operations.name, operations.stream)
    return cut(slices.rows(rows), begin, end), families, owners, few


def gaps_in(analysis: Analysis, begin: int, end: int) -> tuple[Slices, list[str]]:
    """The idle gaps and the main cause of each; "idle" where nothing tells causes."""
    gaps, activity = analysis.gaps, analysis.activity
    if gaps is not None:
        chosen = (gaps.start_ns < end) & (gaps.end_ns > begin)
        start_ns, end_ns = gaps.start_ns[chosen], gaps.end_ns[chosen]
        causes = [CAUSES[i] for i in np.argmax(gaps.cause_ns[chosen], axis=1).tolist()]
    else:
        assert activity is not None  # or there were no steps on a GPU
        free = activity.busy.gaps(begin, end)
        start_ns, end_ns = free.start_ns, free.end_ns
        causes = ["idle"] * len(start_ns)
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
