"""Collectives of several ranks: matching them, and who waits in them for how long."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fleet.files import FileFacts, clocks_of_hosts, write_kineto
from benchmarks.fleet.simulation import DATA_PARALLEL_STREAM, Fault, Fleet, cost_us, simulate
from profiling.analysis.columns import first_to_end
from profiling.analysis.ranks.collective_waits import inherited_lateness, waits_elsewhere
from profiling.analysis.ranks.collectives import algorithm_of, kind_of
from profiling.analysis.ranks.summary import RanksAnalysis
from profiling.report.ranks.document import ranks_document, ranks_table
from profiling.report.renderers.page import page
from tests.helpers.fleet import TOOLS, analyse_files, one_clock, report_of, write_fleet
from tests.helpers.fleet_nsys import write_nsys

FAULTY = Fleet(ranks=3, steps=4, buckets=3, fault=Fault("slow_loader"))
BOTH = Fleet(ranks=4, steps=3, tensor_parallel=2, fault=Fault("slow_loader"))


def unmatched(analysis: RanksAnalysis) -> int:
    return analysis.costs.waits.matched.unmatched


@pytest.mark.parametrize("sequence", [True, False])
@pytest.mark.parametrize("groups", [True, False])
def test_with_and_without_numbers_they_are_the_same(tmp_path, sequence, groups) -> None:
    facts = FileFacts(clocks_of_hosts(3, 1), sequence=sequence, groups=groups)
    analysis = analyse_files(write_fleet(FAULTY, tmp_path, facts=facts))
    assert unmatched(analysis) == 0
    assert len(analysis.costs.waits.matched.iteration) == 4 * 3
    found = analysis.report.straggler
    assert found is not None and found.rank == 1


def test_captures_that_tell_groups_and_numbers_are_matched_with_those_that_do_not(tmp_path) -> None:
    paths = write_fleet(FAULTY, tmp_path, ranks=[0, 1]) + write_fleet(
        FAULTY, tmp_path, "nsys", ranks=[2]
    )
    analysis = analyse_files(paths)
    assert unmatched(analysis) == 0 and analysis.clocks.known.all()
    found = analysis.report.straggler
    assert found is not None and found.rank == 1


@pytest.mark.parametrize("alone", [0, 3])
def test_a_rank_without_collectives_leaves_the_others_their_verdict(tmp_path, alone: int) -> None:
    fleet = replace(FAULTY, ranks=4)
    paths = write_fleet(fleet, tmp_path)
    silent = simulate(fleet)
    silent.operations = [each for each in silent.operations if each.group is None]
    write_kineto(silent, alone, paths[alone], FileFacts(clocks_of_hosts(4, 1)))
    report = report_of(paths)
    assert report.straggler is not None and report.straggler.rank == 1
    assert [row.rank for row in report.ranks if row.clock_offset_us is None] == [alone]
    row = report.ranks[alone]
    assert (row.communication.wait_ms, row.costs_ms_per_step, row.last_in_steps) == (None,) * 3
    assert {step[alone] for step in report.steps.wait_ms} == {None}
    assert all(step[1] > 2 for step in report.steps.costs_ms)
    assert f"rank {alone} without values" in page(ranks_document(report))
    rows = ranks_table(report, {}).rows
    assert rows is not None and (rows[0], rows[-1]) == (report.ranks[1], row)
    assert [each.what for each in report.findings] == [
        f"rank {alone} shares no collective with the others, so the report does not say whom "
        "they wait for"
    ]


def test_two_groups_that_share_no_collective_are_told_apart(tmp_path) -> None:
    """Pairs that share layers, and no average of gradients: as replicas that serve."""
    simulation = simulate(replace(FAULTY, ranks=4, tensor_parallel=2, buckets=0))
    simulation.operations = [
        each for each in simulation.operations if each.stream != DATA_PARALLEL_STREAM
    ]
    facts = FileFacts(clocks_of_hosts(4, 1))
    paths = [write_kineto(simulation, n, tmp_path / f"rank{n}.trace.json", facts) for n in range(4)]
    report = report_of(paths)
    assert report.straggler is not None and report.straggler.rank == 1
    assert [row.clock_offset_us is None for row in report.ranks] == [False, False, True, True]
    said = report.findings[0].what
    assert said.startswith("ranks 2, 3 share no collective with the others")
    assert said.endswith("; if there are two runs, name the files of one")


@pytest.mark.parametrize("tool", TOOLS)
def test_waits_and_transfers_add_up(tmp_path: Path, tool: str) -> None:
    analysis = analyse_files(write_fleet(FAULTY, tmp_path, tool))
    waits = analysis.costs.waits
    took = waits.matched.values_of(analysis.ranks, "end_ns") - waits.matched.values_of(
        analysis.ranks, "start_ns"
    )
    assert np.all(waits.wait_ns + waits.transfer_ns == took)
    assert np.all((waits.wait_ns >= 0) & (waits.transfer_ns >= 0))
    assert np.all((waits.exposed_wait_ns >= 0) & (waits.exposed_wait_ns <= waits.wait_ns))
    assert np.all((waits.exposed_ns >= waits.exposed_wait_ns) & (waits.exposed_ns <= took))
    for row in analysis.report.ranks:
        told = row.communication
        assert told.wait_ms is not None and told.transfer_ms is not None
        whole = told.exposed_ms + told.hidden_ms
        assert told.wait_ms + told.transfer_ms == pytest.approx(whole, rel=1e-6)


def test_what_two_collectives_take_at_one_time_counts_once(tmp_path: Path) -> None:
    analysis = analyse_files(write_fleet(BOTH, tmp_path))
    for row in analysis.report.ranks:
        number = row.rank
        exposed = analysis.costs.mean_of_rank_ms(analysis.costs.waits.exposed_ns, number)
        # less the microsecond between two kernels
        assert exposed == pytest.approx(row.communication.exposed_ms, abs=0.1)


def test_waits_are_those_of_the_simulation(tmp_path: Path) -> None:
    """Waits agree to the microsecond, by which ranks leave at different times."""
    fleet = replace(FAULTY, leave_us=0.001)
    simulation = simulate(fleet)
    analysis = analyse_files(write_fleet(fleet, tmp_path))
    waits = analysis.costs.waits
    true = [each for each in simulation.operations if each.group is not None]
    start = np.stack([each.start_us for each in true])
    order = np.argsort(np.nanmin(waits.start_ns, axis=1))
    found_us = waits.wait_ns[order] / 1e3
    assert found_us == pytest.approx(start.max(axis=1)[:, None] - start, abs=0.1)


def test_a_collective_of_one_rank_alone_is_counted_and_the_others_are_kept(tmp_path: Path) -> None:
    fleet = replace(FAULTY, odd_step=2)
    facts = FileFacts(clocks_of_hosts(3, 1), sequence=False)
    without = analyse_files(write_fleet(fleet, tmp_path / "without", facts=facts))
    assert unmatched(without) == 3 * 3 + 1  # nothing tells which of that step's it is
    assert without.report.findings[-1].what == "10 of 37 collectives were found on one rank only"
    assert without.report.findings[-1].level == "warning"
    numbered = analyse_files(write_fleet(fleet, tmp_path / "numbered"))
    assert unmatched(numbered) == 1
    for analysis in (without, numbered):
        found = analysis.report.straggler
        assert found is not None and found.rank == 1
        assert found.costs_ms_per_step == pytest.approx(3.0, rel=0.05)


AHEAD = Fleet(ranks=4, steps=9, buckets=3, forward=8, backward=24, launch_us=60.0, ahead=True)


@pytest.mark.parametrize("sequence", [True, False])
@pytest.mark.parametrize("tool", TOOLS)
def test_collectives_launched_before_the_window_shift_no_others(
    tmp_path: Path, tool: str, sequence: bool
) -> None:
    """The hosts are steps ahead of their GPUs, which still run a different number on each rank."""
    fleet = replace(AHEAD, fault=Fault("more_kernels", times=1.5))
    facts = FileFacts(clocks_of_hosts(4, 1), sequence=sequence, steps=range(4, 9), queued=True)
    paths = write_fleet(fleet, tmp_path, tool, facts=facts)
    if tool == "kineto":
        drop_first_collectives(paths[2], 2)
    analysis = analyse_files(paths)
    found, report = analysis.report.matching, analysis.report
    assert found.cut_off >= 4 * 3 - 2 and found.unmatched == 0
    columns = [rank.collectives.cut_off for rank in analysis.ranks]
    assert len({int(column.sum()) for column in columns}) > 1
    assert found.ends_agree_percent == 100
    by_kind = "number" if sequence else "size"
    assert found.by == (by_kind if tool == "kineto" else "order")
    assert report.steps.iterations == [15, 16, 17, 18]
    assert report.findings[-1].what.startswith("the first step is left out: GPUs were still")
    late = report.straggler
    assert late is not None and (late.rank, late.work) == (1, "more_kernels")
    ends = [simulate(each).operations[-1].end_us.max() for each in (AHEAD, fleet)]
    true_ms = (ends[1] - ends[0]) / fleet.steps / 1e3  # of the GPUs, which the hosts are ahead of
    assert late.costs_ms_per_step == pytest.approx(true_ms, rel=0.15)


def drop_first_collectives(path: Path, count: int) -> None:
    """Remove the first `count` kernels of collectives from a trace, as a later start would."""
    trace = json.loads(path.read_text("utf-8"))
    named = [e for e in trace["traceEvents"] if e["cat"] == "kernel" and "nccl" in e["name"]]
    for event in sorted(named, key=lambda event: event["ts"])[:count]:
        trace["traceEvents"].remove(event)
    path.write_text(json.dumps(trace), "utf-8")


def test_hosts_ahead_of_their_gpus_without_a_fault_blame_nobody(tmp_path: Path) -> None:
    facts = FileFacts(clocks_of_hosts(4, 1), sequence=False, steps=range(4, 9), queued=True)
    report = report_of(write_fleet(AHEAD, tmp_path, facts=facts))
    assert report.matching.cut_off and (report.verdict, report.straggler) == ("balanced", None)


def test_windows_that_differ_are_compared_where_they_overlap(tmp_path: Path) -> None:
    fleet = replace(FAULTY, steps=8)
    clocks = clocks_of_hosts(3, 1)
    paths = []
    for rank, steps in enumerate((range(6), range(1, 8), range(2, 7))):
        paths += write_fleet(fleet, tmp_path, ranks=[rank], facts=FileFacts(clocks, steps=steps))
    report = report_of(paths)
    assert report.steps.iterations == [12, 13, 14, 15]
    assert [row.steps for row in report.ranks] == [6, 7, 5]
    assert report.findings[0].what == (
        "rank 1 in rank1.trace.json captured ProfilerStep 11 to 17, the others ProfilerStep 10 "
        "to 15; the comparison uses the 4 steps that all have, of up to 7"
    )
    assert report.straggler is not None and report.straggler.of_steps == 4
    assert report.straggler.costs_ms_per_step == pytest.approx(3.0, rel=0.05)


@pytest.mark.parametrize("hosts", [1, 2])
def test_several_processes_of_one_file_are_ranks_by_their_gpus(tmp_path: Path, hosts: int) -> None:
    fleet = Fleet(ranks=4, steps=4, fault=Fault("slow_loader", ranks=(2,)))
    simulation, each = simulate(fleet), 4 // hosts
    facts = FileFacts(clocks_of_hosts(4, each))
    paths = [
        write_nsys(simulation, range(n * each, n * each + each), tmp_path / f"n{n}.sqlite", facts)
        for n in range(hosts)
    ]
    report = report_of(paths)
    assert [row.rank for row in report.ranks] == [0, 1, 2, 3]
    assert {row.rank_from for row in report.ranks} == {"order"}
    assert [row.device for row in report.ranks] == [n % each for n in range(4)]
    assert report.straggler is not None and report.straggler.rank == 2
    clock = "the capture's single clock" if hosts == 1 else "the ends of 16 collectives"
    assert report.clock.aligned_on == clock


def test_each_rank_of_two_groups_has_collectives_of_both(tmp_path: Path) -> None:
    report = report_of(write_fleet(BOTH, tmp_path, facts=one_clock(4)))
    sums = {each.group: each for each in report.collectives}
    assert sorted(sums) == ["0 [0, 2]", "0 [1, 3]", "1 [0, 1]", "1 [2, 3]"]
    assert {each.ranks for each in sums.values()} == {2}
    assert sums["1 [0, 1]"].wait_ms > 5 * sums["1 [2, 3]"].wait_ms
    assert sums["0 [1, 3]"].last_rank == 1
    assert sums["1 [0, 1]"].bytes == 1 << 20


def test_bandwidth_is_of_the_bytes_that_cross_the_links(tmp_path: Path) -> None:
    fleet = Fleet(ranks=4, steps=3, buckets=0, leave_us=0.001)
    (row,) = report_of(write_fleet(fleet, tmp_path)).collectives
    assert (row.kind, row.ranks, row.count, row.bytes) == ("all_reduce", 4, 3, 50 << 20)
    assert row.bus_gb_per_s == pytest.approx(1.5 * (50 << 20) / 400e-6 / 1e9, rel=0.01)
    assert row.algorithm == "ring"


@pytest.mark.parametrize(
    "name, kind, algorithm",
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)", "all_reduce", "ring"),
        ("ncclKernel_AllReduce_TREE_LL_Sum_float(ncclDevComm*)", "all_reduce", "tree"),
        ("ncclDevKernel_AllGather_RING_LL(x)", "all_gather", "ring"),
        ("ncclDevKernel_ReduceScatter_Sum_f32_NVLS_SIMPLE", "reduce_scatter", "nvls"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send_recv", ""),
        ("ncclDevKernel_Broadcast_RING_LL", "broadcast", "ring"),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage)", "other", ""),
        ("multimem_all_reduce_kernel<float>", "all_reduce", "symmetric memory"),
        ("two_shot_all_reduce_kernel", "all_reduce", "symmetric memory"),
        ("_allgather_base", "all_gather", ""),
    ],
)
def test_names_tell_kinds_and_algorithms_but_no_protocol(name, kind, algorithm) -> None:
    assert (kind_of(name), algorithm_of(name)) == (kind, algorithm)


def test_of_collectives_that_are_open_the_first_to_end_owns_the_time() -> None:
    start, end = np.array([0, 10, 30]), np.array([100, 20, 40])
    times = np.array([-5, 0, 10, 15, 20, 30, 40, 99, 100])
    assert first_to_end(start, end, times).tolist() == [-1, 0, 1, 1, 0, 2, 0, 0, -1]


def test_waits_in_other_groups_are_counted_since_the_last_of_this_one() -> None:
    waited, group = np.array([5.0, 7.0, 1.0, 2.0]), np.array([0, 1, 0, 1])
    assert waits_elsewhere(waited, group).tolist() == [0.0, 5.0, 7.0, 1.0]


def test_lateness_from_elsewhere_lasts_until_the_others_waited_for_it() -> None:
    more = np.array([[8.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    exposed = np.array([[0.0, 3.0], [0.0, 6.0], [0.0, 0.0]])  # of the first wait most is hidden
    assert inherited_lateness(more, exposed).tolist() == [[8.0, 0.0], [6.0, 0.0], [0.0, 0.0]]


def written_in_part(fleet: Fleet, folder: Path, few: Sequence[int], tool: str) -> list[Path]:
    """The captures of `few` do not name groups, and nsys's and older ones no numbers either."""
    simulation, clocks = simulate(fleet), clocks_of_hosts(fleet.ranks, 1)
    paths = []
    for rank in range(fleet.ranks):
        if rank in few and tool == "nsys":
            paths.append(
                write_nsys(simulation, [rank], folder / f"rank{rank}.sqlite", FileFacts(clocks))
            )
            continue
        facts = FileFacts(
            clocks, groups=rank not in few, sequence=rank not in few or tool == "numbers"
        )
        paths.append(write_kineto(simulation, rank, folder / f"rank{rank}.trace.json", facts))
    return paths


@pytest.mark.parametrize(
    "tool, tensor_parallel, late",
    [  # each two of the three meet once
        *(("kineto", 1, 2), ("kineto", 2, 3), ("kineto", 4, 5)),
        *(("numbers", 1, 3), ("numbers", 2, 5), ("numbers", 4, 2)),
        *(("nsys", 1, 5), ("nsys", 2, 2), ("nsys", 4, 3)),
    ],
)
def test_ranks_2_and_5_of_8_do_not_name_their_groups(
    tmp_path: Path, tool: str, tensor_parallel: int, late: int
) -> None:
    fleet = Fleet(steps=4, forward=8, backward=16, tensor_parallel=tensor_parallel)
    fleet = replace(fleet, fault=Fault("slow_loader", ranks=(late,)))
    report = report_of(written_in_part(fleet, tmp_path, (2, 5), tool))
    assert report.straggler is not None and report.findings == []
    assert (report.straggler.rank, report.straggler.with_ranks) == (late, [])
    assert report.straggler.costs_ms_per_step == pytest.approx(cost_us(fleet) / 1e3, rel=0.05)


@pytest.mark.parametrize("few, tensor_parallel", [((2, 3), 2), ((2, 6), 4)])
@pytest.mark.parametrize("late, tool", [(2, "kineto"), (5, "nsys")])
def test_a_group_that_nobody_names_makes_no_claim(
    tmp_path: Path, few: Sequence[int], tensor_parallel: int, late: int, tool: str
) -> None:
    fleet = Fleet(steps=4, forward=8, backward=16, tensor_parallel=tensor_parallel)
    fleet = replace(fleet, fault=Fault("slow_loader", ranks=(late,)))
    report = report_of(written_in_part(fleet, tmp_path, few, tool))
    assert (report.verdict, report.straggler) == ("unknown", None)
    assert "may form groups that the captures do not name" in report.evidence[0]
