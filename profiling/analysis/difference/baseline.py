"""Kept baselines: their records, and a comparison of new processes with them.

A baseline has sittings: series of processes of one command, each at a time of its own. The new
processes do not run in turns with them, so the unit of the statistics is the sitting: what equal
sittings differ by holds everything that changes between two times. Called by profiling.verbs.ab,
baseline and history.
"""

import dataclasses
import math
import shlex
import statistics
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from profiling.analysis.difference.answer import HOST_DRIFT
from profiling.analysis.difference.comparison_records import (
    Against,
    Experiment,
    ProcessRun,
    SeenWork,
)
from profiling.analysis.difference.experiment import analyse, comparison_of
from profiling.analysis.difference.sentence import sentence
from profiling.analysis.statistics import (
    CONFIDENCE,
    Ratio,
    answer,
    noise_of_processes,
    ratio_over_processes,
    student_t_quantile,
)
from profiling.shared.json_records import JsonObject

FIVE = (0, 25, 50, 75, 100)  # percentiles that are kept of a process's step times


@dataclass(frozen=True)
class Machine:
    """The hardware and versions that a step time belongs to; None: there is none, or not known."""

    gpu: str | None
    cpu: str | None
    cores: int | None  # that the system lets a process use
    torch: str | None
    cuda: str | None


@dataclass(frozen=True)
class Sitting:
    """A kept series of processes of one command."""

    schema_version: int
    baseline: str
    when: str  # it ended, in UTC
    commit: str | None  # None: the folder is in no git repository
    dirty: bool  # files differed from the commit
    committed: str | None  # time of the commit
    command: str
    steps: int | None  # as `ab --steps`
    warm_up: int
    five_ms: list[list[float]]  # of each process: percentiles FIVE of its medians of ten steps
    wall_s: list[float]
    noise_percent: float  # by which two groups of so many of its processes differ, A against A
    machine: Machine
    in_force: JsonObject
    seen: list[SeenWork]

    @property
    def medians_ms(self) -> list[float]:
        return [five[2] for five in self.five_ms]

    @property
    def middle_ms(self) -> float:
        return statistics.geometric_mean(self.medians_ms)

    @property
    def alike(self) -> tuple[object, ...]:
        """Fields that two sittings share which differ by the commit alone."""
        return self.machine, self.command, self.steps, self.warm_up

    @property
    def same(self) -> tuple[object, ...]:
        """Fields that equal sittings share, which differ by drift alone."""
        return self.alike, self.commit, self.dirty


def unlike(kept: Machine, here: Machine) -> list[str]:
    """A clause for each field of a kept machine that differs here."""
    pairs = zip(dataclasses.asdict(kept).items(), dataclasses.astuple(here), strict=True)
    return [
        f"{name} {was or 'none'} there, {now or 'none'} here"
        for (name, was), now in pairs
        if was != now
    ]


def newest_of(sittings: list[Sitting]) -> list[Sitting]:
    """The newest sitting and its equals."""
    last = max(sittings, key=lambda sitting: sitting.when)
    return [sitting for sitting in sittings if sitting.same == last.same]


def drift_of(sittings: list[Sitting]) -> tuple[float, int]:
    """Variance of logarithms between equal sittings of each commit, and its degrees of freedom."""
    groups: dict[tuple[object, ...], list[float]] = {}
    for sitting in sittings:
        groups.setdefault(sitting.same, []).append(math.log(sitting.middle_ms))
    degrees = sum(len(group) - 1 for group in groups.values())
    squares = sum(float(np.var(group)) * len(group) for group in groups.values())
    return (squares / degrees if degrees else 0.0), degrees


def ratio_to_baseline(
    base: list[Sitting], alike: list[Sitting], new_ms: list[float]
) -> tuple[Ratio, float]:
    """Ratio of new processes to equal sittings, and the noise: a standard error of the ratio.

    Drift is the variance between equal sittings of every commit in `alike`; a sitting is no surer
    than its own processes. Without equal sittings nothing shows the drift: the interval of the
    processes is then widened by HOST_DRIFT on each side.
    """
    variance, degrees = drift_of(alike)
    if not degrees:
        (only,) = base
        narrow = ratio_over_processes(only.medians_ms, new_ms)
        low, high = narrow.low / (1 + HOST_DRIFT), narrow.high * (1 + HOST_DRIFT)
        return Ratio(narrow.value, low, high), noise_of_processes(only.medians_ms, new_ms)
    kept = max(variance, statistics.fmean(own_variance(each.medians_ms) for each in base))
    error = math.sqrt(kept / len(base) + max(variance, own_variance(new_ms)))
    base_log = statistics.fmean(math.log(each.middle_ms) for each in base)
    middle = statistics.fmean(map(math.log, new_ms)) - base_log
    t = student_t_quantile(0.5 + CONFIDENCE / 2, degrees)
    ratio = Ratio(*(math.exp(middle + k * error) for k in (0.0, -t, t)))
    return ratio, math.exp(error) - 1


def own_variance(medians_ms: list[float]) -> float:
    """Variance of the mean logarithm of a sitting, from its own processes."""
    return float(np.var(np.log(medians_ms), ddof=1)) / len(medians_ms)


def kept_runs(sittings: list[Sitting], label: str) -> list[ProcessRun]:
    """The processes of kept sittings as rows of an experiment."""
    pairs = [pair for each in sittings for pair in zip(each.five_ms, each.wall_s, strict=True)]
    command = shlex.split(sittings[-1].command)
    return [
        ProcessRun(number, label, command, "", wall_s, None, [], five, [])
        for number, (five, wall_s) in enumerate(pairs)
    ]


def conclude_against(
    experiment: Experiment, base: list[Sitting], alike: list[Sitting], equal_within_percent: float
) -> Experiment:
    """The experiment of a baseline and a new command, with its result and comparison."""
    result = analyse(experiment, equal_within_percent)
    label, new = experiment.factor.labels
    new_ms = next(row.processes for row in result.values if row.label == new)
    ratio, noise = ratio_to_baseline(base, alike, new_ms)
    outcome = answer(ratio, noise, equal_within_percent / 100)
    pair = Against(label, new, ratio.value, (ratio.low, ratio.high), noise * 100, outcome)
    result = dataclasses.replace(result, comparisons=[pair])
    found = comparison_of(experiment, result, pair, None)
    known = found.comparability
    notes = [not_in_turns(base, alike), *known.notes]
    found = replace(found, comparability=dataclasses.replace(known, notes=notes))
    if unknown := found.cannot_tell:
        again = f"python -m profiling baseline save {base[0].baseline} -- COMMAND"
        cure = f"save it again at other times: {again}"
        found = replace(found, cannot_tell=dataclasses.replace(unknown, cure=cure))
    return replace(
        experiment, result=result, comparisons=[replace(found, sentence=sentence(found))]
    )


def not_in_turns(base: list[Sitting], alike: list[Sitting]) -> str:
    """A sentence on how a baseline's interval comes about."""
    variance, degrees = drift_of(alike)
    begin = "the baseline was measured at another time, not in turns"
    if not degrees:
        return (
            f"{begin}, and once: its drift is not known, so only a difference beyond "
            f"{HOST_DRIFT:.0%} is called"
        )
    percent = math.expm1(math.sqrt(variance)) * 100
    return (
        f"{begin}: the interval holds the drift between equal sittings, {percent:.2g} % (standard "
        f"deviation, {degrees} degrees of freedom; {len(base)} sittings of this commit)"
    )
