"""Traits of the phases of a run without a GPU, beside those of its operators. Called by cpu."""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import Intervals, union
from profiling.analysis.gpu_time.covers import FUNCTIONS
from profiling.analysis.gpu_time.host_activity import NOTHING
from profiling.analysis.records import Cover, Report
from profiling.analysis.verdict.cpu_operators import SMALL_US, WORTH
from profiling.analysis.verdict.cpu_pauses import between_phases, cover_of
from profiling.analysis.verdict.cpu_waits import OTHER, HostTimes, class_of_phase

MANY_PASSES = 8  # backwards a step
SMALL_IN_PASS_US = 2 * SMALL_US  # mean self time: dispatch takes half of what the operator takes
MANY_UNTRAINED = 3  # forwards a step: fewer may be of a teacher


@dataclass(frozen=True)
class Calls:
    """Passes of a kind that a step has many of."""

    count: float  # a step
    ms: float  # a step


@dataclass(frozen=True)
class Quiet:
    """Time in a phase that computes, but in which no operator runs."""

    phase: str
    ms: float  # a step
    times: Intervals


@dataclass(frozen=True)
class Between:
    """Operators that run in no phase."""

    ms: float  # a step
    place: tuple[str, str] | None  # the phases between which most of them lie

    @property
    def behind_the_passes(self) -> bool:
        """Whether they are no part of a model, such as an average of its weights.

        A model without modules has no phase, and lies before its backward.
        """
        if self.place is None:
            return False
        return self.place[0] in ("backward", "optimizer") and self.place[1] != "backward"


Habit = TypeVar("Habit", Calls, Quiet, Between)


@dataclass(frozen=True)
class PhaseHabits:
    """Each None where it takes little of a step."""

    small_passes: Calls | None = None  # backwards of small operators, with their forwards
    untrained: Calls | None = None  # forwards without gradients
    quiet: Quiet | None = None
    between: Between | None = None
    function: Cover | None = None  # with most of the quiet phase, or else of the pauses
    sampled: bool = False  # whether the capture has samples of Python's stack

    @property
    def most_ms(self) -> float:
        """Milliseconds a step of the one that takes most."""
        found = (self.small_passes, self.untrained, self.quiet, self.between)
        return max((each.ms for each in found if each), default=0.0)


def phase_habits(analysis: Analysis, report: Report, times: HostTimes) -> PhaseHabits:
    least_ms = WORTH * report.window.step_ms.mean
    quiet = if_worth(quiet_phase(analysis, times), least_ms)
    unnamed = quiet.times if quiet else times.by_class.get("cpu", NOTHING)
    return PhaseHabits(
        if_worth(small_passes(report), least_ms),
        if_worth(untrained_forwards(analysis), least_ms),
        quiet,
        if_worth(operators_between(analysis, times), least_ms),
        cover_of(analysis, unnamed, FUNCTIONS),
        analysis.trace.sampled is not None,
    )


def if_worth(found: Habit | None, least_ms: float) -> Habit | None:
    return found if found and found.ms >= least_ms else None


def small_passes(report: Report) -> Calls | None:
    """Backwards of a step that has many, but for those that a line search of an optimizer asks."""
    steps, operators = report.window.steps, report.operators or []
    rows = {row.name: row for row in report.phases if row.depth == 0}
    backward, optimizer = rows.get("backward"), rows.get("optimizer")
    if not backward or backward.count < MANY_PASSES * steps:
        return None
    if optimizer and optimizer.count >= backward.count:
        return None
    mean_ns = sum(row.self_ns for row in operators) / max(1, sum(row.count for row in operators))
    if not operators or mean_ns > 1000 * SMALL_IN_PASS_US:
        return None
    ms = sum(rows[name].host_ms for name in ("forward", "backward") if name in rows) / steps
    return Calls(backward.count / steps, ms)


def untrained_forwards(analysis: Analysis) -> Calls | None:
    """Forwards whose operators have no number of autograd, beside others that have."""
    phases, numbered = analysis.steps.phases, analysis.trace.autograd
    names = analysis.trace.names
    if numbered is None or "forward" not in names:
        return None
    forwards = phases.rows(phases.name == names.index("forward"))
    first, last = (
        np.searchsorted(numbered.start_ns, each) for each in (forwards.start_ns, forwards.end_ns)
    )
    without, steps = first == last, analysis.step_count
    if without.all() or without.sum() < MANY_UNTRAINED * steps:
        return None
    ns = int((forwards.end_ns - forwards.start_ns)[without].sum())
    return Calls(int(without.sum()) / steps, ns / 1e6 / steps)


def quiet_phase(analysis: Analysis, times: HostTimes) -> Quiet | None:
    """The phase that computes with the most time without an operator."""
    phases, names = analysis.steps.phases, analysis.trace.names
    begin, end, steps = analysis.begin_ns, analysis.end_ns, analysis.step_count
    # XLA's events on a CPU do not cover all that it computes
    if analysis.trace.kind == "jax" or analysis.trace.operators is None:
        return None
    found = []
    for number in set(phases.name.tolist()):
        if names[number] == OTHER or class_of_phase(names[number]):
            continue
        rows = phases.rows(phases.name == number)
        quiet = times.pauses.intersection(union(rows.start_ns, rows.end_ns), begin, end)
        ms = quiet.total_ns() / 1e6 / steps
        found.append(Quiet(names[number].split("#")[0], ms, quiet))
    return max(found, key=lambda each: each.ms, default=None)


def operators_between(analysis: Analysis, times: HostTimes) -> Between | None:
    """Operators in no phase of a step that has phases."""
    phases, begin, end = analysis.steps.phases, analysis.begin_ns, analysis.end_ns
    if analysis.trace.operators is None or not len(phases.name):
        return None
    elsewhere = union(phases.start_ns, phases.end_ns).gaps(begin, end)
    outside = times.operators.intersection(elsewhere, begin, end)
    if not outside.total_ns():
        return None
    ms = outside.total_ns() / 1e6 / analysis.step_count
    return Between(ms, between_phases(analysis, outside))
