"""Late ranks, the reason and the cost: in simulated trainings whose fault is known."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fleet.files import FileFacts, clocks_of_hosts
from benchmarks.fleet.simulation import Fault, Fleet, cost_us
from profiling.analysis.ranks.cause_said import launches_line
from profiling.report.ranks.document import ranks_document
from profiling.report.renderers.markdown import markdown
from profiling.shared.causes import BUSY_GPU_VERDICTS
from profiling.shared.json_records import to_json
from profiling.shared.manifest import Laps, Manifest, WindowSteps
from tests.helpers.fleet import TOOLS, analyse_files, report_of, write_fleet
from tests.helpers.reports import MANIFEST

NEAR = 0.15  # of what removing the fault gives
LAUNCHING = Fleet(ranks=4, kernel_us=15, buckets=0)  # the host is as slow as the GPU
SLOW = 3.0  # launches; on a host that is half as fast, what is recorded may cost all that is late
FOUR = Fleet(ranks=4)
COMPUTES = tuple(BUSY_GPU_VERDICTS)
# of each fault: the program, and the cause, part, phase and work to be named
STRAGGLERS = {
    "more kernels": (
        replace(FOUR, fault=Fault("more_kernels", ranks=(2,))),
        (COMPUTES, "compute", "backward", "more_kernels"),
    ),
    "larger grids": (
        replace(FOUR, fault=Fault("larger_kernels", ranks=(3,))),
        (COMPUTES, "compute", "backward", "larger_kernels"),
    ),
    "slower kernels": (
        replace(FOUR, fault=Fault("slower_kernels", ranks=(0,))),
        (COMPUTES, "compute", "backward", "slower_kernels"),
    ),
    "slower kernels, nothing hidden": (
        replace(FOUR, buckets=0, fault=Fault("slower_kernels")),
        (COMPUTES, "compute", "backward", "slower_kernels"),
    ),
    "slow launches": (
        replace(LAUNCHING, fault=Fault("slow_launches", times=SLOW)),
        (("launch",), "launch", None, None),
    ),
    "slow loader": (
        replace(FOUR, fault=Fault("slow_loader")),
        (("data",), "data", None, None),
    ),
    "slow loader in each fourth step": (
        replace(FOUR, fault=Fault("slow_loader", every=4, loader_us=4000)),
        (("data",), "data", None, None),
    ),
    "of two groups": (
        Fleet(tensor_parallel=2, fault=Fault("slower_kernels", ranks=(5,))),
        (COMPUTES, "compute", "backward", "slower_kernels"),
    ),
    "slow loader of two groups": (
        Fleet(tensor_parallel=2, fault=Fault("slow_loader", ranks=(4,))),
        (("data",), "data", None, None),
    ),
}


CASES = [
    pytest.param(tool, name, id=f"{tool}, {name}")
    for tool in TOOLS
    for name, (fleet, _) in STRAGGLERS.items()
    if tool == "kineto" or fleet.tensor_parallel == 1  # nsys does not name process groups
]


@pytest.mark.parametrize("tool, name", CASES)
def test_the_fault_its_rank_and_its_cost_are_named(tmp_path: Path, tool: str, name: str) -> None:
    fleet, (causes, part, phase, work) = STRAGGLERS[name]
    report = report_of(write_fleet(fleet, tmp_path, tool))
    found, fault = report.straggler, fleet.fault
    assert report.verdict == "straggler" and found is not None and fault is not None
    assert (found.rank, found.with_ranks) == (fault.ranks[0], [])
    assert found.because in causes
    assert (found.part, found.phase, found.work) == (part, phase, work)
    assert (found.in_steps, found.of_steps) == (fleet.steps // fault.every, fleet.steps)
    true_ms = cost_us(fleet) / 1e3
    assert found.costs_ms_per_step == pytest.approx(true_ms, rel=NEAR)
    low_ms, high_ms = found.costs_between_ms
    assert low_ms < true_ms < high_ms


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("kind, cause", [("slow_loader", "data"), ("slow_host", "cpu")])
def test_of_a_pair_the_rank_whose_host_is_slow_has_that_cause(tmp_path, tool, kind, cause) -> None:
    """The host of rank 1 takes 54 ms longer of some 60."""
    fleet = Fleet(ranks=2, fault=Fault(kind, loader_us=54_000))
    report = report_of(write_fleet(fleet, tmp_path, tool))
    late, true_ms = report.straggler, cost_us(fleet) / 1e3
    assert late is not None and (late.rank, late.part, late.because) == (1, cause, cause)
    assert late.costs_ms_per_step == pytest.approx(true_ms, rel=NEAR)
    assert late.costs_between_ms[0] < true_ms < late.costs_between_ms[1]


@pytest.mark.parametrize("tool", TOOLS)
def test_a_rank_that_is_as_slow_as_equal_gpus_may_be_is_not_named(tmp_path, tool) -> None:
    fleet = Fleet(ranks=2, noise=0.0, fault=Fault("slower_kernels", times=1.04))
    report = report_of(write_fleet(fleet, tmp_path, tool))
    assert (report.verdict, report.straggler) == ("balanced", None)
    (line,) = report.evidence
    assert line.startswith("Rank 1 comes last, by 0.19 ms") and line.endswith("so nobody is named.")


SHARDED = Fleet(ranks=2, tensor_parallel=2, buckets=0, kernel_us=10.0, launch_us=20.0)


def test_launches_that_the_profiler_may_have_made_name_nobody(tmp_path: Path) -> None:
    """A pair that meets at every layer, and one of the two launches a tenth slower."""
    facts = FileFacts(clocks_of_hosts(2, 1), operators=True)
    fleet = replace(SHARDED, fault=Fault("slow_launches", times=1.1))
    report = report_of(write_fleet(fleet, tmp_path / "noise", facts=facts))
    assert (report.verdict, report.straggler) == ("unknown", None)
    said, what_next = report.evidence
    assert said.startswith("Rank 1 comes last, by ") and "longer for kernel launches" in said
    assert "Capturing may have added " in said and "nsys" in what_next
    assert "do not show whether a rank delays the others" in markdown(ranks_document(report))
    assert {row.costs_ms_per_step for row in report.ranks} == {None} and not report.steps.costs_ms
    slow = replace(SHARDED, fault=Fault("slow_launches", times=1.6))
    late = report_of(write_fleet(slow, tmp_path / "slow", facts=facts)).straggler
    assert late is not None and (late.rank, late.part) == (1, "launch")
    assert late.costs_between_ms[0] < late.costs_ms_per_step - 0.1
    assert "capturing lengthens the host's work, and may have made " in late.evidence[-1]


@pytest.mark.parametrize(
    "leaves, verdict", [(0.02, "balanced"), (0.1, "unknown"), (-0.1, "unknown"), (None, "unknown")]
)
def test_steps_before_and_after_the_capture_bound_what_it_made_late(
    tmp_path: Path, leaves: float | None, verdict: str
) -> None:
    """`leaves` is the share of such a step in which the other rank's GPU does not compute."""
    fleet = replace(SHARDED, fault=Fault("slow_launches", times=1.1))
    paths = write_fleet(
        fleet,
        tmp_path,
        facts=FileFacts(clocks_of_hosts(2, 1), operators=True),
        name="window-1-rank{}",
    )
    computing_ms = analyse_files(paths).costs.unslowed_ms(0)["compute"]
    if leaves is not None:
        free_ms = computing_ms / (1 - leaves)
        steps = WindowSteps(before=Laps(0.9 * free_ms), after=Laps(free_ms))
        write_manifests(
            paths, replace(MANIFEST, kind="torch", step_ms=steps, overhead_percent=None)
        )
    report = report_of(paths)
    assert (report.verdict, report.straggler) == (verdict, None)
    assert "Capturing may have added " in report.evidence[0]
    bounds = [line for line in report.evidence if line.startswith("Before and after the capture")]
    assert len(bounds) == (leaves is not None and leaves > 0)
    if bounds:
        assert f"costs them at most {leaves * free_ms:.2f} ms per step" in bounds[0]
        assert bounds[0].endswith("nobody is named.") == (verdict == "balanced")
    assert report.evidence[-1].startswith("To find out, ") == (verdict == "unknown")


def write_manifests(captures: Sequence[Path], manifest: Manifest) -> None:
    for path in captures:
        beside = path.with_name(path.name.replace(".trace.json", ".json"))
        beside.write_text(to_json(manifest), encoding="utf-8")


def test_a_cost_that_slowed_hosts_hide_is_in_the_range(tmp_path: Path) -> None:
    """Rank 1 computes more, but hosts that a profiler slows launch too late for it to show."""
    facts = FileFacts(clocks_of_hosts(2, 1), operators=True)
    fault = Fault("slower_kernels", times=1.6)
    captured = Fleet(ranks=2, buckets=0, kernel_us=11.0, launch_us=16.0, fault=fault)
    late = report_of(write_fleet(captured, tmp_path, facts=facts)).straggler
    assert late is not None and (late.rank, late.part) == (1, "compute")
    free = replace(captured, launch_us=8.0)
    true_ms = cost_us(free) / 1e3
    assert late.costs_ms_per_step < 0.6 * true_ms < true_ms < late.costs_between_ms[1]
    assert "the others' hosts, which capturing may slow, hold them up too" in late.evidence[-1]


def test_who_is_last_in_all_collectives_is_named_though_their_ends_differ(tmp_path: Path) -> None:
    fleet = Fleet(ranks=2, steps=12, buckets=1, leave_us=400.0, noise=0.0)
    fleet = replace(fleet, fault=Fault("slow_loader", loader_us=900))
    analysis = analyse_files(write_fleet(fleet, tmp_path))
    late = analysis.report.straggler
    assert late is not None and late.rank == 1
    assert late.costs_between_ms[0] < cost_us(fleet) / 1e3 < late.costs_between_ms[1]


def test_a_slow_host_is_told_from_one_that_launches_more(tmp_path: Path) -> None:
    slow = replace(LAUNCHING, fault=Fault("slow_launches", times=SLOW, ranks=(1,)))
    analysis = analyse_files(write_fleet(slow, tmp_path))
    late = analysis.report.straggler
    assert late is not None and late.rank == 1
    assert "launches no more kernels than the others (" in late.evidence[1]
    mine, others = analysis.ranks[1], [analysis.ranks[0], analysis.ranks[2]]
    twice = {name: replace(work, count=2 * work.count) for name, work in mine.kernels.items()}
    said = launches_line(replace(mine, kernels=twice), others)
    count = round(mine.launches)
    assert said == f"Its host launches more kernels: {2 * count} per step, the others {count}."


@pytest.mark.parametrize("seed", (1, 3, 5))
@pytest.mark.parametrize("kind", ["more_kernels", "slow_loader"])
def test_the_cost_of_bucketed_faults_of_any_seed(tmp_path: Path, kind, seed: int) -> None:
    fleet = Fleet(ranks=3, steps=5, buckets=seed, seed=seed, noise=0.03, fault=Fault(kind))
    found = report_of(write_fleet(fleet, tmp_path)).straggler
    assert found is not None and found.rank == 1
    assert found.costs_ms_per_step == pytest.approx(cost_us(fleet) / 1e3, rel=NEAR)


GROUPS = Fleet(steps=8, forward=8, backward=16, optimizer=4)
LOADER = Fault("slow_loader", ranks=(3,), loader_us=600)
SLOWER = Fault("slower_kernels", ranks=(3,), times=1.15)
LARGER = Fault("larger_kernels", ranks=(3,), times=1.5)
IN_GROUPS = [  # each two of ranks by groups, buckets by slowdown, and fault meet once
    (4, 2, 0, 1.0, LOADER),
    (4, 2, 4, 1.0, SLOWER),
    (4, 2, 4, 1.6, LARGER),
    (8, 2, 0, 1.0, SLOWER),
    (8, 2, 4, 1.0, LARGER),
    (8, 2, 4, 1.6, LOADER),
    (8, 4, 0, 1.0, LARGER),
    (8, 4, 4, 1.0, LOADER),
    (8, 4, 4, 1.6, SLOWER),
]


@pytest.mark.slow
@pytest.mark.parametrize("ranks, tensor_parallel, buckets, slowdown, fault", IN_GROUPS)
def test_the_cost_in_groups_of_groups(
    tmp_path: Path, ranks: int, tensor_parallel: int, buckets: int, slowdown: float, fault: Fault
) -> None:
    """Noise in each of many collectives of pairs is not the late rank's."""
    fleet = replace(GROUPS, ranks=ranks, tensor_parallel=tensor_parallel, buckets=buckets)
    fleet = replace(fleet, slowdown=slowdown, fault=fault)
    found = report_of(write_fleet(fleet, tmp_path)).straggler
    assert found is not None and (found.rank, found.with_ranks) == (3, [])
    assert found.costs_ms_per_step == pytest.approx(cost_us(fleet) / 1e3, rel=0.12)


@pytest.mark.parametrize("ranks, tensor_parallel", [(8, 2), (8, 4)])
@pytest.mark.parametrize("buckets", [0, 4])
def test_where_another_group_would_have_been_waited_for_only_what_is_left_counts(
    tmp_path: Path, ranks: int, tensor_parallel: int, buckets: int
) -> None:
    """Some rank of another group is late too, each step another one."""
    fault = Fault("larger_kernels", ranks=(7,), times=1.5)
    fleet = replace(GROUPS, ranks=ranks, tensor_parallel=tensor_parallel, buckets=buckets)
    fleet = replace(fleet, jitter_us=300.0, fault=fault)
    found = report_of(write_fleet(fleet, tmp_path)).straggler
    assert found is not None and found.rank == 7
    assert found.costs_ms_per_step == pytest.approx(cost_us(fleet) / 1e3, rel=NEAR)


@pytest.mark.slow
def test_a_late_rank_s_own_jitter_is_not_what_mending_it_would_gain(tmp_path: Path) -> None:
    """Each step some rank comes 0.3 ms later, the late one as often as the others, by and large."""
    fault = Fault("slow_loader", ranks=(1,), loader_us=600)
    fleets = [
        replace(GROUPS, ranks=4, steps=20, jitter_us=300.0, seed=seed, fault=fault)
        for seed in range(4)
    ]
    found = [report_of(write_fleet(f, tmp_path / str(f.seed))).straggler for f in fleets]
    told_ms = [late.costs_ms_per_step for late in found if late and late.rank == 1]
    true_ms = [cost_us(fleet) / 1e3 for fleet in fleets]
    assert told_ms == pytest.approx(true_ms, rel=0.25)
    assert sum(told_ms) == pytest.approx(sum(true_ms), rel=0.12)


def test_two_equal_stragglers_are_named_together(tmp_path: Path) -> None:
    fleet = Fleet(fault=Fault("slower_kernels", ranks=(2, 6)))
    found = report_of(write_fleet(fleet, tmp_path)).straggler
    assert found is not None and {found.rank, *found.with_ranks} == {2, 6}
    assert found.costs_ms_per_step == pytest.approx(cost_us(fleet) / 1e3, rel=NEAR)
    assert found.evidence[0].startswith(f"Ranks {found.rank} and {found.with_ranks[0]} delay")


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("buckets", [0, 4])
def test_without_a_fault_nobody_is_blamed(tmp_path: Path, tool: str, buckets: int) -> None:
    report = report_of(write_fleet(replace(FOUR, buckets=buckets), tmp_path, tool))
    assert (report.verdict, report.straggler) == ("balanced", None)
    assert report.jitter_ms_per_step is not None and report.jitter_ms_per_step < 0.1


@pytest.mark.parametrize("buckets", [0, 4])
def test_a_slow_link_is_communication_and_no_rank(tmp_path: Path, buckets: int) -> None:
    fault = Fault("slow_link", times=20.0 if buckets else 6.0)
    report = report_of(write_fleet(replace(FOUR, buckets=buckets, fault=fault), tmp_path))
    assert (report.verdict, report.straggler) == ("communication", None)
    for row in report.ranks:
        assert row.communication.wait_ms is not None and row.communication.transfer_ms is not None
        assert row.communication.transfer_ms > 20 * row.communication.wait_ms


def test_clocks_that_differ_by_more_than_the_lateness_make_no_claim(tmp_path: Path) -> None:
    fault = Fault("slower_kernels", times=1.06)
    sure = replace(FOUR, fault=fault)
    assert report_of(write_fleet(sure, tmp_path / "sure")).verdict == "straggler"
    unsure = replace(sure, leave_us=300.0)
    report = report_of(write_fleet(unsure, tmp_path / "unsure"))
    assert (report.verdict, report.straggler) == ("unknown", None)
    assert "do not show" in report.evidence[0]


def test_groups_that_no_capture_names_make_no_claim(tmp_path: Path) -> None:
    fleet = Fleet(tensor_parallel=2, fault=Fault("slow_loader", ranks=(3,)))
    facts = FileFacts(clocks_of_hosts(8, 1), sequence=False, groups=False)
    report = report_of(write_fleet(fleet, tmp_path, facts=facts))
    assert (report.verdict, report.straggler) == ("unknown", None)
    assert "may form groups" in report.evidence[0]
    assert "ranks 0, 1, 2, 3, 4, 5, 6, 7 name no process groups" in report.evidence[1]
    for row in report.ranks:
        shares = row.shares_percent
        assert (shares.wait, row.costs_ms_per_step) == (None, None) and shares.compute > 50
        whole = shares.compute + shares.communication + shares.copy + shares.idle
        assert whole == pytest.approx(100)
    assert "Shares of a step; waits are not known" in markdown(ranks_document(report))


def test_who_only_passes_lateness_on_costs_nothing(tmp_path: Path) -> None:
    """Rank 4 shares its layers with 5, which is late; so 4 comes late to its other group."""
    fleet = Fleet(tensor_parallel=2, fault=Fault("slow_loader", ranks=(5,)))
    rows = {row.rank: row for row in report_of(write_fleet(fleet, tmp_path)).ranks}
    assert rows[5].costs_ms_per_step == pytest.approx(cost_us(fleet) / 1e3, rel=NEAR)
    assert rows[4].costs_ms_per_step is not None and rows[4].costs_ms_per_step < 0.1


def test_a_rank_with_other_kernels_of_the_same_number_has_larger_ones(tmp_path: Path) -> None:
    """Other kernels may be chosen for a larger share."""
    fleet = replace(FOUR, fault=Fault("larger_kernels"))
    paths = write_fleet(fleet, tmp_path)
    other = paths[1].read_text("utf-8").replace("192x128_64x5", "256x128_64x4")
    paths[1].write_text(other, "utf-8")
    found = report_of(paths).straggler
    assert found is not None and found.work == "larger_kernels"


def test_persistent_kernels_tell_nothing_by_their_grids(tmp_path: Path) -> None:
    """A block for each of 132 multiprocessors, whatever there is to do: the others tell why."""
    fleet = replace(FOUR, fault=Fault("larger_kernels"))
    paths = write_fleet(fleet, tmp_path)
    for path in paths:
        trace = json.loads(path.read_text("utf-8"))
        for event in trace["traceEvents"]:
            if event.get("cat") == "kernel" and event["name"].startswith("nvjet"):
                event["args"]["grid"] = [132, 1, 1]
        path.write_text(json.dumps(trace), "utf-8")
    found = report_of(paths).straggler
    assert found is not None and found.work == "larger_kernels"


def test_clocks_are_aligned_to_within_their_noise(tmp_path: Path) -> None:
    clocks = clocks_of_hosts(8, 2)
    assert np.ptp(clocks) > 3600e6
    fleet = Fleet(leave_us=5.0, fault=Fault("slow_loader"))
    report = report_of(write_fleet(fleet, tmp_path, facts=FileFacts(clocks)))
    for row in report.ranks:
        assert row.clock_offset_us == pytest.approx(clocks[row.rank] - clocks[0], abs=5.0)
    assert report.clock.uncertainty_us is not None and 5 < report.clock.uncertainty_us < 25
    assert report.clock.aligned_on == "the ends of 32 collectives"


def test_a_transfer_is_the_time_of_the_last_to_come(tmp_path):
    """A transfer does not end when the first has left: ranks leave rings one after the other."""
    fleet = Fleet(ranks=4, steps=40, buckets=0, transfer_us=400.0, leave_us=150.0)
    (collective,) = report_of(write_fleet(fleet, tmp_path)).collectives
    assert collective.transfer_ms == pytest.approx(0.4 + 0.15, abs=0.06)  # the first: 0.44
    crosses = 2 * 3 / 4 * collective.bytes
    assert collective.bus_gb_per_s == pytest.approx(crosses / collective.transfer_ms / 1e6, rel=0.2)
