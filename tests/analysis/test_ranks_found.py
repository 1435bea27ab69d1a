"""Ranks' captures in a folder, found by their names."""

import gzip
import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from benchmarks.fleet.files import FileFacts
from benchmarks.fleet.simulation import Fault, Fleet, cost_us, simulate
from profiling.analysis.ranks import found as ranks_found
from profiling.analysis.ranks.found import (
    captures_in,
    left_out_finding,
    rank_captures,
    rank_in_name,
)
from profiling.timeline import opening
from profiling.timeline.scrub import scrub
from tests.helpers.fleet import report_of, write_fleet
from tests.helpers.fleet_nsys import write_nsys

LATE = Fleet(steps=3, forward=8, backward=16, fault=Fault("slow_loader", ranks=(5,)))

NAMES = {
    "window-1-rank0.trace.json.gz": 0,  # this project's
    "nsys-rank12.sqlite": 12,
    "rank3.json": 3,
    "rank_3.json.gz": 3,
    "Rank-7.pt.trace.json": 7,
    "rank=2.json": 2,
    "trace_rank[5].json": 5,
    "rank00041.sqlite": 41,
    "traceRank6.json": 6,
    "global_rank9.json": 9,
    "kineto_trace_rank1_iter20.json": 1,
    "rank4_step100_worker0.json": 4,
    "local_rank1_rank9.json": 9,
    "local_rank2.json": 2,
    "Baseline - 12-11 - 6bd4b-rank1-chrome-trace.json.gz": 1,
    "worker7_step_12.1694128201553.pt.trace.json": 7,  # torch's tensorboard_trace_handler
    "gpu-node1_worker3.1700000000.pt.trace.json": 3,
    "dp0_pp0_tp1_dcp0_ep1_rank5.1760000000.pt.trace.json.gz": 5,  # vLLM
    "1760000000.1-TP-3.trace.json.gz": 3,  # SGLang
    "report_r2.sqlite": 2,
    "report.r2.sqlite": 2,
    "profile_gpu1.json": 1,
    "rank0-r2.json": 0,  # the second revision
    "host_1234.1700000000.pt.trace.json": None,
    "error3.json": None,
    "trace.json": None,
    "report1.sqlite": None,
    "rank.json": None,
    "rank12345678.json": None,
}


@pytest.mark.parametrize("name", NAMES)
def test_ranks_are_read_from_names(name: str) -> None:
    assert rank_in_name(Path("/rank8/worker9") / name) == NAMES[name]


def laid(folder: Path, *names: str, seconds: int = 1_700_000_000) -> list[Path]:
    found = []
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
        os.utime(path, (seconds, seconds))
        found.append(path)
    return found


def window(number: int, ending: str = "trace.json.gz", ranks: int = 3) -> list[str]:
    return [f"window-{number}-rank{rank}.{ending}" for rank in range(ranks)]


def test_of_a_run_the_newest_window_without_manifests(tmp_path: Path) -> None:
    laid(tmp_path / "profile", *window(1), *window(1, "json"))
    newest = laid(tmp_path / "profile", *window(2), seconds=1_700_000_100)
    laid(tmp_path / "profile", *window(2, "json"), seconds=1_700_000_101)
    laid(tmp_path, "metrics.jsonl", "config.yaml", "ckpt.pt", "step_times.json")
    assert captures_in(tmp_path) == newest == captures_in(tmp_path / "profile")


def test_a_newest_window_of_one_rank_leaves_the_choice_to_the_reading(tmp_path: Path) -> None:
    both = laid(tmp_path / "profile", *window(1))
    both += laid(tmp_path / "profile", "window-2-rank0.trace.json.gz", seconds=1_700_000_100)
    assert set(captures_in(tmp_path)) == set(both)


def test_of_a_report_and_its_export_the_export(tmp_path: Path) -> None:
    exports = laid(tmp_path / "profile", "nsys-rank0.sqlite", "nsys-rank1.sqlite")
    laid(tmp_path / "profile", "nsys-rank0.nsys-rep", "nsys-rank1.nsys-rep")
    assert captures_in(tmp_path) == exports


def test_what_was_unpacked_is_of_the_same_window_and_stands_for_its_gz(tmp_path: Path) -> None:
    packed = laid(tmp_path, *(f"rank{rank}.trace.json.gz" for rank in range(4)))
    plain = laid(tmp_path, "rank0.trace.json", "rank1.trace.json", seconds=1_700_000_100)
    assert captures_in(tmp_path) == [*plain, *packed[2:]]
    assert left_out_finding(captures_in(tmp_path), [tmp_path]) is None
    laid(tmp_path, "rank0.trace.json", seconds=1_600_000_000)  # of an earlier capture
    assert captures_in(tmp_path) == [packed[0], plain[1], *packed[2:]]


def test_ranks_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    laid(tmp_path, *(f"rank{rank}.json" for rank in range(12)))
    assert [rank_in_name(path) for path in captures_in(tmp_path)] == list(range(12))


def test_foreign_folders_whose_names_differ_in_more_than_the_rank(tmp_path: Path) -> None:
    found = laid(
        tmp_path, *(f"worker{n}_step_12.169412820{1549 + n}.pt.trace.json" for n in (0, 1))
    )
    laid(tmp_path, "notes.txt", "rank-list.csv")
    assert captures_in(tmp_path) == found


def test_one_file_a_rank_is_one_window_whatever_wrote_them(tmp_path: Path) -> None:
    found = laid(tmp_path, "rank0.trace.json", "rank1.json.gz", seconds=1_700_000_100)
    found += laid(tmp_path, "rank2.sqlite", "rank3.sqlite")
    assert captures_in(tmp_path) == found


def test_an_export_of_each_host_that_holds_the_processes_of_several(tmp_path: Path) -> None:
    simulation, facts = simulate(Fleet(ranks=4, steps=2)), FileFacts(np.zeros(4))
    paths = []
    for host in range(2):
        (place := tmp_path / f"host{host}" / "profile").mkdir(parents=True)
        ranks = range(2 * host, 2 * host + 2)
        paths.append(write_nsys(simulation, ranks, place / "window-1.sqlite", facts))
    assert captures_in(tmp_path) == paths


def hosts(folder: Path, facts: Sequence[FileFacts], of_one_host: int = 2) -> list[Path]:
    """A session for each, of the next ranks, in one folder; the first is the newest."""
    folder.mkdir(exist_ok=True)
    simulation, paths = simulate(LATE), []
    for n, each in enumerate(facts):
        ranks = range(n * of_one_host, (n + 1) * of_one_host)
        paths.append(write_nsys(simulation, ranks, folder / f"run-{'abcd'[n]}.sqlite", each))
        os.utime(paths[n], (1_700_000_000 - n, 1_700_000_000 - n))
    return paths


def of_host(name: str | None, began_s: float = 1_700_000_000.0) -> FileFacts:
    """Sessions count from their starts, which are seconds apart."""
    return FileFacts(np.repeat([0.0, 2.5e6, 7e5, 4e6], 2), host=name, began_s=began_s)


@pytest.mark.parametrize("done", ["as written", "one packed", "scrubbed", "one scrubbed"])
def test_sessions_of_several_hosts_in_one_folder(tmp_path: Path, done: str) -> None:
    paths = hosts(tmp_path, [of_host(f"node{n}", 1.7e9 + n / 1e3) for n in range(4)])
    if done == "one packed":
        packed = tmp_path / "run-c.sqlite.gz"
        packed.write_bytes(gzip.compress(paths[2].read_bytes()))
        paths[2].unlink()
        paths[2] = packed
    for path in {"scrubbed": paths, "one scrubbed": paths[1:2]}.get(done, []):
        scrub(path)
    assert captures_in(tmp_path) == paths
    assert left_out_finding(paths, [tmp_path]) is None
    report = report_of(paths)
    assert [row.rank for row in report.ranks] == list(range(8))
    assert report.straggler is not None and report.straggler.rank == 5
    assert report.straggler.costs_ms_per_step == pytest.approx(cost_us(LATE) / 1e3, rel=0.05)


@pytest.mark.parametrize(
    "others",
    [
        [of_host("node0")],
        [of_host("node1", 1.7e9 - 3600)],
        [of_host("node1", 1.7e9 + 3600)],
        [of_host(None)],
        [of_host("node0", 1.7e9 - 3600), of_host("node1", 1.7e9 - 3600)],
    ],
    ids=["same host", "earlier", "later", "no host", "an earlier run of both"],
)
def test_sessions_of_other_runs_are_left_out(tmp_path: Path, others: list[FileFacts]) -> None:
    newest, *older = hosts(tmp_path, [of_host("node0"), *others])
    (tmp_path / "report.json").write_text("{}")
    assert captures_in(tmp_path) == [newest]
    told = left_out_finding([newest], [tmp_path])
    assert told is not None and f"{len(older)} capture" in told.what
    assert "as run-b.sqlite, of another window or run" in told.what


def test_exports_that_tell_no_host_are_one_by_one(tmp_path: Path) -> None:
    newest, _ = hosts(tmp_path, [of_host(None), of_host(None)])
    assert captures_in(tmp_path) == [newest]


def test_two_runs_of_two_hosts_in_one_folder_are_not_mixed(tmp_path: Path) -> None:
    facts = [of_host(f"node{n % 2}", 1.7e9 - 3600 * (n // 2)) for n in range(4)]
    first, second, *_ = hosts(tmp_path, facts)
    assert captures_in(tmp_path) == [first, second]


def test_what_is_left_in_a_folder_is_told(tmp_path: Path) -> None:
    mine = laid(tmp_path, *window(2), seconds=1_700_000_100)
    assert left_out_finding(mine, [tmp_path]) is None
    laid(tmp_path, *window(1), "summary.json", "window-1-rank0.json")
    told = left_out_finding(mine, [tmp_path])
    assert told is not None and told.level == "note"
    assert told.what.startswith(
        "left out: 3 captures in the same folders, such as window-1-rank0.trace"
    )
    laid(tmp_path, "other.sqlite")
    told = left_out_finding(mine, [tmp_path])
    assert told is not None and told.level == "warning" and "4 captures" in told.what


def test_a_folder_for_each_host(tmp_path: Path) -> None:
    first = laid(tmp_path / "node0", "rank0.sqlite", "rank1.sqlite")
    second = laid(tmp_path / "node1", "rank2.sqlite", "rank3.sqlite", seconds=1_700_000_100)
    assert captures_in(tmp_path) == first + second


def test_two_runs_in_two_folders_are_not_mixed(tmp_path: Path) -> None:
    laid(tmp_path / "a", "rank0.json", "rank1.json")
    newest = laid(tmp_path / "b", "rank0.json", "rank1.json", seconds=1_700_000_100)
    assert captures_in(tmp_path) == newest
    told = left_out_finding(newest, [tmp_path])
    assert told is not None and "2 captures in the same folders, such as rank0.json" in told.what


def test_previous_runs_are_left_alone(tmp_path: Path) -> None:
    laid(tmp_path / "previous-1" / "profile", *window(1), seconds=1_700_000_100)
    laid(tmp_path / "previous-2", "rank0.json", "rank1.json")
    assert captures_in(tmp_path) == []
    mine = laid(tmp_path / "profile", *window(1))
    assert captures_in(tmp_path) == mine


@pytest.mark.parametrize(
    "names", [[], ["rank0.json"], ["a.json", "b.json"], ["rank0.txt", "rank1.txt"]]
)
def test_a_folder_without_several_ranks_has_none(tmp_path: Path, names: list[str]) -> None:
    laid(tmp_path, *names)
    assert captures_in(tmp_path) == []


@pytest.mark.parametrize("packed", [False, True])
def test_traces_that_say_it_in_their_head_need_no_names(tmp_path: Path, packed: bool) -> None:
    paths = write_fleet(Fleet(ranks=3, steps=2), tmp_path)
    renamed = []
    for number, path in enumerate(paths):
        new = tmp_path / f"{'cab'[number]}.trace.json{'.gz' if packed else ''}"
        new.write_bytes(gzip.compress(path.read_bytes()) if packed else path.read_bytes())
        path.unlink()
        renamed.append(new)
    (tmp_path / "summary.json").write_text("{}")
    assert captures_in(tmp_path) == renamed  # by rank
    renamed[0].unlink()
    renamed[1].unlink()
    assert captures_in(tmp_path) == []


@pytest.mark.parametrize(
    ("told_by", "owner", "asked"),
    [
        ("name", opening, "modified_ns"),
        ("head", ranks_found, "rank_in_head"),
        ("session", opening, "modified_ns"),
        ("session", ranks_found, "session_of"),
    ],
)
def test_a_file_that_goes_meanwhile_ends_nothing_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told_by: str, owner: ModuleType, asked: str
) -> None:
    if told_by == "session":
        paths = hosts(tmp_path, [of_host(f"node{n}") for n in range(3)])
    else:
        paths = write_fleet(Fleet(ranks=3, steps=2), tmp_path)
    if told_by == "head":
        paths = [path.rename(tmp_path / f"{'cab'[n]}.trace.json") for n, path in enumerate(paths)]
    os.utime(paths[0])  # the newest, by which others would be chosen
    answer = getattr(owner, asked)

    def gone_before(path: Path) -> object:
        if path == paths[0]:
            path.unlink(missing_ok=True)
        return answer(path)

    monkeypatch.setattr(owner, asked, gone_before)
    chosen = captures_in(tmp_path)
    assert sorted(chosen) == sorted(paths) and not paths[0].exists()
    findings = [finding.what for finding in report_of(chosen).findings]
    assert f"left out: {paths[0]}: no such file or folder" in findings


@pytest.mark.parametrize("ranks, found", [([0, 1, 2], True), ([1], False)])
def test_an_export_of_several_processes_is_one_file_for_all(
    tmp_path: Path, ranks: list[int], found: bool
) -> None:
    path = tmp_path / "profile" / "nsys.sqlite"
    path.parent.mkdir()
    write_nsys(simulate(Fleet(ranks=3, steps=2)), ranks, path, FileFacts(np.zeros(3)))
    assert captures_in(tmp_path) == ([path] if found else [])
    path.write_bytes(b"SQLite format 3\0 and no more")
    assert captures_in(tmp_path) == []


def test_ranks_in_a_folder_among_captures_of_other_programs_are_not_chosen(tmp_path: Path) -> None:
    ranks = laid(tmp_path / "late", "rank0.trace.json", "rank1.trace.json")
    laid(tmp_path, "config.json", "report.json")  # no captures
    assert rank_captures([tmp_path], ranks=False) == ranks
    programs = laid(tmp_path, *(f"{name}.sqlite" for name in "abcdef"))
    with pytest.raises(ValueError, match="holds captures of several programs") as error:
        rank_captures([tmp_path], ranks=False)
    named = ", ".join(map(str, [*programs[:5], tmp_path / "late"]))
    assert str(error.value).endswith(f"name the one that you mean: {named} and 1 more")
    assert rank_captures([tmp_path / "late"], ranks=False) == ranks
    assert rank_captures([tmp_path], ranks=False, device=0) == []
