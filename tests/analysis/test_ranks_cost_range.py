"""Range of what late ranks and transfers cost: what steps around the capture say of it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fleet.simulation import Fault, Fleet
from profiling.analysis.ranks.costs import EQUAL_GPUS
from profiling.analysis.ranks.own_host import OwnHost
from profiling.analysis.ranks.rank_records import RanksReport, Straggler
from profiling.analysis.ranks.straggler import exposed_transfer_ms
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


def test_transfers_of_steps_that_the_capture_shortened_take_longer_without_it(
    tmp_path: Path,
) -> None:
    """Links of which the speed drifts: the captured steps are the fastest, or the slowest."""
    fault = Fault("slow_link", times=20.0)
    analysis = analyse_files(write_fleet(Fleet(ranks=2, fault=fault), tmp_path))
    costs, step_ms = analysis.costs, analysis.costs.mean_step_ms
    exposed_ms, computing_ms = exposed_transfer_ms(costs), costs.unslowed_ms(0)["compute"]

    def report_with(free_ms: tuple[float, float]) -> RanksReport:
        ranks = [replace(rank, free_step_range_ms=free_ms) for rank in analysis.ranks]
        return analyse(ranks).report

    assert analysis.report.verdict == "communication"
    assert analysis.report.transfers_between_ms is None
    longer = report_with((step_ms + 1, step_ms + 5))
    assert longer.transfers_between_ms == pytest.approx(
        (exposed_ms, step_ms + 5 - computing_ms), rel=0.01
    )
    assert "So without a profiler they cost " in longer.evidence[-2]
    shorter = report_with((step_ms - 2, step_ms - 1))
    assert shorter.transfers_between_ms == pytest.approx((exposed_ms - 2, exposed_ms), rel=0.05)


def test_transfers_cost_no_more_than_the_hosts_that_they_hide_leave(tmp_path: Path) -> None:
    fault = Fault("slow_link", times=20.0)
    analysis = analyse_files(write_fleet(Fleet(ranks=2, fault=fault), tmp_path))
    costs, exposed_ms = analysis.costs, exposed_transfer_ms(analysis.costs)

    def report_with(left_ms: float) -> RanksReport:
        host = OwnHost(np.full(analysis.ranks[1].steps, 1e6 * (costs.mean_step_ms - left_ms)), 0.0)
        return analyse([analysis.ranks[0], replace(analysis.ranks[1], own_host=host)]).report

    slow = report_with(left_ms=exposed_ms / 3)
    assert slow.verdict == "communication"
    assert slow.transfers_between_ms == pytest.approx((exposed_ms / 3, exposed_ms), rel=0.01)
    host_text = f"the slowest host takes {costs.mean_step_ms - exposed_ms / 3:.2f} ms per step"
    assert host_text in slow.evidence[-2]
    fast = report_with(left_ms=1.1 * exposed_ms)
    assert fast.transfers_between_ms is None and "slowest host" not in " ".join(fast.evidence)
