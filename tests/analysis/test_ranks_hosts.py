"""Late ranks with slow hosts: what the hosts of others leave to gain, and whom that spares."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from benchmarks.fleet.simulation import Fault, Fleet, cost_us
from profiling.analysis.analysis import Analysis
from profiling.analysis.gpu_time import idle
from profiling.analysis.ranks.cause import is_slow_host
from profiling.analysis.ranks.collective_waits import Waits
from profiling.analysis.ranks.own_host import OwnHost, chance_ms, own_host, surely_slower
from profiling.analysis.ranks.rank_records import RanksReport
from profiling.analysis.ranks.reduce import ReducedRank
from profiling.analysis.ranks.summary import LATE_FIRST, analyse, compared_iterations
from tests.helpers.captures import trace_of
from tests.helpers.fleet import TOOLS, analyse_files, report_of, write_fleet

# hosts that launch step after step, and take twice as long as their GPUs
AHEAD = Fleet(ranks=2, ahead=True, buckets=0, kernel_us=10.0, launch_us=20.0)
SLOW = replace(AHEAD, fault=Fault("slow_launches", times=1.6))


@pytest.mark.parametrize("tool", TOOLS)
def test_a_host_that_is_slow_itself_bounds_what_is_gained(tmp_path: Path, tool: str) -> None:
    """The others' host runs ahead, so that they wait for the whole of the late rank's host."""
    late = report_of(write_fleet(SLOW, tmp_path, tool)).straggler
    assert late is not None and (late.rank, late.because) == (1, "launch")
    slower_ms = 2 * cost_us(SLOW) / 1e3  # the mean over the two hosts, of which one is slowed
    assert late.costs_ms_per_step == pytest.approx(slower_ms, rel=0.05)
    assert late.costs_between_ms[0] < slower_ms < late.costs_between_ms[1]
    (line,) = (text for text in late.evidence if text.startswith("The others wait"))
    waited_ms = float(line.split()[3])
    assert waited_ms > 1.5 * slower_ms


def test_long_launches_with_an_idle_gpu_are_the_hosts_own(tmp_path: Path) -> None:
    """A host that is held up inside of its launches has not met a full queue."""
    fleet = replace(AHEAD, fault=Fault("slow_launches", times=30.0))  # calls of 0.36 ms
    late = report_of(write_fleet(fleet, tmp_path, "nsys")).straggler
    assert late is not None and late.rank == 1
    assert late.costs_ms_per_step == pytest.approx(2 * cost_us(fleet) / 1e3, rel=0.05)


def test_a_rank_late_in_some_steps_costs_more_than_the_median_step(tmp_path: Path) -> None:
    """The mean cost lies in its range, also where most steps are much shorter."""
    fault = Fault("slow_host", every=3, loader_us=30_000.0)
    fleet = replace(AHEAD, ahead=False, steps=30, fault=fault)
    analysis = analyse_files(write_fleet(fleet, tmp_path, "nsys"))
    late = analysis.report.straggler
    assert late is not None and late.costs_ms_per_step > analysis.costs.step_ms
    low_ms, high_ms = late.costs_between_ms
    assert low_ms < cost_us(fleet) / 1e3 < high_ms


def hosts_set(
    folder: Path, own: Callable[[Sequence[ReducedRank]], list[OwnHost | None]]
) -> RanksReport:
    """Report on SLOW with other hosts' times."""
    ranks = analyse_files(write_fleet(SLOW, folder, "nsys")).ranks
    pairs = zip(ranks, own(ranks), strict=True)
    return analyse([replace(rank, own_host=host) for rank, host in pairs]).report


def test_hosts_that_take_equally_long_name_nobody(tmp_path: Path) -> None:
    report = hosts_set(tmp_path, lambda ranks: [ranks[1].own_host, ranks[1].own_host])
    assert report.straggler is None and report.verdict != "jitter"
    assert report.evidence[0].startswith("Rank 1 comes last, by 1.56 ms per step, but the others")
    assert "the slowest of their own hosts takes 2.94 ms" in report.evidence[0]


def test_hosts_that_differ_by_no_more_than_their_steps_name_nobody(tmp_path: Path) -> None:
    def noisy(ranks: Sequence[ReducedRank]) -> list[OwnHost | None]:
        late = ranks[1].own_host
        assert late is not None
        shares = np.array([0.6, 1.3, 0.7, 1.0, 0.6, 1.2, 0.7, 0.9])
        return [OwnHost(late.step_ns * shares, 0.0), late]

    report = hosts_set(tmp_path, noisy)
    assert report.straggler is None
    assert "which differ by no more than the steps of each" in report.evidence[0]


def test_without_the_hosts_times_a_late_rank_is_named_as_before(tmp_path: Path) -> None:
    late = hosts_set(tmp_path, lambda ranks: [None, None]).straggler
    assert late is not None and late.rank == 1
    assert late.costs_ms_per_step == pytest.approx(1.56, abs=0.01)


def test_more_work_is_named_though_hosts_are_slow(tmp_path: Path) -> None:
    """The program launches too slowly for it to matter by much, but each step has it."""
    fleet = replace(AHEAD, fault=Fault("more_kernels", times=1.5))
    late = report_of(write_fleet(fleet, tmp_path, "nsys")).straggler
    assert late is not None and (late.rank, late.part, late.work) == (1, "compute", "more_kernels")
    assert late.because == "gpu_compute"
    assert late.costs_ms_per_step == pytest.approx(0.24, abs=0.02)  # 24 kernels of 10 us
    assert late.costs_between_ms[0] == 0
    assert "capturing slows, may hide 0.24 ms of this work" in late.evidence[-1]


def test_nobody_is_named_for_less_than_hosts_differ_by_and_the_gain_is_said(tmp_path: Path) -> None:
    """The others wait much longer than they would gain, so the gain is what is compared."""
    fault = Fault("slow_loader", loader_us=800.0)
    noisy = replace(AHEAD, noise=0.1, launch_us=12.0, loader_us=6000.0, fault=fault)
    report = report_of(write_fleet(noisy, tmp_path, "nsys"))
    assert (report.straggler, report.verdict) == (None, "unknown")
    assert "ms per step, of which the others would gain" in report.evidence[0]
    assert "Hosts with the same work may differ by" in report.evidence[0]


class Waited:
    """Stands in for Waits: what two ranks wait in each step, in ms."""

    lost_wait_ns = None

    def __init__(self, *ms: tuple[float, float]) -> None:
        self.ns = 1e6 * np.array(ms)

    def sum_by_step(self, *_: object) -> np.ndarray:
        return self.ns


@pytest.mark.parametrize(
    "waited_ms, is_left_out",
    [
        ([(70, 0), (3, 0), (2, 0), (3, 0), (2, 0)], True),
        ([(4, 0), (3, 0), (2, 0), (3, 0), (2, 0)], False),
        ([(70, 0), (0, 60), (2, 0), (3, 0), (2, 0)], False),  # another step has as much
        ([(0.1, 0), (0, 0), (0, 0), (0, 0), (0, 0)], False),  # too little of a step
        ([(70, 0), (3, 0), (2, 0), (3, 0)], False),  # too few steps to tell
    ],
)
def test_a_first_step_in_which_one_rank_waits_much_longer_is_left_out(
    tmp_path: Path, waited_ms: list[tuple[float, float]], is_left_out: bool
) -> None:
    """Capturing does not begin on all ranks at once."""
    fleet = Fleet(ranks=2, steps=len(waited_ms), kernel_us=200.0)  # steps of 16 ms
    ranks = analyse_files(write_fleet(fleet, tmp_path)).ranks
    iterations, findings = compared_iterations(ranks, cast(Waits, Waited(*waited_ms)))
    assert len(iterations) == len(waited_ms) - is_left_out
    assert [finding.what for finding in findings] == [LATE_FIRST] * is_left_out


@pytest.mark.parametrize(
    "longer, left_out",
    [
        ([(0, 1.4, 1.4), (1, 1.3, 1.2), (2, 1.3, 1.3)], 3),
        ([(0, 1.4, 1.0), (1, 1.4, 1.0)], 0),  # on one rank
        ([(0, 1.4, 1.4), (9, 1.4, 1.4)], 0),  # as a later one is
        ([(number, 1.4, 1.4) for number in range(5)], 0),  # more than a third
    ],
)
def test_first_steps_that_are_longer_than_all_others_are_left_out(
    tmp_path: Path, longer: list[tuple[int, float, float]], left_out: int
) -> None:
    """A profiler's start lengthens several steps."""
    fleet = Fleet(ranks=2, steps=12)
    ranks = analyse_files(write_fleet(fleet, tmp_path)).ranks
    changed = []
    for column, rank in enumerate(ranks):
        lengths_ns = np.full(12, 1e7)
        for number, *times in longer:
            lengths_ns[number] *= times[column]
        bounds_ns = rank.bounds_ns[0] + np.cumsum([0, *lengths_ns]).astype(np.int64)
        changed.append(replace(rank, bounds_ns=bounds_ns))
    iterations, findings = compared_iterations(changed, cast(Waits, Waited(*[(0, 0)] * 12)))
    assert len(iterations) == 12 - left_out and len(findings) == bool(left_out)
    if left_out:
        assert f"the first {left_out} steps are left out" in findings[0].what


@pytest.mark.parametrize(
    "longer, own_host_ms, left_out",
    [
        ({1: 2.0}, {0: (30.0, 30.0), 1: (30.0, 30.0)}, 2),
        ({1: 2.0}, {0: (30.0, 2.0)}, 0),  # one host
        ({1: 2.0}, {}, 0),
        ({}, {0: (30.0, 30.0)}, 0),  # the GPUs hide it
    ],
)
def test_a_step_before_a_long_one_is_left_out_where_its_hosts_took_longer(
    tmp_path: Path,
    longer: dict[int, float],
    own_host_ms: dict[int, tuple[float, float]],
    left_out: int,
) -> None:
    """A GPU that has work queued does not notice at once that capturing begins."""
    changed = []
    for column, rank in enumerate(
        analyse_files(write_fleet(Fleet(ranks=2, steps=12), tmp_path)).ranks
    ):
        lengths_ns, host_ns = np.full(12, 1e7), np.full(12, 2e6)
        for number, times in longer.items():
            lengths_ns[number] *= times
        for number, ms in own_host_ms.items():
            host_ns[number] = 1e6 * ms[column]
        bounds_ns = rank.bounds_ns[0] + np.cumsum([0, *lengths_ns]).astype(np.int64)
        changed.append(replace(rank, bounds_ns=bounds_ns, own_host=OwnHost(host_ns, 0.0)))
    iterations, _ = compared_iterations(changed, cast(Waits, Waited(*[(0, 0)] * 12)))
    assert len(iterations) == 12 - left_out


def test_what_the_others_hosts_were_delayed_by_may_hide_a_cost(tmp_path: Path) -> None:
    """A step that waits for a late rank is no longer by what its own host was delayed."""
    fleet = replace(AHEAD, fault=Fault("slower_kernels", times=3.0))
    ranks = analyse_files(write_fleet(fleet, tmp_path, "nsys")).ranks
    tops_ms = []
    for delayed_ms in (0.0, 0.1):
        parts = [replace(r, most_added_ms=0.0, most_delayed_ms=delayed_ms) for r in ranks]
        late = analyse(parts).report.straggler
        assert late is not None
        tops_ms.append(late.costs_between_ms[1])
    assert tops_ms[1] > tops_ms[0]


def test_equal_hosts_differ_by_their_noise_and_by_a_quarter_at_most() -> None:
    quiet, noisy = np.array([10.0, 10.1, 9.9, 10.0]), np.array([6.0, 14.0, 7.0, 13.0])
    assert chance_ms(quiet) == pytest.approx(3 * quiet.std(ddof=1))
    assert chance_ms(noisy) == 2.5
    assert chance_ms(quiet[:1]) == 2.5  # nothing tells the noise of one step
    assert surely_slower(quiet + 1, quiet) and not surely_slower(noisy + 1, noisy)
    assert surely_slower(quiet[:1] + 1, quiet)


def test_the_waits_of_a_host_are_those_that_its_gaps_know(monkeypatch: pytest.MonkeyPatch) -> None:
    analysis = Analysis(trace_of("flash_compile"), keep_first=True)
    assert analysis.gaps is not None
    monkeypatch.setattr(idle, "host_activity", None)  # it is not asked again
    host = own_host(analysis)
    assert host is not None and host.step_ns.sum() == 15_536_329
    assert host.waits == 4 / 20, "the wait behind the last of 20 steps is in none"


def test_a_host_is_known_where_its_gpus_few_gaps_have_no_cause() -> None:
    with_causes, without = (Analysis(trace_of("flash_compile"), keep_first=True) for _ in "ab")
    vars(without)["gaps"] = None  # as behind launches from before the capture
    known, host = own_host(with_causes), own_host(without)
    assert known is not None and host is not None
    assert host.step_ns.tolist() == known.step_ns.tolist() and host.waits == known.waits
    assert without.owned is not None
    without.owned.call[:] = -1
    assert own_host(without) is None


def test_a_rank_that_alone_waits_for_its_gpu_is_not_one_with_a_slow_host(tmp_path: Path) -> None:
    analysis = analyse_files(write_fleet(SLOW, tmp_path, "nsys"))
    first, second = analysis.ranks
    assert is_slow_host(analysis.costs, [1], "synchronization")
    assert second.own_host is not None
    waiting = replace(second, own_host=OwnHost(second.own_host.step_ns, 1.0))
    costs = replace(analysis.costs, ranks=[first, waiting])
    assert costs.waits_more(1) and not is_slow_host(costs, [1], "synchronization")
    assert is_slow_host(costs, [1], "launch") and not is_slow_host(costs, [1], "data")
