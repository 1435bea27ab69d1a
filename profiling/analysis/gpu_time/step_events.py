"""Collect the events of a capture's steps, for a timeline. Called by analysis.open_report.

The steps are those of the report, from one boundary to the next on the GPU's time line. All of them
are shown if they have at most MOST_EVENTS, else those around the median and the slowest, or those
that the reader asks for. Events keep the times that they were captured with: one that reaches over
a boundary is not cut. Other GPUs and processes of the file are shown within the same steps.
"""

from dataclasses import dataclass, field, replace
from itertools import compress

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import concatenate_columns, depths, distinct, name_mask
from profiling.analysis.gpu_time.attribution import OwnedOperations, open_innermost
from profiling.analysis.gpu_time.host_activity import BLOCKING
from profiling.analysis.gpu_time.launch_places import place_names
from profiling.analysis.gpu_work.families import FAMILIES
from profiling.analysis.steps.endless import fill_lost_ends
from profiling.analysis.steps.find import used_gpus
from profiling.timeline.trace import (
    ANY_THREAD,
    COPY,
    GRAPH,
    MEMSET,
    Calls,
    Operations,
    Ranges,
    Table,
)

MOST_EVENTS = 150_000  # 3 MB of a page
MOST_LEVELS = 10  # of nested ranges; what is deeper shares the last level
MOST_SAMPLES = 10_000  # of each counter; of more, neighbours are averaged
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
    line: np.ndarray  # FILE:LINE of the program; index in names
    blocks: np.ndarray  # in the grid
    threads: np.ndarray  # in a block
    registers: np.ndarray  # for each thread
    shared_bytes: np.ndarray  # for each block
    bytes: np.ndarray  # size of copies and memsets


@dataclass(frozen=True)
class CounterCurve:
    """A hardware counter of the GPU: means over intervals that follow each other."""

    name: str  # as nsys has it: "SMs Active [Throughput %]"
    start_ns: int  # of the first interval
    end_ns: np.ndarray  # of each interval
    value: np.ndarray  # float64


@dataclass(frozen=True)
class StepEvents:
    """The events of one process on one GPU in some steps."""

    bounds_ns: np.ndarray  # (steps + 1,)
    first_number: int  # iteration of the first step, or 0 where iterations have no number
    median: int  # index of the step nearest to the median
    slowest: int
    shown: np.ndarray  # (steps,) bool: the events of the step are here
    names: list[str]
    ranges: Slices  # lane: nesting level; the levels of further threads come after the first's
    range_threads: list[int]  # of each lane of `ranges`: the thread's number from 0, or ANY_THREAD
    projected: Slices  # each phase on the GPU, from its first operation to its last; lane: 0
    calls: Slices  # CUDA calls of the threads that launch; lane: thread
    waits: np.ndarray  # (calls,) bool: the call waits for the GPU
    operations: Slices  # lane: stream
    launched: LaunchFacts  # a row for each operation
    gaps: Slices  # lane: 0
    left_out: int  # shortest calls and operations dropped from a step with over MOST_EVENTS
    process: int | None
    device: int | None
    counters: list[CounterCurve]
    chosen: bool = False  # the reader has chosen the steps
    # (steps,) bool: the host had left the step before the GPU began it; of the report's process
    ahead: np.ndarray = field(default_factory=lambda: np.empty(0, bool))
    others: "list[StepEvents]" = field(default_factory=list)  # the file's other processes and GPUs

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


def step_events(analysis: Analysis, chosen: tuple[int, int] | None = None) -> StepEvents | None:
    """The events of the shown steps, or None where no GPU activity was captured.

    `chosen` are the numbers of the first and last step to show. Raises ValueError for steps that
    the capture does not hold, and for several with more than MOST_EVENTS.
    """
    if analysis.owned is None:
        if chosen:
            raise ValueError(
                f"--steps {chosen[0]}-{chosen[1]}: the page of {analysis.trace.file.name} has no "
                "timeline, because no GPU activity was captured; leave the flag out"
            )
        return None
    length = np.diff(analysis.bounds_ns)
    median = int(np.argmin(np.abs(length - np.median(length))))
    slowest = int(np.argmax(length))
    shown = shown_part(analysis, median, slowest, chosen)
    analyses = [analysis, *other_gpus(analysis)]
    rows = [operation_rows(each, shown) for each in analyses]
    made = []
    for each, (own_rows, few) in zip(analyses, rows, strict=True):
        of_process = [other.steps.process == each.steps.process for other in analyses]
        host = host_part(
            list(compress(analyses, of_process)),
            shown,
            concatenate_columns([own for own, _ in compress(rows, of_process)]),
        )
        made.append(events_of(each, shown, (median, slowest), host, own_rows, few))
    ahead = analysis.steps.end_ns <= analysis.bounds_ns[:-1]
    return replace(made[0], others=made[1:], chosen=chosen is not None, ahead=ahead)


def other_gpus(analysis: Analysis) -> list[Analysis]:
    """An analysis for each other GPU that a process of the capture used, in the file's order."""
    own, trace, last = analysis.steps, analysis.trace, analysis.last_iteration
    return [
        Analysis(trace, process=process, device=device, keep_first=True, last_iteration=last)
        for process, device, took_ns in used_gpus(trace)
        if took_ns and (process, device) != (own.process, own.device)
    ]


def events_of(
    analysis: Analysis,
    shown: "ShownPart",
    marked: tuple[int, int],
    host: "HostPart",
    rows: np.ndarray,
    left_out: int,
) -> StepEvents:
    """The events of the analysis' process on its GPU in the shown steps.

    `marked` are the median and the slowest step, `rows` the operations in Trace.operations.
    """
    owned, steps, names = analysis.owned, analysis.steps, analysis.trace.names
    assert owned is not None  # or no GPU would be shown
    calls = (analysis.trace.calls or Calls.empty()).rows(host.call_rows)
    ran = owned.operations.rows(rows)
    return StepEvents(
        shown.bounds_ns,
        steps.first_iteration or 0,
        *marked,
        shown.steps,
        names,
        *stacked_ranges(analysis, shown, host.threads),
        projections(owned, shown),
        Slices(calls.start_ns, calls.end_ns, calls.name, calls.thread),
        name_mask(names, calls.name, BLOCKING.fullmatch),
        Slices(ran.start_ns, ran.end_ns, ran.name, ran.stream),
        launch_facts(analysis, owned, rows, host.call_rows),
        gaps_in(analysis, shown),
        left_out + host.left_out,
        steps.process,
        steps.device,
        counters_in(analysis, shown),
    )


def shown_part(
    analysis: Analysis, median: int, slowest: int, chosen: tuple[int, int] | None
) -> ShownPart:
    counts = event_counts(analysis)
    steps = shown_steps(counts, median, slowest)
    if chosen:
        steps = chosen_steps(counts, analysis.steps.first_iteration or 0, *chosen)
    too_many = counts[steps].sum() > MOST_EVENTS  # so it is a single step
    most_rows = MOST_EVENTS // 3 if too_many else np.iinfo(np.int64).max
    return ShownPart(analysis.bounds_ns, steps, int(most_rows))


def event_counts(analysis: Analysis) -> np.ndarray:
    """(steps,): approximate number of events in each step."""
    trace = analysis.trace
    tables = [trace.ranges, trace.operations, trace.calls, analysis.gaps]
    counts = np.zeros(analysis.step_count, np.int64)
    for table in tables:
        if table is not None:
            counts += np.histogram(table.start_ns, analysis.bounds_ns)[0]
    return counts


def chosen_steps(counts: np.ndarray, first_number: int, first: int, last: int) -> np.ndarray:
    """(steps,) mask of the steps numbered `first` to `last`.

    Raises ValueError for steps that are not there, and for several with more than MOST_EVENTS.
    """
    end = first_number + len(counts) - 1
    if first < first_number or last > end:
        raise ValueError(
            f"--steps {first}-{last}: the capture contains steps {first_number} to {end}"
        )
    number = np.arange(first_number, end + 1)
    steps = (number >= first) & (number <= last)
    if (count := int(counts[steps].sum())) > MOST_EVENTS and first < last:
        fit = int(np.searchsorted(np.cumsum(counts[steps]), MOST_EVENTS, side="right"))
        raise ValueError(
            f"--steps {first}-{last}: these steps have {count:,} events, but a page holds at most "
            f"{MOST_EVENTS:,}; choose fewer, such as {first}-{first + max(fit, 1) - 1}"
        )
    return steps


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


def stacked_ranges(
    analysis: Analysis, shown: ShownPart, threads: list[int]
) -> tuple[Slices, list[int]]:
    """(the ranges of the threads by nesting level, number of each level's thread).

    Phases that were recognised from operators stand in for the ranges of a program that has none.
    """
    steps = analysis.steps
    trace, endless = fill_lost_ends(analysis.trace)
    ranges = (trace.ranges or Ranges.empty()).rows(~endless)
    ranges = ranges.rows(ranges.process == steps.process)
    stacks, lane_threads = [], list[int]()
    if steps.phases_from == "operators":
        found = steps.ranges.rows(steps.ranges.depth == 0)
        stacks.append(Slices(found.start_ns, found.end_ns, found.name, found.depth))
        lane_threads.append(0)
    numbered = [*enumerate(threads), (ANY_THREAD, ANY_THREAD)]
    for number, thread in numbered:
        own = ranges.rows(ranges.thread == thread)
        own = own.rows(np.lexsort((-own.end_ns, own.start_ns)))
        level = np.minimum(depths(own.start_ns, own.end_ns), MOST_LEVELS - 1)
        stacks.append(Slices(own.start_ns, own.end_ns, own.name, level + len(lane_threads)))
        lane_threads += [number] * int(level.max(initial=-1) + 1)
    slices = Slices.joined(stacks)
    slices = slices.rows(np.argsort(slices.start_ns, kind="stable"))
    return slices.rows(shown.touches(slices.start_ns, slices.end_ns)), lane_threads


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


def operation_rows(analysis: Analysis, shown: ShownPart) -> tuple[np.ndarray, int]:
    """(rows in Trace.operations of the device's operations to show, number left out)."""
    operations = analysis.trace.operations or Operations.empty()
    rows = analysis.steps.rows_of(operations)
    rows = rows[shown.touches(operations.start_ns[rows], operations.end_ns[rows])]
    return longest_rows(rows, operations.start_ns, operations.end_ns, shown.most_rows)


@dataclass(frozen=True)
class HostPart:
    """The part of a process on the host that is shown, the same for all of its GPUs."""

    threads: list[int]  # the one that opens the steps, if there is one, then others that launch
    call_rows: np.ndarray  # rows in Trace.calls
    left_out: int  # number of calls that are left out


def host_part(analyses: list[Analysis], shown: ShownPart, operations: np.ndarray) -> HostPart:
    """The threads and calls of a process, of which there is an analysis for each GPU.

    The calls are those of the threads in the shown steps, and those that launched the `operations`,
    because the host may be a step ahead.
    """
    steps, calls = analyses[0].steps, analyses[0].trace.calls
    launching = [distinct(a.owned.thread[a.owned.call >= 0]) for a in analyses if a.owned]
    of_steps = [] if steps.thread is None else [steps.thread]
    threads = list(dict.fromkeys([*of_steps, *concatenate_columns(launching).tolist()]))
    if calls is None:
        return HostPart(threads, np.empty(0, np.int64), 0)
    chosen = shown.touches(calls.start_ns, calls.end_ns)
    chosen &= (calls.process == steps.process) & np.isin(calls.thread, threads)
    in_steps = np.flatnonzero(chosen)
    rows, few = longest_rows(in_steps, calls.start_ns, calls.end_ns, shown.most_rows)
    ran = analyses[0].trace.operations or Operations.empty()
    call = ran.call[operations]
    return HostPart(threads, np.union1d(rows, call[call >= 0]), few)


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
        place_names(analysis, operations.name, call),
        operations.blocks,
        operations.threads,
        operations.registers,
        operations.shared_bytes,
        operations.bytes,
    )


def open_operators(operators: Ranges, time_ns: np.ndarray, thread: np.ndarray) -> np.ndarray:
    """Name index of the innermost operator that is open on the thread at each time, or -1."""
    row = open_innermost(operators, time_ns, thread)
    return np.where(row >= 0, operators.name[row], -1)


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


def counters_in(analysis: Analysis, shown: ShownPart) -> list[CounterCurve]:
    """The GPU's hardware counters in the shown steps; a counter needs two samples in them."""
    curves = []
    for counter in analysis.trace.counters or []:
        inside = np.flatnonzero(shown.touches(counter.time_ns - 1, counter.time_ns))
        value = counter.value[inside]
        if counter.device == analysis.steps.device and len(value) > 1:
            time_ns, mean = averaged(counter.time_ns[inside], value)
            first_ns = int(2 * time_ns[0] - time_ns[1])  # a sample covers the time before it
            curves.append(CounterCurve(counter.name, first_ns, time_ns, mean))
    return curves


def averaged(time_ns: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(times, values) of at most MOST_SAMPLES samples: each the mean of as many neighbours."""
    together = -(-len(value) // MOST_SAMPLES)
    starts = np.arange(0, len(value), together)
    count = np.diff(starts, append=len(value))
    return time_ns[starts + count - 1], np.add.reduceat(value, starts) / count
