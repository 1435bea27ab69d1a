"""Name what the host did while the GPU was idle. Called by summary.

Candidates are the names of PyTorch's operators, ranges (but for the steps themselves, and for an
optimizer's that calls a whole step), Python's functions and calls of the system's libraries, on the
thread that launched the operation after a gap and on the thread with the steps. A name covers the
part of the gaps in which one of its events was open. Of the names that cover most of a cause's gaps
the tightest is chosen: the one that is open in the gaps and little elsewhere. So an operator goes
before the forward pass that calls it. A name whose meaning is known (profiling.shared.host_work)
goes before one that covers little more.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import Intervals, distinct, name_mask, union, used_names
from profiling.analysis.gpu_time.idle import Gaps
from profiling.analysis.gpu_time.typical import are_typical
from profiling.analysis.records import Cover, CoverKind
from profiling.analysis.steps.find import KNOWN_STEPS
from profiling.analysis.steps.operators import BACKWARD, OPTIMIZER, rows_with_prefix
from profiling.shared.causes import CAUSES
from profiling.shared.host_work import work_named
from profiling.timeline.personal import without_folders
from profiling.timeline.trace import ANY_THREAD, Calls, Operations, Ranges

ALL_KINDS: frozenset[CoverKind] = frozenset(("os_call", "operator", "function", "range"))
FUNCTIONS: frozenset[CoverKind] = frozenset(("function",))
# causes whose gaps have a name; that of loading is of no range, since these told that it is loading
COVERED = dict.fromkeys(("cpu", "launch", "synchronization", "allocation"), ALL_KINDS) | {
    "data": FUNCTIONS
}
# files of Python and PyTorch in which the steps' thread waits for what a loader's workers make
HAND_OVER = re.compile(r"(torch/)?multiprocessing/|(queue|selectors|threading)\.py\(")
# functions of PyTorch that call others, and whose operators have names: modules, decorators, and an
# optimizer's step, which may call a closure with all of the program's
DISPATCH = re.compile(
    r"torch/(nn/modules/|utils/_contextlib\.py|optim/(optimizer\.py|\w+\.py\(\d+\): (.*\.)?step$))"
)
# of a range's iteration, and of operators that torch.autograd.profiler.emit_nvtx makes ranges
NUMBERS = re.compile(r"(, (seq|op_id|sizes) = .*|[\s#:]+\d+)$")
MOST = 0.5  # of a cause's gaps: a name that covers less does not explain them
TIGHT = 0.5  # overlap over the mean of both lengths: what is nearly always open explains nothing
ALIKE = 0.8  # of what another name covers
ALWAYS = 0.95  # of the time beside the gaps: a function that is open so long is all of the program
LEAST = 15  # samples in the gaps of a cause: of fewer, which function has most of them is chance
WORTH_NAMING = 0.02  # of the step; the gaps of a smaller cause are not searched


@dataclass(frozen=True)
class Found:
    """A name that covers most of the idle times of a cause."""

    overlap: float  # with them, over the mean of both lengths
    kind: CoverKind
    name: str
    covered_ns: int
    open_ns: int
    depth: float = 0.0  # mean place in the samples' stacks; 0 for others

    @property
    def is_place(self) -> bool:
        """Whether it says where in the program; built-in functions and operators do not."""
        return self.kind in ("range", "function") and not self.name.startswith("<")


def covers(analysis: Analysis) -> dict[str, Cover]:
    """The name that covers most of the gaps of each of COVERED, where there is one.

    Only the typical steps count. Of `synchronization` the waits count instead of the gaps, which
    only follow them.
    """
    gaps, owned = analysis.gaps, analysis.owned
    if gaps is None or owned is None:
        return {}
    typical = are_typical(np.diff(analysis.bounds_ns))
    steps, step_ns = int(typical.sum()), np.diff(analysis.bounds_ns)[typical].mean()
    in_typical = typical[step_of(analysis, gaps.start_ns)]
    found = {}
    for cause, kinds in COVERED.items():
        cause_ns = gaps.cause_ns[CAUSES.index(cause)]
        mine = in_typical & (2 * cause_ns >= gaps.end_ns - gaps.start_ns)
        if cause_ns[mine].sum() < WORTH_NAMING * step_ns * steps:
            continue
        if cause == "synchronization":
            waiting = typical[step_of(analysis, gaps.waits.start_ns)]
            waits = Intervals(gaps.waits.start_ns[waiting], gaps.waits.end_ns[waiting])
            idle = dict.fromkeys(distinct(owned.thread[owned.thread >= 0]).tolist(), waits)
        else:
            idle = idle_by_thread(analysis, gaps, owned.operations, mine, cause)
        cover = tightest(analysis, idle, steps, cause, kinds) if idle else None
        if cover and not (cause == "data" and HAND_OVER.match(cover.name)):
            found[cause] = cover
    return found


def step_of(analysis: Analysis, time_ns: np.ndarray) -> np.ndarray:
    """Index of the step in which each time lies."""
    return np.searchsorted(analysis.bounds_ns[1:-1], time_ns, side="right")


def idle_by_thread(
    analysis: Analysis, gaps: Gaps, operations: Operations, mine: np.ndarray, cause: str
) -> dict[int, Intervals]:
    """The gaps of the mask `mine` by the thread that launched the operation after each.

    Of gaps for the CPU's sake only the times without a CUDA call count.
    """
    calls = analysis.trace.calls or Calls.empty()
    call = np.where(gaps.after[mine] >= 0, operations.call[gaps.after[mine]], -1)
    central = -1 if analysis.steps.thread is None else analysis.steps.thread
    thread = np.where(call >= 0, calls.thread[call], central)
    found = {}
    for launching in np.unique(thread).tolist():
        on_it = np.flatnonzero(mine)[thread == launching]
        idle = Intervals(gaps.start_ns[on_it], gaps.end_ns[on_it])
        if cause == "cpu":
            idle = idle.intersection(gaps.quiet, analysis.begin_ns, analysis.end_ns)
        found[launching] = idle
    return found


def tightest(
    analysis: Analysis,
    idle: dict[int, Intervals],
    steps: int,
    cause: str,
    kinds: frozenset[CoverKind] = ALL_KINDS,
) -> Cover | None:
    """Choose what covers most of the idle times, and the range or function around it."""
    all_idle = union(
        np.concatenate([each.start_ns for each in idle.values()]),
        np.concatenate([each.end_ns for each in idle.values()]),
    )
    of_ns, found = all_idle.total_ns(), list[Found]()
    if not of_ns:
        return None
    window_ns = analysis.end_ns - analysis.begin_ns
    for kind, table in candidates(analysis, kinds):
        names, number = plain_names(analysis.trace.names, table.name)
        covered_ns, open_ns = overlaps(analysis, table, number, kind, idle, all_idle)
        depth = np.zeros(len(names))
        if table is analysis.trace.sampled:  # each sample has the outermost function
            all_samples, in_idle = int(open_ns.max()), int(covered_ns.max())
            if in_idle < LEAST:
                continue
            covered_ns = covered_ns * of_ns // in_idle
            open_ns = open_ns * window_ns // all_samples
            depth = mean_depth(analysis.trace.sampled, number, len(names))
        score = np.where(covered_ns > MOST * of_ns, 2 * covered_ns / (of_ns + open_ns), 0)
        for name in np.flatnonzero(score).tolist():
            if DISPATCH.match(names[name]):
                continue
            times_ns = int(covered_ns[name]), int(open_ns[name])
            found.append(
                Found(float(score[name]), kind, names[name], *times_ns, float(depth[name]))
            )
    every, found = found, without_the_program(found, of_ns, window_ns)
    found.sort(key=lambda each: -each.overlap)
    if not found or found[0].overlap < TIGHT:
        return None
    enough, tight = ALIKE * found[0].covered_ns, [each for each in found if each.overlap >= TIGHT]
    meant = [each for each in tight if work_named(each.name, cause) and each.covered_ns > enough]
    near = nearly_as_tight(found)
    best = meant[0] if meant else near[-1]
    if best.is_place:
        place = caller_of(best, every, of_ns, window_ns) if best is near[-1] else None
    else:
        others = [each for each in found if each is not best]
        place = next((each.name for each in others if each.is_place), None)
    ms, of_ms = best.covered_ns / 1e6 / steps, of_ns / 1e6 / steps
    return Cover(shown(best.name), best.kind, ms, of_ms, place and shown(place))


def caller_of(best: Found, every: list[Found], of_ns: int, window_ns: int) -> str | None:
    """The outermost function around `best` that is open about as long and not all of the program.

    Where the gaps are nearly all of the window, what is left tells too little: then the innermost.
    """
    rows = [each for each in every if each.kind == "function" and is_outside(each, best)]
    callers = [each for each in by_depth(rows) if each.is_place]
    parts = [each for each in callers if not is_program(each, of_ns, window_ns)]
    if not parts and of_ns >= ALIKE * window_ns:
        parts = callers[-1:]
    return parts[0].name if parts else None


def is_outside(found: Found, best: Found) -> bool:
    """Whether it lies outside of `best` in the stacks and is open about as long."""
    if found is best or found.overlap < ALIKE * best.overlap:
        return False
    return (found.depth, -found.open_ns) < (best.depth, -best.open_ns)


def by_depth(functions: list[Found]) -> list[Found]:
    return sorted(functions, key=lambda each: (each.depth, -each.open_ns))


def without_the_program(found: list[Found], of_ns: int, window_ns: int) -> list[Found]:
    """Leave out the functions that are all of the program, such as the one that trains.

    They stay where the gaps are nearly all of the window and no other function is tight.
    """
    rest = [each for each in found if not is_program(each, of_ns, window_ns)]
    tight = any(each.kind == "function" and each.overlap >= TIGHT for each in rest)
    return rest if tight or of_ns < ALIKE * window_ns else found


def is_program(found: Found, of_ns: int, window_ns: int) -> bool:
    """Whether a function is nearly always open beside the gaps, too."""
    elsewhere_ns = found.open_ns - found.covered_ns
    return found.kind == "function" and elsewhere_ns >= ALWAYS * (window_ns - of_ns)


def nearly_as_tight(found: list[Found]) -> list[Found]:
    """The first, or all functions that are nearly as tight as it, the innermost last.

    A function is open no longer than the one that calls it, but by samples it may seem so.
    """
    if found[0].kind != "function":
        return found[:1]
    near = [each for each in found if each.kind == "function"]
    near = [each for each in near if each.overlap >= ALIKE * found[0].overlap]
    return by_depth(near)


def mean_depth(samples: Ranges, number: np.ndarray, names: int) -> np.ndarray:
    """(names,) the mean place of each in the stacks of `samples`, the outermost's being 0.

    `number` is the place that each of Trace.names has in it.
    """
    begin = np.searchsorted(samples.start_ns, samples.start_ns, side="left")
    place = np.arange(len(begin)) - begin
    name = number[samples.name]
    sums = np.bincount(name, place, names)
    return np.asarray(sums / np.maximum(np.bincount(name, minlength=names), 1))


def plain_names(names: list[str], used: np.ndarray) -> tuple[list[str], np.ndarray]:
    """(the distinct used names without numbers behind them, (names,) the place of each in it)."""
    places: dict[str, int] = {}
    number = np.zeros(len(names), np.int64)
    for row in used_names(used):
        number[row] = places.setdefault(NUMBERS.sub("", names[row]), len(places))
    return list(places), number


def shown(name: str) -> str:
    """The name without the folders in it."""
    return without_folders(name) or name


def candidates(
    analysis: Analysis, kinds: frozenset[CoverKind]
) -> Iterator[tuple[CoverKind, Ranges | Calls]]:
    """The tables of `kinds` that may cover a gap, those with the innermost events first."""
    trace = analysis.trace
    ranges = without_closures(analysis, trace.ranges) if "range" in kinds else None
    tables: tuple[tuple[CoverKind, Ranges | Calls | None], ...] = (
        ("os_call", trace.os_calls),
        ("operator", trace.operators),
        ("function", trace.frames if trace.frames is not None else trace.sampled),
        ("range", ranges),
    )
    for kind, table in tables:
        if kind in kinds and table is not None and len(table.start_ns):
            yield kind, table


def without_closures(analysis: Analysis, ranges: Ranges | None) -> Ranges | None:
    """The ranges without those of an optimizer's step in which a backward pass runs.

    There the optimizer calls a closure, as Lightning's does, and that is all of the step.
    """
    trace = analysis.trace
    if ranges is None or trace.operators is None:
        return ranges
    is_step = name_mask(trace.names, ranges.name, lambda name: name.startswith(OPTIMIZER))
    if not is_step.any():
        return ranges
    rows = rows_with_prefix(trace, trace.operators, BACKWARD, analysis.steps.process)
    starts_ns = trace.operators.start_ns[rows]
    before, until = (np.searchsorted(starts_ns, at) for at in (ranges.start_ns, ranges.end_ns))
    return ranges.rows(~is_step | (before == until))


def overlaps(
    analysis: Analysis,
    table: Ranges | Calls,
    number: np.ndarray,
    kind: CoverKind,
    idle: dict[int, Intervals],
    all_idle: Intervals,
) -> tuple[np.ndarray, np.ndarray]:
    """(nanoseconds of the idle times that each name covers, nanoseconds that it was open).

    `number` is the place that each of Trace.names has in both. Events of one name inside each
    other count once.
    """
    names, steps = analysis.trace.names, analysis.steps
    covered_ns, open_ns = (np.zeros(int(number.max()) + 1, np.int64) for _ in range(2))
    inside = (table.end_ns > analysis.begin_ns) & (table.start_ns < analysis.end_ns)
    inside &= ~name_mask(names, table.name, step_pattern(steps.name).fullmatch)
    for thread in {*idle, *([] if steps.thread is None else [steps.thread])}:
        of_thread = table.thread == thread
        if thread == steps.thread:
            of_thread |= (table.thread == ANY_THREAD) & (table.process == steps.process)
        # a thread that waits for autograd's to launch does no work of its own
        times = all_idle if thread == steps.thread and kind != "os_call" else idle.get(thread)
        rows = table.rows(inside & of_thread)
        if times is None or not len(rows.name):
            continue
        rows = replace(rows, name=number[rows.name])
        start_ns, end_ns, name = once(rows, analysis.begin_ns, analysis.end_ns)
        np.add.at(covered_ns, name, times.ns_within(start_ns, end_ns))
        np.add.at(open_ns, name, end_ns - start_ns)
    return np.minimum(covered_ns, all_idle.total_ns()), open_ns


def step_pattern(name: str | None) -> re.Pattern[str]:
    """Pattern of the ranges that are steps: each covers everything, and so explains nothing."""
    own = [] if name is None else [rf"{re.escape(name)}([\s#_:]*\d+)?"]
    return re.compile("|".join([*own, *KNOWN_STEPS]))


def once(
    rows: Ranges | Calls, begin_ns: int, end_ns: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(start, end, name) of the rows in [begin_ns, end_ns), sorted by name.

    Each is without the times in which an earlier one of its name was open.
    """
    order = np.lexsort((rows.start_ns, rows.name))
    start = rows.start_ns[order].clip(begin_ns, end_ns)
    end = rows.end_ns[order].clip(begin_ns, end_ns)
    name = rows.name[order]
    # so far from each other that no name's end reaches the next name's begin
    shift = np.cumsum(np.diff(name, prepend=name[:1]) != 0) * (end_ns - begin_ns + 1)
    reached = np.maximum.accumulate(end + shift)
    start[1:] = np.maximum(start[1:], (reached[:-1] - shift[1:]).clip(begin_ns))
    return start, np.maximum(start, end), name
