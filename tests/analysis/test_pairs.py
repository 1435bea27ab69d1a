"""Intervals over pairs of processes that ran in turns."""

import numpy as np
import pytest

from profiling.analysis.difference.comparison_records import Against
from profiling.analysis.difference.pairs import over_pairs, ratio_over_pairs

FOUND = Against("a", "b", 1.0, (0.9, 1.1), 1.0, "cannot_tell", 30)


def test_an_interval_holds_the_ratio_as_often_as_it_says_with_disturbed_pairs():
    chance = np.random.default_rng(0)
    held, told = 0, 0
    for _ in range(100):
        scatter = 0.03 * chance.normal(size=12) * np.where(chance.random(12) < 0.05, 8, 1)
        ratio = ratio_over_pairs(list(1.03 * np.exp(scatter)))
        held += ratio.low < 1.03 < ratio.high
        told += over_pairs(FOUND, list(np.exp(scatter)), 0.02).verdict in ("faster", "slower")
    assert 0.88 < held / 100 < 1 and told <= 1  # chance alone: 0.95 +- 0.022


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ([1.03, 1.032, 1.028, 1.031], "slower"),
        ([1.03, 1.032, 1.028, 1.031, 1.029, 1.03, 1.4], "slower"),
        ([0.95, 0.955, 0.945, 0.951], "faster"),
        ([1.001, 0.999, 1.002, 1.0, 1.0, 1.0], "equal"),
        ([1.0, 1.0, 1.0, 1.0], "equal"),
        ([1.03, 0.98, 1.02, 1.01], "cannot_tell"),
        ([0.984, 0.988, 0.99, 0.99], "cannot_tell"),  # they agree by chance once in 300 times
    ],
)
def test_a_verdict_over_pairs(ratios, verdict):
    found = over_pairs(FOUND, ratios, 0.01)
    assert found.verdict == verdict and found.ci95[0] < found.ratio < found.ci95[1]
    assert found.processes_to_tell == (30 if verdict == "cannot_tell" else None)
