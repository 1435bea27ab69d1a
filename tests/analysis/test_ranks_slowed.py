"""Slowdown of kernels beside collectives: by hand, and in simulated trainings."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fleet.simulation import GEMM as PRODUCT
from benchmarks.fleet.simulation import Fault, Fleet, cost_us
from profiling.analysis.analysis import Analysis
from profiling.analysis.gpu_time.slowed import (
    KernelSlowdown,
    alone_ns,
    launches_of,
    measure_slowdown,
)
from profiling.analysis.ranks.files import DETECT, read_file
from profiling.analysis.ranks.summary import analyse
from profiling.analysis.runs.run_clocks import RunClocks
from tests.helpers.fleet import TOOLS, analyse_files, report_of, write_fleet
from tests.helpers.programs import ADD, GEMM, US, Builder
from tests.paths import CAPTURES

NEAR = 0.15  # of what removing the fault gives
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
SLOW = Fleet(ranks=4, slowdown=1.8)
HIDDEN = replace(SLOW, fault=Fault("slow_loader", loader_us=1300))  # what slows hides all of it
# others wait from backward's first bucket on until its end
THROUGHOUT = replace(SLOW, head=True, fault=Fault("slow_loader", loader_us=8000))
WAITING = [0, 2, 3]
Times = list[tuple[int, int]]


def measure(kernels: list[tuple[int, int, str, int]], collectives: Times) -> KernelSlowdown:
    """Kernels are (start, end, name, blocks), all times in microseconds."""
    build = Builder()
    build.range(0, kernels[-1][1] * US, "iteration 0")
    for start, end, name, blocks in kernels:
        build.operation(start * US, end * US, name, blocks=blocks)
    for start, end in collectives:
        build.operation(start * US, end * US, NCCL, stream=8)
    analysis = Analysis(build.trace())
    owned = analysis.owned
    assert owned is not None
    rows = np.flatnonzero(owned.name != analysis.trace.names.index(NCCL))
    starts, ends = np.array(collectives).T * US
    launches = launches_of(owned, rows, starts, ends)
    return measure_slowdown(launches, alone_ns(launches))


def alone(count: int = 3, us: int = 10, name: str = GEMM, blocks: int = 132) -> list:
    """Kernels that are over before 1000."""
    return [(20 * n, 20 * n + us, name, blocks) for n in range(count)]


def test_a_kernel_is_held_against_the_median_of_those_beside_none() -> None:
    kernels = [*alone(us=10), (100, 150, GEMM, 132), (1000, 1017, GEMM, 132)]
    told = measure(kernels, [(990, 1100)])
    assert told.kernel_ns.tolist() == [0, 0, 0, 0, 7 * US]
    assert told.collective_ns.tolist() == [7 * US]


def test_collectives_share_by_the_time_beside_them_and_the_first_to_end_of_two_counts() -> None:
    kernels = [*alone(us=20), (1000, 1060, GEMM, 132)]
    shares = measure(kernels, [(990, 1010), (1020, 1050), (1030, 1040)]).collective_ns
    assert shares == pytest.approx(np.array([10, 20, 10]) * US)
    assert measure(kernels, [(2000, 2010)]).collective_ns.tolist() == [0]


def test_a_kernel_is_slowed_by_no_more_than_it_is_beside() -> None:
    told = measure([*alone(us=10), (1000, 1050, GEMM, 132)], [(1045, 1100)])
    assert told.collective_ns.tolist() == [5 * US]


@pytest.mark.parametrize(
    "others",
    [
        alone(count=2),
        [*alone(count=2), (600, 610, GEMM, 264)],
        [*alone(count=2), (600, 610, ADD, 132)],
    ],
    ids=["too few", "another grid", "another kernel"],
)
def test_what_is_not_known_counts_as_not_slowed(others: list) -> None:
    assert measure([*others, (1000, 1050, GEMM, 132)], [(990, 1100)]).collective_ns.tolist() == [0]


def test_what_is_faster_cancels_what_is_slower() -> None:
    kernels = [*alone(us=10), (1000, 1014, GEMM, 132), (1020, 1026, GEMM, 132)]
    assert measure(kernels, [(990, 1100)]).collective_ns.tolist() == [0]
    one_each = measure([*kernels, (1200, 1211, GEMM, 132)], [(990, 1100), (1190, 1300)])
    assert one_each.kernel_ns.tolist() == [0, 0, 0, 4 * US, -4 * US, 1 * US]
    assert one_each.collective_ns.tolist() == [0, 1 * US]


def test_noise_is_no_slowdown() -> None:
    took_us = np.rint(np.random.default_rng(1).normal(100, 5, 400)).astype(int).tolist()
    kernels = [(200 * n, 200 * n + us, GEMM, 132) for n, us in enumerate(took_us)]
    told = measure(kernels, [(200 * n - 10, 200 * n + 160) for n in range(1, 400, 2)])
    assert told.collective_ns.sum() < 0.025 * sum(took_us[1::2]) * US


@pytest.mark.parametrize("tool", TOOLS)
def test_a_straggler_whose_waits_are_hidden_is_found_and_costs_what_it_costs(
    tmp_path: Path, tool: str
) -> None:
    report = report_of(write_fleet(HIDDEN, tmp_path, tool))
    late = report.straggler
    assert late is not None and (late.rank, late.part) == (1, "data")
    true_ms = cost_us(HIDDEN) / 1e3
    assert late.costs_ms_per_step == pytest.approx(true_ms, rel=NEAR)
    for row in report.ranks:
        told = row.communication
        assert told.exposed_wait_ms is not None and told.slowed_by_wait_ms is not None
        if row.rank != late.rank:
            assert told.exposed_wait_ms < 0.25 * true_ms
            assert 0.75 * true_ms < told.slowed_by_wait_ms < told.slowed_ms
    assert "slow these kernels down by" in late.evidence[-1]


def test_extra_products_on_an_h200_are_found_though_every_wait_is_hidden() -> None:
    """Extra products take 4.08 ms a step; what rank 0 waits for them shows in its kernels alone."""
    report = report_of(sorted((CAPTURES / "ranks" / "hidden_waits").iterdir()))
    late, other = report.straggler, report.ranks[0].communication
    assert late is not None and (late.rank, late.because) == (1, "gpu_compute")
    assert (late.part, late.phase, late.work) == ("compute", "forward", "more_kernels")
    assert 3.5 < late.costs_ms_per_step < 4.1 and 3.5 < late.longer_ms < 4.2
    assert other.exposed_wait_ms is not None and other.exposed_wait_ms < 0.05
    assert other.slowed_by_wait_ms is not None and other.slowed_by_wait_ms > 3.5
    (advice,) = late.next
    assert advice.startswith("Find what launches these kernels on rank 1")
    (product,) = late.kernels  # 24 were planted
    assert product.name.startswith("nvjet_sm90_tst_256x128_64x4") and product.more == 24
    assert 3.9 < product.longer_ms < 4.3
    assert late.evidence[1].endswith(f" Mainly: {product.name} (24 more per step, 4.07 ms).")


@pytest.mark.parametrize("kind", ["larger_kernels", "slower_kernels"])
def test_kernels_that_are_longer_are_told_from_slowed_ones(tmp_path: Path, kind) -> None:
    fleet = replace(SLOW, fault=Fault(kind, times=1.1, ranks=(2,)))
    late = report_of(write_fleet(fleet, tmp_path)).straggler
    assert late is not None and (late.rank, late.part, late.work) == (2, "compute", kind)
    assert late.costs_ms_per_step == pytest.approx(cost_us(fleet) / 1e3, rel=NEAR)
    assert late.longer_ms == pytest.approx(late.costs_ms_per_step, rel=NEAR)


def test_what_collectives_slow_is_what_the_simulation_computed_longer(tmp_path: Path) -> None:
    fleet = replace(HIDDEN, noise=0.0)
    analysis = analyse_files(write_fleet(fleet, tmp_path))
    work_us = (fleet.forward + fleet.backward + fleet.optimizer) * fleet.kernel_us + 5
    for row in analysis.report.ranks:
        longer_ms = row.compute_ms - work_us / 1e3
        assert row.communication.slowed_ms == pytest.approx(longer_ms, abs=0.05)


def test_a_rank_that_waits_all_through_backward_is_held_against_the_others(tmp_path: Path) -> None:
    analysis = analyse_files(write_fleet(replace(THROUGHOUT, noise=0.0), tmp_path))
    fleet, report = THROUGHOUT, analysis.report
    work_us = (fleet.forward + fleet.backward + fleet.optimizer) * fleet.kernel_us + 5
    for number in WAITING:
        rank, row = analysis.ranks[number], report.ranks[number]
        slowed_ms = row.communication.slowed_ms
        assert np.isnan(rank.alone.ns[rank.alone.unmeasured.kind]).all()
        assert slowed_ms == pytest.approx(row.compute_ms - work_us / 1e3, rel=0.02)
        assert slowed_ms > 0.3 * fleet.backward * fleet.kernel_us / 1e3
        backward_ms = rank.phase_ns["backward"].mean() / 1e6
        assert backward_ms == pytest.approx(fleet.backward * fleet.kernel_us / 1e3, rel=0.02)
        product_ms = rank.kernels[PRODUCT].ns / 1e6 / fleet.steps
        assert product_ms == pytest.approx(0.75 * (fleet.forward + fleet.backward) / 10, rel=0.02)
    late = report.straggler
    assert late is not None and (late.rank, late.part) == (1, "data")
    assert late.costs_ms_per_step == pytest.approx(cost_us(fleet) / 1e3, rel=0.02)


def test_a_gpu_of_another_name_tells_nothing_of_this_one(tmp_path: Path) -> None:
    """Rank 1 alone tells how long backward's kernels take, and rank 0 has such a GPU."""
    paths, clocks = write_fleet(THROUGHOUT, tmp_path), RunClocks({})
    ranks = [read_file(path, DETECT, clocks).ranks[0] for path in paths]
    others = [replace(rank, gpu="NVIDIA H100") if rank.rank > 1 else rank for rank in ranks]
    slowed_ms = [row.communication.slowed_ms for row in analyse(others).report.ranks]
    assert slowed_ms[0] > 2 and slowed_ms[2:] == [0, 0]


def test_what_no_rank_ran_beside_no_collective_counts_as_not_slowed(tmp_path: Path) -> None:
    fleet = replace(SLOW, head=True, transfer_us=40_000)
    for row in report_of(write_fleet(fleet, tmp_path)).ranks:
        assert row.compute_ms > 1.2 * (fleet.forward + fleet.backward + fleet.optimizer) / 10
        assert row.communication.slowed_ms == 0


@pytest.mark.parametrize("buckets, transfer_us", [(0, 400), (4, 400), (4, 2500)])
def test_slow_transfers_of_all_ranks_hold_nobody_up(
    tmp_path: Path, buckets: int, transfer_us: float
) -> None:
    fleet = replace(SLOW, buckets=buckets, transfer_us=transfer_us)
    report = report_of(write_fleet(fleet, tmp_path))
    assert (report.verdict, report.straggler) == ("balanced", None)
    assert report.jitter_ms_per_step is not None and report.jitter_ms_per_step < 0.1
    if buckets:
        slowed_ms = [row.communication.slowed_ms for row in report.ranks]
        assert min(slowed_ms) > 0.25 * transfer_us / 1e3
