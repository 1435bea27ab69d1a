"""Collect the events of a capture's steps, for a timeline. Called by analysis.open_report.

The steps are those of the report, from one boundary to the next on the GPU's time line. All of them
are shown if they have at most MOST_EVENTS, else those around the median and the slowest. Events
keep the times that they were captured with: one that reaches over a boundary is not cut.
"""

from dataclasses import dataclass

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import distinct, name_mask, parents
from profiling.analysis.gpu_time.attribution import OwnedOperations
from profiling.analysis.gpu_time.idle import BLOCKING
from profiling.analysis.gpu_work.families import FAMILIES
from profiling.analysis.steps.steps import Steps
from profiling.timeline.trace import ANY_THREAD, COPY, GRAPH, MEMSET, Calls, Ranges, Table

MOST_EVENTS = 150_000  # 3 MB of a page
FAMILY_OF_KIND = {COPY: "copy", MEMSET: "copy", GRAPH: "other"}  # a whole graph has no family


@dataclass(frozen=True)
class Slices(Table):
    """Events as columns, sorted by start."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    name: np.ndarray  # index in StepEvents.names; for gaps in CAUSES, -1: unknown cause
    lane: np.ndarray  # depth, thread or stream


@dataclass(frozen=True)
class LaunchFacts(Table):
    """Facts about each operation beyond its slice; -1: not captured."""

    call: np.ndarray  # row in StepEvents.calls
    family: np.ndarray  # index in FAMILIES
    phase: np.ndarray  # the phase that launched it; index in names
    operator: np.ndarray  # PyTorch's innermost operator open at the launch; index in names
    blocks: np.ndarray  # in the grid
    threads: np.ndarray  # in a block
    registers: np.ndarray  # for each thread
    shared_bytes: np.ndarray  # for each block
    bytes: np.ndarray  # size of copies and memsets


@dataclass(frozen=True)
class StepEvents:
    bounds_ns: np.ndarray  # (steps + 1,)
    first_number: int  # iteration of the first step, or 0 where iterations have no number
    median: int  # index of the step nearest to the median
    slowest: int
    shown: np.ndarray  # (steps,) bool: the events of the step are here
    names: list[str]
    ranges: Slices  # lane: depth
    projected: Slices  # each phase on the GPU, from its first operation to its last; lane: 0
    calls: Slices  # CUDA calls of the threads that launch; lane: thread
    waits: np.ndarray  # (calls,) bool: the call waits for the GPU
    operations: Slices  # lane: stream
    launched: LaunchFacts  # a row for each operation
    gaps: Slices  # lane: 0
    left_out: int  # shortest calls and operations dropped from a step with over MOST_EVENTS

    def step_ms(self, index: int) -> float:
        return float(self.bounds_ns[index + 1] - self.bounds_ns[index]) / 1e6


@dataclass(frozen=True)
class ShownPart:
    """The part of the window that is shown."""

    bounds_ns: np.ndarray
    steps: np.ndarray  # (steps,) bool: the step is shown
    most_rows: int  # limit for calls, and for operations; a single step may have more

    def touches(self, start_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
        """Mask of the intervals that overlap a shown step."""
        before = np.concatenate(([0], np.cumsum(self.steps)))
        first = np.searchsorted(self.bounds_ns, start_ns, side="right") - 1
        behind = np.searchsorted(self.bounds_ns, end_ns, side="left")
        last = len(self.steps)
        return before[np.clip(behind, 0, last)] > before[np.clip(first, 0, last)]


def step_events(analysis: Analysis) -> StepEvents | None:
    """The events of the shown steps, or None where no GPU activity was captured."""
    owned, bounds_ns = analysis.owned, analysis.bounds_ns
    if owned is None:
        return None
    length = np.diff(bounds_ns)
    median = int(np.argmin(np.abs(length - np.median(length))))
    slowest = int(np.argmax(length))
    shown = shown_part(analysis, median, slowest)
    rows, few = operation_rows(analysis, owned, shown)
    call_rows, fewer = calls_in(analysis, owned, shown, rows)
    calls = (analysis.trace.calls or Calls.empty()).rows(call_rows)
    ran = owned.operations.rows(rows)
    return StepEvents(
        bounds_ns,
        analysis.steps.first_iteration or 0,
        median,
        slowest,
        shown.steps,
        analysis.trace.names,
        ranges_in(analysis.steps, shown),
        projections(owned, shown),
        Slices(calls.start_ns, calls.end_ns, calls.name, calls.thread),
        name_mask(analysis.trace.names, calls.name, BLOCKING.fullmatch),
        Slices(ran.start_ns, ran.end_ns, ran.name, ran.stream),
        launch_facts(analysis, owned, rows, call_rows),
        gaps_in(analysis, shown),
        few + fewer,
    )


def shown_part(analysis: Analysis, median: int, slowest: int) -> ShownPart:
    counts = event_counts(analysis)
    steps = shown_steps(counts, median, slowest)
    too_many = counts[steps].sum() > MOST_EVENTS  # so it is a single step
    most_rows = MOST_EVENTS // 3 if too_many else np.iinfo(np.int64).max
    return ShownPart(analysis.bounds_ns, steps, int(most_rows))


def event_counts(analysis: Analysis) -> np.ndarray:
    """(steps,): approximate number of events in each step."""
    tables = [analysis.steps.ranges, analysis.trace.operations, analysis.trace.calls, analysis.gaps]
    counts = np.zeros(analysis.step_count, np.int64)
    for table in tables:
        if table is not None:
            counts += np.histogram(table.start_ns, analysis.bounds_ns)[0]
    return counts


def shown_steps(counts: np.ndarray, median: int, slowest: int) -> np.ndarray:
    """(steps,) mask of all steps, or of as many as there is room for.

    The median step goes first, then the slowest, then the steps next to them.
    """
    if counts.sum() <= MOST_EVENTS:
        return np.ones(len(counts), bool)
    chosen = np.zeros(len(counts), bool)
    chosen[median] = True
    room = MOST_EVENTS - int(counts[median])
    for distance in range(len(counts)):
        for middle in (slowest, median):
            for step in (middle - distance, middle + distance):
                if 0 <= step < len(counts) and not chosen[step]:
                    room -= int(counts[step])
                    if room < 0:
                        return chosen
                    chosen[step] = True
    return chosen


def ranges_in(steps: Steps, shown: ShownPart) -> Slices:
    ranges = steps.ranges
    chosen = shown.touches(ranges.start_ns, ranges.end_ns)
    chosen &= (ranges.thread == steps.thread) | (ranges.thread == ANY_THREAD)
    ranges = ranges.rows(chosen)
    return Slices(ranges.start_ns, ranges.end_ns, ranges.name, ranges.depth)


def projections(owned: OwnedOperations, shown: ShownPart) -> Slices:
    """The phases on the GPU, each from its first operation to its last.

    A host that runs ahead has already left the phase by then.
    """
    has = owned.phase >= 0
    phases, which = np.unique(owned.phase[has], return_inverse=True)
    start_ns = np.full(len(phases), np.iinfo(np.int64).max)
    end_ns = np.zeros(len(phases), np.int64)
    np.minimum.at(start_ns, which, owned.start_ns[has])
    np.maximum.at(end_ns, which, owned.end_ns[has])
    order = np.argsort(start_ns, kind="stable")
    order = order[shown.touches(start_ns[order], end_ns[order])]
    names = owned.steps.phases.name[phases]
    return Slices(start_ns[order], end_ns[order], names[order], np.zeros(len(order), np.int64))


def operation_rows(
    analysis: Analysis, owned: OwnedOperations, shown: ShownPart
) -> tuple[np.ndarray, int]:
    """(rows in Trace.operations of the device's operations to show, number left out)."""
    operations = owned.operations
    rows = analysis.steps.rows_of(operations)
    rows = rows[shown.touches(operations.start_ns[rows], operations.end_ns[rows])]
    return longest_rows(rows, operations.start_ns, operations.end_ns, shown.most_rows)


def calls_in(
    analysis: Analysis, owned: OwnedOperations, shown: ShownPart, operations: np.ndarray
) -> tuple[np.ndarray, int]:
    """(rows in Trace.calls of the threads that launch, number left out).

    The rows are of calls in the shown steps, and of calls that launched the `operations`, because
    the host may be a step ahead.
    """
    calls = analysis.trace.calls
    if calls is None:
        return np.empty(0, np.int64), 0
    threads = set(distinct(owned.thread[owned.call >= 0]).tolist()) | {analysis.steps.thread}
    chosen = shown.touches(calls.start_ns, calls.end_ns)
    chosen &= calls.process == analysis.steps.process
    chosen &= np.isin(calls.thread, [thread for thread in threads if thread is not None])
    in_steps = np.flatnonzero(chosen)
    rows, few = longest_rows(in_steps, calls.start_ns, calls.end_ns, shown.most_rows)
    launching = owned.operations.call[operations]
    return np.union1d(rows, launching[launching >= 0]), few


def launch_facts(
    analysis: Analysis, owned: OwnedOperations, rows: np.ndarray, call_rows: np.ndarray
) -> LaunchFacts:
    """Facts about the operations at `rows`; `call_rows` are the calls that are shown."""
    operations = owned.operations.rows(rows)
    call, phase = operations.call, analysis.owning_phase
    assert phase is not None  # as `owned`
    family = analysis.family[operations.name].astype(np.int64)
    for kind, name in FAMILY_OF_KIND.items():
        family[operations.kind == kind] = FAMILIES.index(name)
    operator, calls = np.full(len(rows), -1), analysis.trace.calls
    if calls is not None and analysis.trace.operators is not None:
        known = np.flatnonzero(call >= 0)
        times_ns, threads = calls.start_ns[call[known]], calls.thread[call[known]]
        operator[known] = open_operators(analysis.trace.operators, times_ns, threads)
    return LaunchFacts(
        np.where(call >= 0, np.searchsorted(call_rows, call), -1),
        family,
        phase[rows],
        operator,
        operations.blocks,
        operations.threads,
        operations.registers,
        operations.shared_bytes,
        operations.bytes,
    )


def open_operators(operators: Ranges, time_ns: np.ndarray, thread: np.ndarray) -> np.ndarray:
    """Name index of the innermost operator that is open on the thread at each time, or -1."""
    names = np.full(len(time_ns), -1)
    for number in distinct(np.sort(thread)).tolist():
        own = operators.rows(operators.thread == number)
        if not len(own.start_ns):
            continue
        around, rows = parents(own.start_ns, own.end_ns), np.flatnonzero(thread == number)
        row = np.searchsorted(own.start_ns, time_ns[rows], side="right") - 1
        while np.any(closed := (row >= 0) & (own.end_ns[row] < time_ns[rows])):
            row[closed] = around[row[closed]]
        names[rows[row >= 0]] = own.name[row[row >= 0]]
    return names


def gaps_in(analysis: Analysis, shown: ShownPart) -> Slices:
    """The idle gaps in the shown steps, each with its main cause."""
    gaps, activity = analysis.gaps, analysis.activity
    if gaps is not None:
        start_ns, end_ns, cause = gaps.start_ns, gaps.end_ns, np.argmax(gaps.cause_ns, axis=0)
    else:
        assert activity is not None  # or there were no steps on a GPU
        start_ns, end_ns = activity.idle.start_ns, activity.idle.end_ns
        cause = np.full(len(start_ns), -1)
    chosen = shown.touches(start_ns, end_ns)
    return Slices(start_ns, end_ns, cause, np.zeros(len(start_ns), np.int64)).rows(chosen)


def longest_rows(
    rows: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray, most: int
) -> tuple[np.ndarray, int]:
    """(the `most` longest rows, still in order, number left out)."""
    over = len(rows) - most
    if over <= 0:
        return rows, 0
    took = (end_ns - start_ns)[rows]
    return np.sort(rows[np.argsort(-took, kind="stable")[:most]]), over
