"""Ranks that are late in turns, and what only looks like it, in simulated trainings."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fleet.simulation import Fault, Fleet, cost_us, simulate
from tests.helpers.fleet import analyse_files, report_of, write_fleet

NEAR = 0.15  # of what removing the fault gives


IN_TURNS = Fleet(steps=12, buckets=2, jitter_us=2000)


@pytest.mark.parametrize(
    "fleet",
    [
        *(
            pytest.param(replace(IN_TURNS, ranks=ranks, seed=seed), marks=pytest.mark.slow)
            for ranks, seed in [(2, 3), (4, 1), (8, 2), (8, 4)]
        ),
        pytest.param(Fleet(ranks=4, slowdown=1.8, steps=12, jitter_us=1200), id="hidden waits"),
    ],
)
def test_who_is_late_in_turns_is_jitter(tmp_path: Path, fleet: Fleet) -> None:
    report = report_of(write_fleet(fleet, tmp_path))
    assert (report.verdict, report.straggler) == ("jitter", None)
    without = replace(fleet, jitter_us=0.0)
    lengthened_ms = (simulate(fleet).step_us - simulate(without).step_us) / 1e3
    assert report.jitter_ms_per_step == pytest.approx(lengthened_ms, rel=NEAR)


@pytest.mark.parametrize("seed", [7, 8])
def test_who_has_more_work_in_turns_is_not_named_for_seven_turns_of_ten(
    tmp_path: Path, seed: int
) -> None:
    fleet = Fleet(ranks=2, steps=10, buckets=2, jitter_us=4000, seed=seed)
    report = report_of(write_fleet(fleet, tmp_path))
    assert (report.verdict, report.straggler) == ("jitter", None)


def test_transfers_outweigh_what_ranks_cost_in_turns(tmp_path: Path) -> None:
    fault = Fault("slow_link", times=20.0)
    fleet = Fleet(ranks=2, steps=12, buckets=4, jitter_us=1000, seed=3, fault=fault)
    report = report_of(write_fleet(fleet, tmp_path))
    assert (report.verdict, report.straggler) == ("communication", None)
    assert report.jitter_ms_per_step is not None
    step_ms = report.steps.step_ms
    assert report.jitter_ms_per_step > 0.02 * np.mean(step_ms), "which alone would be jitter"


def test_who_costs_more_than_the_others_in_every_step_is_no_jitter(tmp_path: Path) -> None:
    """The late rank's neighbour hands its lateness on, and is not quite cleared of it."""
    fleet = Fleet(ranks=8, steps=7, buckets=4, forward=4, noise=0.0, kernel_us=10.0, leave_us=0.5)
    fault = Fault("larger_kernels", ranks=(5,))
    fleet = replace(fleet, slowdown=1.5, tensor_parallel=2, fault=fault, seed=3)
    report = report_of(write_fleet(fleet, tmp_path))
    assert report.straggler is not None and report.straggler.rank == 5
    assert report.straggler.in_steps == 7
    assert report.straggler.costs_ms_per_step == pytest.approx(cost_us(fleet) / 1e3, rel=0.1)


@pytest.mark.parametrize("steps", [1, 2])
def test_the_same_rank_in_every_step_is_not_said_to_change(tmp_path: Path, steps: int) -> None:
    fleet = Fleet(ranks=8, steps=steps, buckets=4, forward=4, noise=0.0, kernel_us=10.0)
    fault = Fault("larger_kernels", ranks=(5,))
    fleet = replace(fleet, slowdown=1.5, tensor_parallel=2, fault=fault, seed=3, leave_us=0.5)
    report = report_of(write_fleet(fleet, tmp_path))
    assert report.verdict == "jitter"
    assert ("The last rank is not the same") not in report.evidence[
        0
    ] and "Rank 5" in report.evidence[0]


def test_pairs_that_work_side_by_side_do_not_add_up_to_jitter(tmp_path: Path) -> None:
    """Each of many pairs waits a little for one of its two: all of them do so at the same time."""
    pairs = Fleet(ranks=24, steps=3, forward=8, backward=16, tensor_parallel=2, noise=0.03)
    assert report_of(write_fleet(pairs, tmp_path / "none")).straggler is None
    fleet = replace(pairs, fault=Fault("slow_loader", ranks=(5,)))
    found = report_of(write_fleet(fleet, tmp_path / "one")).straggler
    assert found is not None and found.rank == 5
    assert found.costs_ms_per_step == pytest.approx(cost_us(fleet) / 1e3, rel=NEAR)


@pytest.mark.slow
def test_the_clocks_doubts_of_groups_side_by_side_do_not_add_up(tmp_path: Path) -> None:
    fleet = Fleet(ranks=32, steps=3, buckets=8, forward=16, backward=32, kernel_us=20.0)
    fleet = replace(fleet, tensor_parallel=2, fault=Fault("slow_loader", ranks=(7,)))
    analysis = analyse_files(write_fleet(fleet, tmp_path))
    waits = analysis.costs.waits
    of_one_ns = waits.spread_ns[waits.matched.there[:, 7]].sum() / fleet.steps
    assert analysis.costs.doubt_ms(range(32)) == pytest.approx(of_one_ns / 1e6, rel=0.2)
    assert analysis.report.straggler is not None and analysis.report.straggler.rank == 7
