"""benchmarks.report_speed: whole processes are timed, and missing tools are named."""

import sys

import pytest

from benchmarks import report_speed
from benchmarks.measuring import run_successfully
from benchmarks.report_speed import SpeedConfig, hta_programs, main
from tests.helpers.captures import small_export, small_trace, write_trace


def no_nsys(tool):
    raise ValueError("nsys: not found")


@pytest.mark.slow
def test_a_table_of_what_there_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(report_speed.nsight, "find", no_nsys)
    sqlite = small_export(tmp_path / "x.sqlite")
    trace = write_trace(tmp_path / "x.json", small_trace())
    main(SpeedConfig(sqlite=str(sqlite), trace=str(trace), repeats=1))
    out = capsys.readouterr().out
    rows = [line for line in out.splitlines() if line.startswith("| x.")]
    assert [row.split(" | ")[:2] for row in rows] == [
        ["| x.sqlite", "report --json"],
        ["| x.json", "report --json"],
    ]
    assert all(row.endswith("1.00, 1.00 |") for row in rows)
    assert "left out: nsys: not found" in out and "left out: HolisticTraceAnalysis" in out


def test_wall_time_and_memory_are_those_of_the_process():
    run = run_successfully([sys.executable, "-c", "import time; x = b'x' * 10**8; time.sleep(0.2)"])
    assert 0.2 < run.wall_s < 5
    assert 10**8 < run.peak_bytes < 10**10


def test_a_program_that_fails_is_told():
    with pytest.raises(ValueError, match="ended with 3: the reason"):
        run_successfully([sys.executable, "-c", "print('the reason'); raise SystemExit(3)"])


def test_an_interpreter_without_the_other_tool_is_told(tmp_path):
    with pytest.raises(ValueError, match="has none"):
        hta_programs(tmp_path / "x.json", SpeedConfig(hta_python=sys.executable))


@pytest.mark.parametrize("keys", [{"repeats": 0}, {"sqlite": "no.sqlite"}, {"hta_python": "no"}])
def test_mistakes_name_the_key(keys):
    with pytest.raises(ValueError, match=next(iter(keys))):
        SpeedConfig(**keys)


def test_captures_to_make_others_from_have_to_be_there(tmp_path, monkeypatch):
    monkeypatch.setattr(report_speed, "CAPTURES", tmp_path)
    with pytest.raises(ValueError, match="slow_eager.sqlite.gz: no such file; give sqlite="):
        main(SpeedConfig())
