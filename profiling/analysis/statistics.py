"""Confidence intervals for ratios of step times, over the steps of two captures or over processes.

Called by difference.comparison (steps), difference.experiment (processes) and runs.groups. The two
differ in what is independent. Steps of one process share its clock, its memory layout and its
neighbours, so an interval over them speaks of these two runs alone; another start of the same
program may lie outside. Only processes started anew can tell what a change does in general.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 2000
Values = Sequence[float] | np.ndarray
# Two starts of one program differ too, by up to about this; the steps of two captures cannot tell.
BETWEEN_PROCESSES = 0.01
EQUAL_WITHIN_PERCENT = 2.0  # unless the user says otherwise
T_GRID = 20_001  # points of the integral behind a quantile: right to six digits
MOST_PROCESSES = 1000  # a user is never told to start more
Answer = Literal["faster", "slower", "equal", "cannot_tell"]


@dataclass(frozen=True)
class Ratio:
    """Candidate over baseline with its 95 % interval."""

    value: float
    low: float
    high: float

    def excludes(self, noise: float = 0.0) -> bool:
        """Whether the whole interval lies on one side of 1, beyond `noise` (0.01: one per cent)."""
        return self.high < 1 / (1 + noise) or self.low > 1 + noise

    def within(self, band: float) -> bool:
        """Whether the whole interval is at most `band` (0.02: two per cent) from 1."""
        return self.low >= 1 / (1 + band) and self.high <= 1 + band


def answer(ratio: Ratio, noise: float, band: float) -> Answer:
    """Verdict on the candidate: faster or slower, else equal within `band`, else neither."""
    if ratio.excludes(noise):
        return "faster" if ratio.value < 1 else "slower"
    return "equal" if ratio.within(band) else "cannot_tell"


def spread(values: Values) -> float:
    """The interquartile range of the values."""
    low, high = np.quantile(values, [0.25, 0.75])
    return float(high - low)


def ratio_over_steps(baseline: Values, candidate: Values, seed: int = 0) -> Ratio | None:
    """Ratio of the medians of two series of step times; None for fewer than two steps in one.

    A moving-block bootstrap (Kuensch 1989; the blocks wrap round): neighbouring steps are alike,
    and single ones resampled would make the interval too narrow. Percentiles are expanded as for
    Student's t (Hesterberg 2015), because few steps, in blocks fewer still, vary too little.
    """
    if min(len(baseline), len(candidate)) < 2:
        return None
    random = np.random.default_rng(seed)
    above, below = np.asarray(candidate, float), np.asarray(baseline, float)
    ratios = resampled_medians(above, random) / resampled_medians(below, random)
    blocks = min(len(x) / block_length(len(x)) for x in (below, above))
    tail = expanded_tail(blocks)
    low, high = np.quantile(ratios, [tail, 1 - tail])
    value = float(np.median(above) / np.median(below))
    return Ratio(value, min(float(low), value), max(float(high), value))


def ratio_over_few_steps(
    baseline: Values, candidate: Values, steady: Sequence[Values], least_noise: float
) -> Ratio:
    """Ratio of the medians of two series of step times, too short to be resampled.

    The half-width is Welch's t of the logarithms of the `steady` steps of both, which needs two of
    each. A series whose steps differ by less than `least_noise` (a standard deviation, as a share
    of the step) counts as that noisy: two steps may be equal by chance.
    """
    error, degrees = welch_error(steady, least_noise)
    half = math.exp(student_t_quantile(0.5 + CONFIDENCE / 2, degrees) * error)
    value = float(np.median(candidate) / np.median(baseline))
    return Ratio(value, value / half, value * half)


def resampled_medians(values: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """(RESAMPLES,) medians of series that are drawn as blocks of consecutive values."""
    count, length = len(values), block_length(len(values))
    blocks = -(-count // length)
    starts = random.integers(count, size=(RESAMPLES, blocks, 1))
    index = ((starts + np.arange(length)) % count).reshape(RESAMPLES, -1)[:, :count]
    medians: np.ndarray = np.median(values[index], axis=1)
    return medians


def block_length(count: int) -> int:
    """Steps in a block: twice the usual cube root of `count`, so 5 of 20 steps and 10 of 125."""
    return max(1, min(count // 2, round(2 * math.pow(count, 1 / 3))))


def expanded_tail(count: float) -> float:
    """Lower percentile of a 95 % bootstrap interval, widened from 0.025 for few values.

    `count` is the number of independent values.
    """
    count = max(count, 2.0)
    t = student_t_quantile(0.5 + CONFIDENCE / 2, count - 1)
    return 0.5 * math.erfc(t * math.sqrt(count / (count - 1)) / math.sqrt(2))


def ratio_over_processes(baseline: Values, candidate: Values) -> Ratio:
    """Ratio of the step times of two groups of processes; a value is the median of one process.

    The interval is Welch's t interval of the difference of mean logarithms. With five processes a
    side its coverage is as stated; a bootstrap over five is too narrow. Needs two processes a side.
    """
    groups = [np.log(np.asarray(group, float)) for group in (baseline, candidate)]
    middle = float(groups[1].mean() - groups[0].mean())
    error, degrees = welch_error([baseline, candidate])
    t = student_t_quantile(0.5 + CONFIDENCE / 2, degrees)
    return Ratio(*(math.exp(middle + k * error) for k in (0.0, -t, t)))


def mean_over_processes(processes: Values) -> tuple[float, float, float]:
    """Geometric mean of the medians of processes, and its 95 % interval: (mean, low, high).

    The interval is Student's t of the logarithms; it needs two processes.
    """
    logs = np.log(np.asarray(processes, float))
    error = float(logs.std(ddof=1)) / math.sqrt(len(logs))
    half = student_t_quantile(0.5 + CONFIDENCE / 2, len(logs) - 1) * error
    low, middle, high = (math.exp(float(logs.mean()) + k * half) for k in (-1, 0, 1))
    return middle, low, high


def welch_error(sides: Sequence[Values], least: float = 0.0) -> tuple[float, float]:
    """Standard error of the difference of mean logarithms, and Welch's degrees of freedom.

    No side counts as less noisy than `least`, a standard deviation of the logarithms.
    """
    counts = [len(side) for side in sides]
    deviations = [float(np.std(np.log(np.asarray(side, float)), ddof=1)) for side in sides]
    variances = [max(d, least) ** 2 / n for d, n in zip(deviations, counts, strict=True)]
    if not sum(variances):  # no value differs from another: only a clock too coarse does that
        return 0.0, float(sum(counts) - 2)
    weights = [v**2 / (n - 1) for v, n in zip(variances, counts, strict=True)]
    return math.sqrt(sum(variances)), sum(variances) ** 2 / sum(weights)


def noise_of_processes(*groups: Values) -> float:
    """Share by which two groups of equal processes differ: one pooled standard deviation.

    It is estimated from the repeats of each value, which are A against A. 0.01 is one per cent.
    """
    logs = [np.log(np.asarray(group, float)) for group in groups]
    squares = sum(float(((x - x.mean()) ** 2).sum()) for x in logs)
    variance = squares / sum(len(x) - 1 for x in logs)
    size = len(logs) / sum(1 / len(x) for x in logs)  # harmonic mean
    return math.exp(math.sqrt(2 * variance / size)) - 1


def steps_to_tell(ratio: Ratio, count: int, noise: float, band: float) -> int | None:
    """Approximate number of steps a side that would give an answer, where `count` did not.

    It assumes that the ratio stays as it is and that the interval narrows with the square root.
    None if no number would do, because the ratio is beyond `band` and within `noise`.
    """
    distance = abs(math.log(ratio.value))
    room = max(distance - math.log1p(noise), math.log1p(band) - distance)
    if room <= 0:
        return None
    half = max(math.log(ratio.high / ratio.value), math.log(ratio.value / ratio.low))
    needed = max(count + 1, count * (half / room) ** 2)
    unit: int = 10 ** max(0, math.floor(math.log10(needed)) - 1)
    return math.ceil(needed / unit) * unit


def processes_to_tell(baseline: Values, candidate: Values, band: float) -> int | None:
    """Approximate number of processes a side that would give an answer.

    It assumes that the ratio stays as it is. None if it takes more than MOST_PROCESSES.
    """
    logs = [np.log(np.asarray(group, float)) for group in (baseline, candidate)]
    distance = abs(float(logs[1].mean() - logs[0].mean()))
    variance = float(np.mean([np.var(x, ddof=1) for x in logs]))

    def would_tell(count: int) -> bool:
        error = math.sqrt(2 * variance / count)  # it is the noise of groups of this size, too
        half = student_t_quantile(0.5 + CONFIDENCE / 2, 2 * count - 2) * error
        return half + error < distance or half + distance < math.log1p(band)

    counts = range(max(map(len, logs)) + 1, MOST_PROCESSES + 1)
    place = bisect_left(counts, True, key=would_tell)
    return counts[place] if place < len(counts) else None


def student_t_quantile(probability: float, degrees: float) -> float:
    """Quantile of Student's t with `degrees` of freedom, any real >= 1; `probability` >= 0.5.

    With t = sqrt(degrees) tan(angle) the density becomes cos(angle) ** (degrees - 1), which is
    smooth and ends at a right angle: the tail needs no care.
    """
    angle = np.linspace(0, np.pi / 2, T_GRID)
    density = np.cos(angle).clip(0) ** (degrees - 1)
    mass = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    reached = np.interp(2 * probability - 1, mass / mass[-1], angle)
    return math.sqrt(degrees) * math.tan(reached)
