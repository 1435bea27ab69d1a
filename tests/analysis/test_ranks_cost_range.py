"""Range of a late rank's cost: what steps before and after the capture say of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.fleet.simulation import Fault, Fleet
from profiling.analysis.ranks.costs import EQUAL_GPUS
from profiling.analysis.ranks.rank_records import Straggler
from profiling.analysis.ranks.summary import RanksAnalysis, analyse
from tests.helpers.fleet import analyse_files, write_fleet

LATE = Fleet(ranks=2, fault=Fault("slow_loader", loader_us=6000.0))


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> RanksAnalysis:
    folder: Path = tmp_path_factory.mktemp("late")
    return analyse_files(write_fleet(LATE, folder))


def straggler(captured: RanksAnalysis, free_ms: tuple[float, float]) -> Straggler:
    ranks = [replace(rank, free_step_range_ms=free_ms) for rank in captured.ranks]
    late = analyse(ranks).report.straggler
    assert late is not None and (late.rank, late.because) == (1, "data")
    return late


def test_free_steps_leave_no_more_than_the_others_gpus_do_not_compute(
    captured: RanksAnalysis,
) -> None:
    computing_ms = captured.costs.unslowed_ms(0)["compute"]
    free_ms = computing_ms + 2
    late = straggler(captured, (captured.costs.mean_step_ms, free_ms))
    most_ms = 2 + EQUAL_GPUS * free_ms
    assert late.costs_ms_per_step > most_ms, "in the captured steps"
    assert late.costs_between_ms == pytest.approx((most_ms, most_ms))
    assert "steps before and after the capture leave no time for more" in late.evidence[-1]


def test_a_cost_may_be_less_by_what_the_captured_steps_are_longer(captured: RanksAnalysis) -> None:
    as_long_ms = captured.costs.mean_step_ms
    (low_ms, high_ms) = straggler(captured, (as_long_ms, as_long_ms)).costs_between_ms
    late = straggler(captured, (as_long_ms - 4, as_long_ms))
    error = 0.15  # of the replay: the lower end has given way by this share of what it was
    assert late.costs_between_ms == pytest.approx((low_ms - (1 - error) * 4, high_ms), abs=0.05)
    assert "a captured step takes 4.00 ms longer than those before and" in late.evidence[-1]


def test_free_steps_as_long_as_the_captured_ones_change_nothing(captured: RanksAnalysis) -> None:
    as_long_ms = captured.costs.mean_step_ms
    late, unknown = straggler(captured, (as_long_ms, as_long_ms)), captured.report.straggler
    assert unknown is not None and late.costs_between_ms == unknown.costs_between_ms
    assert late.evidence == unknown.evidence
