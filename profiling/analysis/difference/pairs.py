"""Statistics of two programs that ran in turns, over pairs of processes. Called by `bisect`.

Neighbours in time share most of a machine's drift, so that their ratio varies less than they do.
A pair in which something else ran counts little, where a mean over processes would follow it.
"""

import math
from dataclasses import replace

import numpy as np

from profiling.analysis.difference.comparison_records import Against
from profiling.analysis.statistics import CONFIDENCE, Answer, Ratio

DEGREES = 3  # of freedom of the scatter: few pairs are disturbed, but those by much
SCALES = np.geomspace(0.001, 1, 40)  # of the scatter, as shares of the step
SURE = 0.998  # confidence with which a difference is told, however often it is looked for
# Effects that are thought of, in ranges of the pairs: close to each other around their median, and
# far out too, since four pairs that agree by chance say little.
GRID = np.sinh(np.linspace(-7, 7, 401)) / 100
LEAST_RANGE = 0.01


def log_likelihood(ratios: list[float], effects: np.ndarray) -> np.ndarray:
    """(effects,) log likelihood of the ratios of pairs of processes, up to a constant.

    `effects` are logarithms, too. Pairs scatter as Student's t around the effect. How widely is not
    known: each of SCALES is as likely.
    """
    apart = (np.log(ratios) - effects[:, None]) / SCALES[:, None, None]
    terms = np.log1p(apart**2 / DEGREES) * (DEGREES + 1) / 2 + np.log(SCALES)[:, None, None]
    whole: np.ndarray = np.logaddexp.reduce(-terms.sum(axis=2), axis=0)
    return whole


def ratio_over_pairs(ratios: list[float], confidence: float = CONFIDENCE) -> Ratio:
    """The effect that is as likely too small as too large, with the interval that holds the effect
    with this probability, where all effects are as likely beforehand."""
    logs = np.log(ratios)
    effects = np.median(logs) + max(float(np.ptp(logs)), LEAST_RANGE) * GRID
    known = log_likelihood(ratios, effects)
    up_to = np.cumsum(np.exp(known - known.max()) * np.gradient(effects))
    tail = (1 - confidence) / 2
    found = np.interp([0.5, tail, 1 - tail], up_to / up_to[-1], effects)
    return Ratio(*map(math.exp, found))


def over_pairs(pair: Against, ratios: list[float], band: float) -> Against:
    """The comparison with ratio, interval and verdict of these pairs of processes instead.

    Faster or slower needs an interval of SURE that excludes 1; equal one of 95 % within `band`.
    """
    ratio = ratio_over_pairs(ratios)
    verdict: Answer = "equal" if ratio.within(band) else "cannot_tell"
    if ratio_over_pairs(ratios, SURE).excludes():
        verdict = "faster" if ratio.value < 1 else "slower"
    needed = pair.processes_to_tell if verdict == "cannot_tell" else None
    interval = ratio.low, ratio.high
    return replace(
        pair, ratio=ratio.value, ci95=interval, verdict=verdict, processes_to_tell=needed
    )
