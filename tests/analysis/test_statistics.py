"""Coverage of the intervals, simulated: noise between processes, noise along a process."""

import numpy as np
import pytest

from profiling.analysis import statistics
from profiling.analysis.statistics import (
    Ratio,
    answer,
    noise_of_processes,
    ratio_over_processes,
    ratio_over_steps,
    spread,
    student_t_quantile,
)


def autocorrelated(random, count: int, rho: float, deviation: float) -> np.ndarray:
    """An AR(1) series, from its stationary distribution."""
    shocks = random.normal(size=count) * deviation * np.sqrt(1 - rho**2)
    values = np.empty(count)
    values[0] = random.normal() * deviation
    for i in range(1, count):
        values[i] = rho * values[i - 1] + shocks[i]
    return values


# of any table of Student's t
@pytest.mark.parametrize(
    ("probability", "degrees", "quantile"),
    [(0.975, 1, 12.7062), (0.975, 4, 2.77645), (0.975, 8, 2.306), (0.95, 2, 2.91999)]
    + [(0.995, 8, 3.35539), (0.975, 1000, 1.96234), (0.5, 3, 0.0)],
)
def test_quantiles_of_students_t(probability, degrees, quantile):
    assert student_t_quantile(probability, degrees) == pytest.approx(quantile, rel=1e-5, abs=1e-9)


def test_degrees_of_freedom_may_be_broken_as_welchs_are():
    assert student_t_quantile(0.975, 4) < student_t_quantile(0.975, 3.5) < 3.19


@pytest.mark.slow
@pytest.mark.parametrize(("count", "rho"), [(20, 0.0), (20, 0.3), (50, 0.6)])
def test_the_interval_over_steps_covers_equal_series(count, rho, monkeypatch):
    """Some intervals miss, but at most 8 %, over series autocorrelated as steps are."""
    monkeypatch.setattr(statistics, "RESAMPLES", 500)
    random = np.random.default_rng(3)
    missed = 0
    for trial in range(250):
        pair = [np.exp(autocorrelated(random, count, rho, 0.02)) for _ in range(2)]
        found = ratio_over_steps(*pair, seed=trial)
        missed += found.excludes()
    assert 0 < missed <= 20


def test_single_steps_resampled_would_be_too_narrow(monkeypatch):
    """Blocks exist for this: single steps give intervals that are too narrow."""
    random = np.random.default_rng(5)
    pair = [np.exp(autocorrelated(random, 60, 0.7, 0.02)) for _ in range(2)]
    in_blocks = ratio_over_steps(*pair)
    monkeypatch.setattr(statistics, "block_length", lambda count: 1)
    alone = ratio_over_steps(*pair)
    assert in_blocks.high - in_blocks.low > 1.3 * (alone.high - alone.low)


def test_a_difference_of_steps_is_found_and_the_same_each_time():
    random = np.random.default_rng(1)
    baseline = random.normal(10, 0.1, 20)
    found = ratio_over_steps(baseline, baseline * 0.8)
    assert found.value == pytest.approx(0.8)
    assert 0.78 < found.low <= 0.8 <= found.high < 0.82
    assert found == ratio_over_steps(baseline, baseline * 0.8)


def test_one_step_has_no_interval_and_equal_steps_one_of_no_width():
    assert ratio_over_steps([1.0], [1.0, 1.0]) is None
    assert ratio_over_steps([2.0] * 5, [1.0] * 5) == Ratio(0.5, 0.5, 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 5, 10])
def test_the_interval_over_processes_covers_where_steps_would_not(count):
    """Five processes a side, each with a level of its own: Welch misses in 5 %, not in most."""
    random = np.random.default_rng(7)
    missed = beyond_noise = 0
    for _ in range(1000):
        pair = [np.exp(random.normal(0, 0.005, count)) for _ in range(2)]
        found = ratio_over_processes(*pair)
        missed += found.excludes()
        beyond_noise += found.excludes(noise_of_processes(*pair))
    assert 20 <= missed <= 70
    assert beyond_noise <= 25  # what `ab` calls a difference: about one in a hundred


def test_steps_taken_for_processes_would_call_noise_a_difference():
    """Why the process is the unit: within one its steps agree, and two starts do not."""
    random = np.random.default_rng(9)
    called = 0
    for _ in range(100):
        pair = [
            [random.normal(0, 0.01) + random.normal(0, 0.002, 30) for _ in range(5)]
            for _ in range(2)
        ]
        called += ratio_over_processes(*(np.exp(np.ravel(side)) for side in pair)).excludes()
    assert called > 40


def test_unequal_noise_is_welchs_matter():
    quiet, loud = [1.0, 1.001, 0.999, 1.0, 1.0005], [1.0, 1.3, 0.8, 1.1, 0.9]
    found = ratio_over_processes(quiet, loud)
    assert found.low < 1 < found.high
    assert found.high - found.low > 0.4


def test_processes_without_noise_give_an_interval_of_no_width():
    assert ratio_over_processes([2.0, 2.0], [1.0, 1.0]).low == pytest.approx(0.5)


def test_noise_is_what_equal_groups_differ_by():
    random = np.random.default_rng(11)
    groups = [np.exp(random.normal(0, 0.01, 200)) for _ in range(2)]
    assert noise_of_processes(*groups) == pytest.approx(0.01 * np.sqrt(2 / 200), rel=0.15)


def test_an_answer_needs_the_whole_interval_beyond_the_noise_or_within_the_band():
    assert answer(Ratio(0.8, 0.78, 0.82), noise=0, band=0.02) == "faster"
    assert answer(Ratio(1.2, 1.1, 1.3), noise=0, band=0.02) == "slower"
    assert answer(Ratio(0.99, 0.97, 1.01), noise=0, band=0.02) == "cannot_tell"
    assert answer(Ratio(0.99, 0.985, 1.01), noise=0, band=0.02) == "equal"
    assert answer(Ratio(0.985, 0.98, 0.992), noise=0, band=0.02) == "faster"
    assert answer(Ratio(0.985, 0.981, 0.992), noise=0.01, band=0.02) == "equal"


def test_spread_is_the_interquartile_range():
    assert spread([1, 2, 3, 4, 5]) == 2
