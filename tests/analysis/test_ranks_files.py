"""Captures of ranks that are unreadable or do not belong together: a line each, others are read."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fleet.files import FileFacts, clocks_of_hosts
from benchmarks.fleet.simulation import Fault, Fleet
from profiling.analysis.ranks import files
from profiling.analysis.ranks.files import open_ranks
from profiling.analysis.ranks.rank_records import RanksReport
from profiling.report.ranks.document import verdict_line
from tests.helpers.fleet import report_of, write_fleet
from tests.paths import CAPTURES, PROJECT

AS_TRANSFER = "; time spent waiting for them counts as transfer"
FLEET = Fleet(ranks=4, steps=3, forward=8, backward=16, fault=Fault("slow_loader"))
NO_GPU = '{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [{"ph": "X", "cat": "cpu_op",'
NO_GPU += '"name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 5, "args": {}}]}'


def findings_of(report: RanksReport) -> list[str]:
    return [finding.what for finding in report.findings]


def ranks_and_straggler(report: RanksReport) -> tuple[list[int], int | None]:
    """(the ranks, the straggler)"""
    return [row.rank for row in report.ranks], report.straggler and report.straggler.rank


def test_missing_ranks_are_named(tmp_path: Path) -> None:
    report = report_of(write_fleet(FLEET, tmp_path, ranks=[1, 2]))
    assert ranks_and_straggler(report) == ([1, 2], 1)
    assert findings_of(report) == [f"of 4 ranks these are missing: 0, 3{AS_TRANSFER}"]


def test_gaps_are_named_where_no_capture_tells_how_many_ranks_there_are(tmp_path: Path) -> None:
    report = report_of(write_fleet(FLEET, tmp_path, "nsys", ranks=[1, 3]))
    assert findings_of(report) == [f"of ranks 1 to 3 these are missing: 2{AS_TRANSFER}"]


def test_where_the_late_rank_is_missing_the_others_are_not_said_to_transfer(tmp_path: Path) -> None:
    report = report_of(write_fleet(FLEET, tmp_path, ranks=[0, 2, 3]))
    assert report.verdict == "communication"
    assert verdict_line(report).endswith("the time goes to transfers, or to the missing ranks")


@pytest.mark.parametrize(
    "content, why",
    [
        (b"", "is empty"),
        (b'{"traceEvents": [{"ph": "X", "cat": "kern', "is cut off, damaged or not a trace"),
        (NO_GPU.encode(), "contains no GPU activity"),
        (b"\x1f\x8b\x08\x00damaged", "is cut off or damaged"),
        (b"hello", "is not a capture"),
    ],
)
def test_one_that_cannot_be_read_is_left_out(tmp_path: Path, content: bytes, why: str) -> None:
    paths = write_fleet(FLEET, tmp_path)
    paths[3].write_bytes(content)
    report = report_of(paths)
    assert ranks_and_straggler(report) == ([0, 1, 2], 1)
    line, missing = findings_of(report)
    assert line.startswith("left out: ") and why in line and paths[3].name in line
    assert "\n" not in line and missing == f"of 4 ranks these are missing: 3{AS_TRANSFER}"


def test_a_file_that_says_no_rank_is_left_out(tmp_path: Path) -> None:
    facts = FileFacts(clocks_of_hosts(4, 1), rank=False)
    paths = write_fleet(FLEET, tmp_path, facts=facts)
    paths[2] = paths[2].rename(tmp_path / "some.json")
    report = report_of(paths)
    assert ranks_and_straggler(report) == ([0, 1, 3], 1)
    assert {row.rank_from for row in report.ranks} == {"name"}
    assert "does not say which rank it is from; put rankN into its name" in findings_of(report)[0]


def test_two_runs_in_one_folder_are_not_mixed(tmp_path: Path) -> None:
    """Files of the newest's names are all that are taken, however their times alternate."""
    other = write_fleet(replace(FLEET, seed=2), tmp_path, name="a-rank{}")
    newest = write_fleet(FLEET, tmp_path, name="b-rank{}")
    for number, path in enumerate([*other, *newest]):
        os.utime(path, (1_700_000_000 + number % 4, 1_700_000_000 + number % 4))
    os.utime(newest[0], (1_800_000_000, 1_800_000_000))
    report = report_of([*newest, *other])
    assert {row.file for row in report.ranks} == {path.name for path in newest}
    (line,) = findings_of(report)
    assert line.startswith("left out: ranks 0, 1, 2, 3 in 4 files, such as a-rank")
    assert line.endswith("if the folder contains two runs, name the files of one")


def test_runs_of_other_world_sizes_are_left_out(tmp_path: Path) -> None:
    eight = write_fleet(replace(FLEET, ranks=8), tmp_path / "8", ranks=[5, 6])
    report = report_of([*write_fleet(FLEET, tmp_path / "4"), *eight])
    assert ranks_and_straggler(report) == ([0, 1, 2, 3], 1)
    assert findings_of(report)[0].startswith("left out: ranks 5, 6 in 2 files, such as rank")
    assert findings_of(report)[0].endswith(
        "another number of ranks than 4; there may be two runs in one folder"
    )


def test_a_rank_of_another_window_is_left_out(tmp_path: Path) -> None:
    fleet, clocks = replace(FLEET, steps=8), clocks_of_hosts(4, 1)
    early = FileFacts(clocks, steps=range(3))
    paths = write_fleet(fleet, tmp_path, ranks=[0, 1, 2], facts=early)
    paths += write_fleet(fleet, tmp_path, ranks=[3], facts=FileFacts(clocks, steps=range(5, 8)))
    report = report_of(paths)
    assert ranks_and_straggler(report) == ([0, 1, 2], 1)
    assert findings_of(report)[0] == (
        "left out: rank 3 in rank3.trace.json captured ProfilerStep 15 to 17, but most ranks "
        "captured ProfilerStep 10 to 12; capture the same window on each: profile.start and "
        "profile.steps"
    )


def test_of_two_windows_the_one_that_most_ranks_have(tmp_path: Path) -> None:
    fleet, clocks = replace(FLEET, steps=8), clocks_of_hosts(4, 1)
    first = write_fleet(fleet, tmp_path, facts=FileFacts(clocks, steps=range(3)), name="w1-rank{}")
    later = FileFacts(clocks, steps=range(5, 8))
    second = write_fleet(fleet, tmp_path, ranks=[0], facts=later, name="w2-rank{}")
    report = report_of([*first, *second])
    assert ranks_and_straggler(report) == ([0, 1, 2, 3], 1)
    assert findings_of(report) == []
    assert report.steps.iterations == [10, 11, 12]


def test_no_iteration_in_common_is_told_in_one_line(tmp_path: Path) -> None:
    fleet, clocks = replace(FLEET, steps=8), clocks_of_hosts(4, 1)
    paths = write_fleet(fleet, tmp_path, ranks=[0], facts=FileFacts(clocks, steps=range(3)))
    paths += write_fleet(fleet, tmp_path, ranks=[1], facts=FileFacts(clocks, steps=range(5, 8)))
    with pytest.raises(ValueError, match="fewer than two ranks to compare; .*same window on each"):
        report_of(paths)


@pytest.mark.parametrize(
    "tool, why",
    [
        ("kineto", "ranks are compared by their GPU work, and these captures contain none"),
        ("nsys", "fewer than two ranks to compare; left out: "),
    ],
)
def test_nothing_to_compare_is_told_in_one_line(tmp_path: Path, tool: str, why: str) -> None:
    paths = [tmp_path / f"rank{rank}.json" for rank in range(3)]
    for path in paths:
        path.write_text(NO_GPU if tool == "kineto" else "")
    with pytest.raises(ValueError) as error:
        report_of(paths)
    line = str(error.value)
    assert line.startswith(f"{paths[0]} and 2 more: {why}") and "\n" not in line
    assert ("is empty" in line) == (tool == "nsys")


def test_a_single_file_of_one_process_is_no_comparison(tmp_path: Path) -> None:
    (path,) = write_fleet(FLEET, tmp_path, ranks=[0])
    with pytest.raises(ValueError, match="fewer than two ranks to compare; the files contain one"):
        report_of([path])
    with pytest.raises(ValueError, match="no such file"):
        report_of([tmp_path / "rank0.json", tmp_path / "rank1.json"])


def test_captures_of_other_programs_with_one_rank_each(tmp_path: Path) -> None:
    """Two that have nothing in common: no collective is matched, so nothing is claimed."""
    paths = []
    for rank, name in enumerate(("flash_eager", "slow_eager")):
        packed = (CAPTURES / f"{name}.sqlite.gz").read_bytes()
        paths.append(tmp_path / f"rank{rank}.sqlite.gz")
        paths[-1].write_bytes(packed)
    report = report_of(paths)
    assert (report.verdict, report.straggler, report.collectives) == ("unknown", None, [])
    assert report.clock.aligned_on is None and report.clock.uncertainty_us is None
    assert [row.communication.wait_ms for row in report.ranks] == [None, None]


def test_processes_read_side_by_side_what_one_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, counts = write_fleet(FLEET, tmp_path), list[int]()
    here = report_of(paths)
    assert files.workers_for(paths) == 1 and files.workers_for([tmp_path / "gone"]) == 1
    monkeypatch.setattr(files, "READ_HERE_BYTES", 0)
    assert open_ranks(paths, counts.append).report == here
    assert counts == [1, 2, 3, 4]


INTERRUPTED = """
if __name__ == "__main__":
    from cli.process import begin
    begin()
    import sys
    from pathlib import Path
    from cli.errors import user_errors
    from cli.interrupts import unwind_on_signal
    from profiling.analysis.ranks.files import open_ranks
    with user_errors(), unwind_on_signal():
        print("reading", flush=True)
        open_ranks([Path(word) for word in sys.argv[1:]])
        print("read", flush=True)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture that takes as long to read as a process to start."""
    fleet = Fleet(ranks=1, steps=60, forward=200, backward=200)
    return write_fleet(fleet, tmp_path_factory.mktemp("large"))[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "number, code, after_s",
    [(signal.SIGINT, 130, 0.05), (signal.SIGINT, 130, 1.5), (signal.SIGTERM, 143, 1.5)],
)
def test_an_interrupt_while_they_are_read_ends_quietly(
    tmp_path: Path, large: Path, number: int, code: int, after_s: float
) -> None:
    """A terminal sends Ctrl-C to all processes at once."""
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED)
    command = [sys.executable, str(script), *[str(large)] * 24]
    with subprocess.Popen(
        command,
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"reading\n"
        time.sleep(after_s)
        os.killpg(process.pid, number)
        try:
            out, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, out, errors.decode()) == (code, b"", "")


def test_a_killed_reader_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "READ_HERE_BYTES", 0)
    paths = write_fleet(FLEET, tmp_path)

    def kill_one(count: int) -> None:
        from multiprocessing import active_children

        for child in active_children():
            with suppress(ProcessLookupError):  # it was killed already, for another file
                os.kill(child.pid or 0, signal.SIGKILL)

    with pytest.raises(ValueError, match="a process that read one of the files was killed"):
        open_ranks(paths * 60, kill_one)  # more than can be read before the first is counted


def test_impossible_world_sizes_are_not_believed(tmp_path: Path) -> None:
    paths = write_fleet(FLEET, tmp_path, facts=FileFacts(np.zeros(4)))
    for path in paths:
        text = path.read_text("utf-8").replace('"world_size": 4', '"world_size": 9000000000000')
        path.write_text(text, "utf-8")
    report = report_of(paths)
    assert report.world_size is None and findings_of(report) == []
