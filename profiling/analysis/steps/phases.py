"""Find the ranges that are phases, and the ranges inside them. Called by find."""

import re
from collections.abc import Iterable

import numpy as np

from cli.errors import suggestion
from profiling.analysis.columns import depths, distinct, name_mask, used_names
from profiling.analysis.steps.steps import NO_RANGES, StepRanges, Steps
from profiling.timeline.trace import ANY_THREAD, Ranges, Trace

MOST_NAMED = 8  # ranges in a message
WRAPPERS = re.compile(r"micro_step \d+|iteration \d+|token \d+|ProfilerStep#\d+")  # around phases
# PyTorch's own ranges. A closure that Optimizer.step calls does forward and backward inside it
OF_OPTIMIZER = re.compile(r"Optimizer\.(step|zero_grad)#.*")
OPTIMIZER = "optimizer"  # the phase as the hook in a program of others names it


def phase_ranges(
    trace: Trace,
    steps: Steps,
    step_rows: np.ndarray,
    phases: list[str] | None,
    endless: np.ndarray,
) -> tuple[StepRanges, int]:
    """(phases and the ranges inside them, number of ranges that the capture cut off).

    `endless` is a mask of the ranges that lost their ends. They are left out, because nobody knows
    what lies in them. `step_rows` are the ranges that are steps. If all of them have one name and
    nothing is inside them, they are phases themselves: the program marks nothing but its phases.
    Raises ValueError where no range has a name in `phases`.
    """
    ranges = trace.ranges
    if ranges is None:
        return NO_RANGES, 0
    chosen = (ranges.process == steps.process) & (ranges.start_ns >= steps.start_ns[0])
    if phases:
        chosen &= np.isin(ranges.name, phase_names(trace, ranges, phases))
    elif len(step_rows):
        chosen &= ranges.domain == ranges.domain[step_rows[0]]
        chosen &= ~name_mask(trace.names, ranges.name, WRAPPERS.fullmatch)
        of_torch = chosen & name_mask(trace.names, ranges.name, OF_OPTIMIZER.fullmatch)
        named = chosen & name_mask(trace.names, ranges.name, OPTIMIZER.__eq__)
        if hold_any(ranges, np.flatnonzero(of_torch), np.flatnonzero(named)):
            chosen &= ~of_torch
        alike = chosen[step_rows].all() and len(used_names(ranges.name[step_rows])) == 1
        chosen[step_rows] = False
        chosen[step_rows] = alike and not in_steps(steps, ranges.start_ns[chosen])
    else:
        return NO_RANGES, 0
    chosen &= ~endless
    rows = np.flatnonzero(chosen)
    mine = ranges.rows(rows)
    depth, name = depth_of(steps, mine), mine.name.astype(np.int64)
    chosen_ranges = StepRanges(mine.start_ns, mine.end_ns, name, mine.thread, depth)
    cut_off = ~ranges.closed & ~endless
    return chosen_ranges, int(cut_off[np.union1d(rows, step_rows)].sum())


def hold_any(ranges: Ranges, outer: np.ndarray, inner: np.ndarray) -> bool:
    """Whether one of the rows `outer` holds one of the rows `inner`, on the same thread."""
    for thread in distinct(ranges.thread[inner]).tolist():
        around = outer[ranges.thread[outer] == thread]
        around = around[np.argsort(ranges.start_ns[around], kind="stable")]
        held = inner[ranges.thread[inner] == thread]
        before = np.searchsorted(ranges.start_ns[around], ranges.start_ns[held], side="right")
        open_until_ns = np.maximum.accumulate(ranges.end_ns[around])[before[before > 0] - 1]
        if np.any(ranges.end_ns[held[before > 0]] <= open_until_ns):
            return True
    return False


def in_steps(steps: Steps, time_ns: np.ndarray) -> bool:
    """Whether any of the times is inside a step."""
    step = np.searchsorted(steps.start_ns, time_ns, side="right") - 1
    return bool(np.any(time_ns[step >= 0] < steps.end_ns[step[step >= 0]]))


def depth_of(steps: Steps, ranges: Ranges) -> np.ndarray:
    """Depth of each range, 0 for phases.

    If the steps' thread has ranges, those of another thread are phases only if they have the name
    of one of its phases.
    """
    depth = np.zeros(len(ranges.name), np.int64)
    for thread in distinct(ranges.thread).tolist():
        rows = np.flatnonzero(ranges.thread == thread)
        depth[rows] = depths(ranges.start_ns[rows], ranges.end_ns[rows])
    elsewhere = ranges.thread != steps.thread
    if np.all(elsewhere):
        elsewhere &= ranges.thread != ANY_THREAD
    own_phases = ranges.name[~elsewhere & (depth == 0)]
    depth[elsewhere & ~np.isin(ranges.name, own_phases)] += 1
    return depth


def phase_names(trace: Trace, ranges: Ranges, phases: list[str]) -> list[int]:
    present = {trace.names[row]: row for row in used_names(ranges.name)}
    for phase in phases:
        if phase not in present:
            raise ValueError(unknown_range(f"phases={phase}", phase, present, present))
    return [present[phase] for phase in phases]


def unknown_range(key: str, name: str, present: Iterable[str], accepted: Iterable[str]) -> str:
    """Message on a name that no range has, with the nearest accepted one, or some present ones."""
    known = sorted(set(present))
    more = ", ..." if len(known) > MOST_NAMED else ""
    some = f"; there are {', '.join(known[:MOST_NAMED])}{more}" if known else ""
    return f"{key}: no range has this name{suggestion(name, accepted) or some}"
