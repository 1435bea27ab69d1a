"""Finds where the steps of a memory history end, and what lines keep from one to the next."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profiling.analysis.memory.kinds import Phases
from profiling.analysis.memory.replay import Allocations
from profiling.analysis.memory.stacks import Phase
from profiling.timeline.memory_snapshot import Annotation, Events, Ints

NUMBERED = re.compile(r"(?:iteration|ProfilerStep#|step)[ #_]?\d+", re.IGNORECASE)
UPDATE = re.compile(r"Optimizer\.step#")
MOST_STEPS = 400  # the last ends, at which what lines keep is counted
LEAST_RISES = 3  # one after the other, after a first step that may differ


@dataclass(frozen=True)
class StepEnds:
    """The event with which each step ends."""

    events: Ints
    told_by: str | None


def step_ends(
    events: Events, annotations: Sequence[Annotation], device: int, phases: Phases
) -> StepEnds:
    """The ends of steps: by ranges that have a number, by the optimizer's ranges, by stacks."""
    if events.time_us is not None:
        for pattern, stage in ((NUMBERED, "END"), (NUMBERED, "START"), (UPDATE, "END")):
            found = [
                mark
                for mark in annotations
                if mark.stage == stage and pattern.match(mark.name) and mark.device == device
            ]
            if found:
                times = np.unique([mark.time_us for mark in found])
                ends = np.searchsorted(events.time_us, times) - 1
                return StepEnds(inside(ends, events), f"by the ranges {found[0].name}")
    updates = np.flatnonzero(phases.phase == Phase.OPTIMIZER)
    if not len(updates):
        return StepEnds(np.zeros(0, np.int64), None)
    following = np.append(phases.first, len(events.action))[updates + 1]
    return StepEnds(inside(following - 1, events), "by the stacks of the optimizer")


def inside(ends: Ints, events: Events) -> Ints:
    return np.unique(ends[(ends >= 0) & (ends < len(events.action))])


def bytes_kept(found: Allocations, line: Ints, ends: Ints, lines: int) -> Ints:
    """Live bytes (ends, lines) of each line at each step's end."""
    kept = np.zeros((len(ends), lines), np.int64)
    for row, end in enumerate(ends.tolist()):
        live = found.live_at(end)
        np.add.at(kept[row], line[live], found.size[live])
    return kept


def growing(kept: Ints) -> list[tuple[int, int, int]]:
    """(line, median bytes per step, steps) of lines that keep more with each of the last steps.

    The first step, which makes the optimizer's state, does not count.
    """
    rises = np.diff(kept[1:], axis=0)
    if len(rises) < LEAST_RISES:
        return []
    falls = rises[::-1] <= 0
    steps = np.where(falls.any(axis=0), falls.argmax(axis=0), len(rises))
    found = [
        (line, int(np.median(rises[len(rises) - n :, line])), n)
        for line, n in enumerate(steps.tolist())
        if n >= max(LEAST_RISES, len(rises) // 2)
    ]
    return sorted(found, key=lambda row: -row[1])
