"""One step of a capture event by event: the one whose time is the median.

Called by profiling.analysis.capture. The step is one of the report's, from one boundary to the
next, so that its busy and idle time are those of the breakdown. What began before it or ends behind
it is cut at the boundary.
"""

from dataclasses import dataclass

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import called
from profiling.analysis.gpu_time.attribution import Owned, owning_phases
from profiling.analysis.gpu_time.idle import BLOCKING
from profiling.analysis.kernels.families import FAMILIES
from profiling.analysis.steps.steps import Steps
from profiling.causes import CAUSES
from profiling.timeline.trace import ANY_THREAD, COPY, GRAPH, MEMSET, Calls, Table

MOST_ROWS = 4000  # of calls, and of operations: more than a page should draw
KINDS = {COPY: "copy", MEMSET: "copy", GRAPH: "other"}  # a graph as a whole has no family


@dataclass(frozen=True)
class Slices(Table):
    """Events as columns, sorted by start."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    name: np.ndarray  # index in MedianStep.names
    lane: np.ndarray  # depth, thread or stream


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


@dataclass(frozen=True)
class Period:
    begin_ns: int
    end_ns: int

    def touched_by(self, start_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
        """Which of these intervals it has something of."""
        return (start_ns < self.end_ns) & (end_ns > self.begin_ns)

    def cut(
        self, start_ns: np.ndarray, end_ns: np.ndarray, name: np.ndarray, lane: np.ndarray
    ) -> Slices:
        """What it has of them."""
        start_ns, end_ns = np.maximum(start_ns, self.begin_ns), np.minimum(end_ns, self.end_ns)
        return Slices(start_ns, end_ns, name, lane)


def median_step(analysis: Analysis) -> MedianStep | None:
    """None where no GPU activity was captured."""
    owned, bounds_ns = analysis.owned, analysis.bounds_ns
    if owned is None:
        return None
    length = np.diff(bounds_ns)
    index = int(np.argmin(np.abs(length - np.median(length))))
    period = Period(int(bounds_ns[index]), int(bounds_ns[index + 1]))
    operations, families, owners, few = operations_in(analysis, owned, period)
    calls, waits, fewer = calls_in(analysis, period)
    gaps, causes = gaps_in(analysis, period)
    return MedianStep(
        index + (analysis.steps.first_iteration or 0),
        period.begin_ns,
        period.end_ns,
        analysis.trace.names,
        ranges_in(analysis.steps, period),
        projections(owned, period),
        calls,
        waits,
        operations,
        families,
        owners,
        gaps,
        causes,
        few + fewer,
    )


def ranges_in(steps: Steps, period: Period) -> Slices:
    ranges = steps.ranges
    chosen = period.touched_by(ranges.start_ns, ranges.end_ns)
    chosen &= (ranges.thread == steps.thread) | (ranges.thread == ANY_THREAD)
    ranges = ranges.rows(chosen)
    return period.cut(ranges.start_ns, ranges.end_ns, ranges.name, ranges.depth)


def projections(owned: Owned, period: Period) -> Slices:
    """Each phase from its first operation on the GPU to its last.

    A host that runs ahead has left the phase by then.
    """
    chosen = period.touched_by(owned.start_ns, owned.end_ns) & (owned.phase >= 0)
    phases, which = np.unique(owned.phase[chosen], return_inverse=True)
    start_ns = np.full(len(phases), period.end_ns)
    end_ns = np.full(len(phases), period.begin_ns)
    np.minimum.at(start_ns, which, owned.start_ns[chosen])
    np.maximum.at(end_ns, which, owned.end_ns[chosen])
    names = owned.steps.phases.name[phases]
    return period.cut(start_ns, end_ns, names, np.zeros(len(phases), np.int64))


def calls_in(analysis: Analysis, period: Period) -> tuple[Slices, np.ndarray, int]:
    """(the process's calls, which of them wait for the GPU, how many were left out)."""
    calls = analysis.trace.calls or Calls.empty()
    chosen = period.touched_by(calls.start_ns, calls.end_ns)
    chosen &= calls.process == analysis.steps.process
    rows, few = longest(np.flatnonzero(chosen), calls.start_ns, calls.end_ns)
    calls = calls.rows(rows)
    waits = called(analysis.trace.names, calls.name, BLOCKING.fullmatch)
    return period.cut(calls.start_ns, calls.end_ns, calls.name, calls.thread), waits, few


def operations_in(
    analysis: Analysis, owned: Owned, period: Period
) -> tuple[Slices, list[str], list[str | None], int]:
    """(what ran on the device, families, owning phases, how many were left out)."""
    operations, names = owned.operations, analysis.trace.names
    rows = owned.steps.rows_of(operations)
    rows = rows[period.touched_by(operations.start_ns[rows], operations.end_ns[rows])]
    rows, few = longest(rows, operations.start_ns, operations.end_ns)
    ran = operations.rows(rows)
    kinds, family = ran.kind.tolist(), analysis.family[ran.name].tolist()
    families = [KINDS.get(kind, FAMILIES[of]) for kind, of in zip(kinds, family, strict=True)]
    phases = owning_phases(owned)[rows].tolist()
    owners = [names[phase] if phase >= 0 else None for phase in phases]
    return period.cut(ran.start_ns, ran.end_ns, ran.name, ran.stream), families, owners, few


def gaps_in(analysis: Analysis, period: Period) -> tuple[Slices, list[str]]:
    """The idle gaps and the main cause of each; "idle" where nothing tells causes."""
    gaps, activity = analysis.gaps, analysis.activity
    if gaps is not None:
        chosen = period.touched_by(gaps.start_ns, gaps.end_ns)
        start_ns, end_ns = gaps.start_ns[chosen], gaps.end_ns[chosen]
        causes = [CAUSES[i] for i in np.argmax(gaps.cause_ns[:, chosen], axis=0).tolist()]
    else:
        assert activity is not None  # or there were no steps on a GPU
        free = activity.busy.gaps(period.begin_ns, period.end_ns)
        start_ns, end_ns = free.start_ns, free.end_ns
        causes = ["idle"] * len(start_ns)
    zeros = np.zeros(len(start_ns), np.int64)
    return period.cut(start_ns, end_ns, zeros, zeros), causes


def longest(rows: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray) -> tuple[np.ndarray, int]:
    """At most MOST_ROWS of the rows, still in order, and how many were left out."""
    over = len(rows) - MOST_ROWS
    if over <= 0:
        return rows, 0
    took = (end_ns - start_ns)[rows]
    return np.sort(rows[np.argsort(-took, kind="stable")[:MOST_ROWS]]), over
