"""Judge step times: faster, slower, equal within a band, or that they cannot tell.

Called by comparison, for the steps of two captures or runs, and by experiment, for processes.
"""

from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median

import numpy as np

from profiling.analysis.difference.comparability import config_differences, timed_keys
from profiling.analysis.difference.compared import TRAINING, Compared
from profiling.analysis.difference.comparison_records import CannotTell, Outcome
from profiling.analysis.gpu_time.typical import are_typical
from profiling.analysis.statistics import (
    BETWEEN_PROCESSES,
    MOST_PROCESSES,
    Ratio,
    answer,
    noise_of_processes,
    processes_to_tell,
    ratio_over_few_steps,
    ratio_over_processes,
    ratio_over_steps,
    steps_to_tell,
)
from profiling.analysis.verdict.health import CAPTURE_AGAIN
from profiling.shared.causes import PART
from profiling.shared.units import milliseconds, number

FEWEST_STEPS = 2  # needed on each side for an interval
# fewer steps that no profiler slowed are not preferred to captured ones, and of fewer the first is
# not left out
ENOUGH_STEPS = 5
RESAMPLED_FROM = 8  # steps: two blocks of four; fewer count as independent
LEAST_NOISE = 0.005  # half of what two starts differ by: two steps may be equal by chance
LARGE_OVERHEAD = 0.1  # of the step: a profiler that adds more decides how long the host takes
MOSTLY = 0.5  # share of the difference from which on it is mostly the host's
MOST_NAMED = 2  # parts of the host that are named
# in 24 captures of programs that were also timed without a profiler, the worst one made a step 3.6
# times as long
MOST_LENGTHENED = 4
# of A/A pairs of 2 to 9 steps of seven long captures, the farthest interval began at 1.27, and at
# less than 1.05 once the common pace of the phases was divided out
HOST_DRIFT = 0.3  # by which the host of one program may run slower or faster for a while
PACE_NOISE = 0.05  # by which a step may differ beyond the common pace of its phases
ESTIMATE_FACTOR = 2  # by which the real cost of a profiler may exceed its estimate, or more
LEAST_PHASE = 0.005  # of the step: a shorter phase has no pace
MANY_TIMES = 3.0  # ratio from which on it is said as a factor
PROFILER_SHIFT = 0.05  # change of the ratio by the profiler from which on it is worth a word
WITHOUT_A_PROFILER = "time both without a profiler: python -m profiling ab"
IN_TURNS = "alternate several runs of each"


@dataclass(frozen=True)
class Steps:
    """Step times of both sides, in ms."""

    baseline_ms: list[float]
    candidate_ms: list[float]
    means_ms: tuple[float, float]
    captured: bool  # a profiler was on
    over_processes: bool = False  # each value is the median of a process
    on_cpu: bool = False
    least_noise: float = LEAST_NOISE  # a step's standard deviation is at least this share of it

    @property
    def fewest(self) -> int:
        return min(len(self.baseline_ms), len(self.candidate_ms))

    @property
    def one_process_on_cpu(self) -> bool:
        """Whether a single process of each side ran on a CPU, so that chance decides.

        Starts of one program on a CPU differ by as much as the CPU's other work does.
        """
        return self.on_cpu and not self.over_processes

    @cached_property
    def ratio(self) -> Ratio | None:
        """Candidate over baseline, or None where no interval can be given or it means nothing."""
        if self.over_processes:
            return ratio_over_processes(self.baseline_ms, self.candidate_ms)
        if self.one_process_on_cpu or self.fewest < FEWEST_STEPS:
            return None
        if self.fewest < RESAMPLED_FROM:
            sides = self.baseline_ms, self.candidate_ms
            steady = [without_odd_start(np.array(ms)) for ms in sides]
            return ratio_over_few_steps(*sides, steady, self.least_noise)
        return ratio_over_steps(self.baseline_ms, self.candidate_ms)

    @cached_property
    def noise(self) -> float:
        """Share by which equal sides differ; 0.01 is one per cent."""
        if self.over_processes:
            return noise_of_processes(self.baseline_ms, self.candidate_ms)
        return BETWEEN_PROCESSES


def without_odd_start(step_ms: np.ndarray) -> np.ndarray:
    """The step times, without the first one where it is far from the others.

    A window starts with an empty queue, which says nothing of how much its steps vary.
    """
    odd = len(step_ms) >= ENOUGH_STEPS and not are_typical(step_ms)[0]
    return step_ms[int(odd) :]


@dataclass(frozen=True)
class Judgement:
    outcome: Outcome
    cannot_tell: CannotTell | None = None
    ratio_bound: float | None = None  # bound of the ratio that also holds without the profiler
    size_unknown: str | None = None  # why only the direction of the difference is known


def own_steps(baseline: Compared, candidate: Compared) -> Steps:
    """The steps of the captures or runs themselves."""
    means_ms = baseline.mean_ms, candidate.mean_ms
    return Steps(
        baseline.step_ms,
        candidate.step_ms,
        means_ms,
        captured={baseline.kind, candidate.kind} != {TRAINING},
        over_processes=min(baseline.runs, candidate.runs) > 1,
        on_cpu=baseline.on_cpu or candidate.on_cpu,
        least_noise=max(LEAST_NOISE, *(s.captured.kernel_noise for s in (baseline, candidate))),
    )


def uncaptured_steps(baseline: Compared, candidate: Compared) -> Steps | None:
    """The steps around the captured windows, or None where a side has too few of them."""
    both_ms = baseline.free_laps_ms, candidate.free_laps_ms
    if min(map(len, both_ms)) < ENOUGH_STEPS:
        return None
    means_ms = fmean(both_ms[0]), fmean(both_ms[1])
    on_cpu = baseline.on_cpu or candidate.on_cpu
    return Steps(*both_ms, means_ms, captured=False, on_cpu=on_cpu)


def judge(baseline: Compared, candidate: Compared, steps: Steps, band: float) -> Judgement:
    """The judgement of two sides by `steps`; a `band` of 0.02 is two per cent."""
    unit = "logged rows" if baseline.kind == TRAINING else "steps"
    if steps.one_process_on_cpu:
        return Judgement("cannot_tell", one_process(baseline, candidate))
    if (ratio := steps.ratio) is None:
        return Judgement("cannot_tell", few_steps(steps, unit))
    if steps.captured and (why := baseline.no_verdict or candidate.no_verdict):
        return Judgement("cannot_tell", CannotTell("lost_kernels", why, CAPTURE_AGAIN, None))
    outcome = answer(ratio, steps.noise, band)
    differs = outcome in ("faster", "slower")
    if differs and steps.on_cpu and (why := explained_by_cores(baseline, candidate, ratio)):
        return Judgement("cannot_tell", CannotTell("other_work", why, IN_TURNS, None))
    if steps.captured and (host := host_words(baseline, candidate, band)):
        bound = ratio_bound(baseline, candidate)
        if bound and differs:
            return Judgement(outcome, ratio_bound=bound)
        why = f"most of the change is host time, which a profiler lengthens ({host})"
        if differs and is_beyond_drift(baseline, candidate, ratio):
            return Judgement(outcome, size_unknown=why)
        return Judgement("cannot_tell", CannotTell("profiler", why, WITHOUT_A_PROFILER, None))
    can_tell = outcome != "cannot_tell"
    return Judgement(outcome, None if can_tell else noise(ratio, steps, unit, band))


def one_process(baseline: Compared, candidate: Compared) -> CannotTell:
    why = "there is one run of each, and on a CPU the speed of a program varies from start to start"
    one, other = baseline.cores_at_work, candidate.cores_at_work
    if one is not None and other is not None:
        why += f" ({one:.1f} and {other:.1f} cores were at work)"
    by_ab = timed_keys(config_differences(baseline.config, candidate.config) or {})
    how = (
        "use python -m profiling ab, or give folders of such runs"
        if by_ab
        else "give folders of such runs"
    )
    return CannotTell("one_process", why, f"{IN_TURNS}: {how}", None)


def explained_by_cores(baseline: Compared, candidate: Compared, ratio: Ratio) -> str:
    """Why the cores that each side got may be all of the difference; empty if they are not.

    The side that is faster by the clock then takes as much CPU time for a step, or more.
    """
    one, other = baseline.cores_at_work, candidate.cores_at_work
    if not one or not other or (ratio.value < 1) == (ratio.value * other / one < 1):
        return ""
    return (
        f"{one:.1f} and {other:.1f} cores were at work, which can be all of the difference: a step "
        f"takes {other / one * ratio.value:.2f}x the CPU time, and other work may have held cores"
    )


def few_steps(steps: Steps, unit: str) -> CannotTell:
    counts = f"{len(steps.baseline_ms)} and {len(steps.candidate_ms)} {unit}"
    why = f"no verdict, because {counts} are too few for an interval"
    cure = f"at least {FEWEST_STEPS} of each are needed, better 20"
    return CannotTell("few_steps", why, cure, FEWEST_STEPS)


def noise(ratio: Ratio, steps: Steps, unit: str, band: float) -> CannotTell:
    why = undecided_words((ratio.low, ratio.high), steps.noise, band)
    if steps.over_processes:
        needed = processes_to_tell(steps.baseline_ms, steps.candidate_ms, band)
        return CannotTell("noise", why, runs_it_takes(needed), needed)
    needed = steps_to_tell(ratio, steps.fewest, steps.noise, band)
    if needed is None:
        cure = f"more {unit} would not decide it, but several starts would: python -m profiling ab"
    else:
        cure = f"about {needed:,} {unit} of each are needed, and there are {steps.fewest}"
    return CannotTell("noise", why, cure, needed)


def runs_it_takes(needed: int | None) -> str:
    if needed is None:
        return f"even {MOST_PROCESSES:,} runs of each would not decide it"
    return f"about {needed} runs of each are needed"


def undecided_words(interval: tuple[float, float], noise: float, band: float) -> str:
    """A clause on an interval of the ratio that gives no answer; its subject is the candidate."""
    low, high = interval
    span = f"it could take anything from {change_words(low)} to {change_words(high)} time"
    if high > MANY_TIMES:
        least = "less than 0.01" if low < 0.01 else f"{low:.2f}"
        most = "over 1,000" if high > 1000 else f"{high:,.2f}"
        span = f"it could take anything from {least} to {most} times as long"
    if low < 1 < high:
        return f"{span}, which is too wide to call it faster, slower or equal"
    return (
        f"{span}, which is neither entirely beyond the noise of {two_digits(noise)} % nor entirely "
        f"within {band * 100:g} %"
    )


def change_words(ratio: float) -> str:
    return f"{two_digits(abs(ratio - 1))} % {'less' if ratio < 1 else 'more'}"


def two_digits(share: float) -> str:
    return number(float(f"{share * 100:.2g}"))


def host_words(baseline: Compared, candidate: Compared, band: float) -> str:
    """The change of the host's parts, if it is most of the difference and may be the profiler's.

    Empty if it is not most of it, if no profiler can have been in the way, or if the profiler is
    known to have added little.
    """
    one, other = baseline.captured.gpu_parts, candidate.captured.gpu_parts
    if not one or not other or not (may_be_slowed(baseline) or may_be_slowed(candidate)):
        return ""
    change_ms = {name: other.get(name, 0.0) - one.get(name, 0.0) for name in one | other}
    host = sorted(filter(is_host, change_ms), key=lambda name: -abs(change_ms[name]))
    host_ms, all_ms = sum(change_ms[name] for name in host), sum(change_ms.values())
    if abs(host_ms) <= max(band * baseline.mean_ms, MOSTLY * abs(all_ms)):
        return ""
    return ", ".join(
        f"{PART[name.removeprefix('idle_')].title} {milliseconds(one.get(name, 0.0))} -> "
        f"{milliseconds(other.get(name, 0.0))} ms"
        for name in host[:MOST_NAMED]
    )


def is_beyond_drift(baseline: Compared, candidate: Compared, ratio: Ratio) -> bool:
    """Whether captured steps show which side is faster, though not by how much.

    Both need the same profiler. The kernels must not say the opposite, and the difference must be
    more than the profiler is likely to have added to one side alone, and more than the host's pace
    drifts by.
    """
    one, other = baseline.captured, candidate.captured
    change_ms = median(candidate.step_ms) - median(baseline.step_ms)
    kernels_ms = other.gpu_parts.get("compute", 0.0) - one.gpu_parts.get("compute", 0.0)
    opposed = change_ms * kernels_ms < 0 and abs(kernels_ms) > BETWEEN_PROCESSES * baseline.mean_ms
    if opposed or baseline.kind != candidate.kind:
        return False
    if abs(change_ms) <= ESTIMATE_FACTOR * abs(other.added_ms - one.added_ms):
        return False
    pace = host_pace(baseline, candidate)
    return ratio.excludes(HOST_DRIFT) or pace is not None and excess(ratio, pace) > PACE_NOISE


def host_pace(baseline: Compared, candidate: Compared) -> float | None:
    """Ratio of the candidate's host time of a phase to the baseline's: the median of the phases.

    A slower host lengthens all phases alike, a change of the program some of them. None with fewer
    than three phases, whose median one phase alone would decide.
    """
    one, other = baseline.captured.phases, candidate.captured.phases
    both = [(one[name].host_ms or 0.0, other[name].host_ms or 0.0) for name in one.keys() & other]
    ratios = [now / was for was, now in both if min(was, now) > LEAST_PHASE * baseline.mean_ms]
    return median(ratios) if len(ratios) >= 3 else None


def excess(ratio: Ratio, pace: float) -> float:
    """Distance of the interval from 1, beyond the pace if that goes the same way; 0.2: 20 %."""
    if ratio.value > 1:
        return ratio.low / max(pace, 1.0) - 1
    return min(pace, 1.0) / ratio.high - 1


def is_host(bucket: str) -> bool:
    part = PART.get(bucket.removeprefix("idle_"))
    return part is not None and part.lengthened


def may_be_slowed(side: Compared) -> bool:
    """Whether a profiler may have added much to the side's captured steps."""
    if side.kind == TRAINING:
        return False
    free_ms = side.free_step_ms
    return free_ms is None or median(side.step_ms) > (1 + LARGE_OVERHEAD) * free_ms


def ratio_bound(baseline: Compared, candidate: Compared) -> float | None:
    """A lower bound of the ratio above 1, or an upper one below 1, whatever the profiler added.

    None where it depends on that which of the two is faster.
    """
    most = [median(side.step_ms) for side in (baseline, candidate)]
    least = [least_ms(side) for side in (baseline, candidate)]
    beyond = 1 + BETWEEN_PROCESSES
    if least[0] > most[1] * beyond:
        return most[1] / least[0]
    if least[1] > most[0] * beyond:
        return least[1] / most[0]
    return None


def least_ms(side: Compared) -> float:
    """The least time, in ms, that a step of this side takes without a profiler.

    It is no shorter than its own work on the GPU (without collectives, which wait for others), and
    a profiler makes it at most MOST_LENGTHENED times as long.
    """
    step_ms, parts = median(side.step_ms), side.captured.gpu_parts
    work = (parts.get("compute", 0.0) + parts.get("copy", 0.0)) / side.mean_ms
    return max(work, 1 / MOST_LENGTHENED) * step_ms
