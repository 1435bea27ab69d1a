"""profiling.timeline.opening: kinds of files by their content, damage in one line."""

import gzip
import json
import os
import re
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from profiling.shared.manifest import CapturedWindow, Manifest
from profiling.timeline import opening
from profiling.timeline.opening import find_manifest, open_capture, read_manifest
from profiling.tools import nsight
from tests.helpers.captures import small_export, small_trace, write_trace
from tests.paths import CAPTURES, PROJECT


@pytest.fixture
def export(tmp_path):
    return small_export(tmp_path / "small.sqlite")


def refused(path: Path, *words: str) -> str:
    with pytest.raises(ValueError) as caught:
        open_capture(path)
    said = str(caught.value)
    assert path.name in said and "\n" not in said and len(said) < 500
    for word in words:
        assert word in said
    return said


def test_names_do_not_matter(tmp_path, export):
    os.rename(export, tmp_path / "a.json")
    write_trace(tmp_path / "b.sqlite", small_trace())
    (tmp_path / "c").write_bytes(gzip.compress((tmp_path / "a.json").read_bytes()))
    (tmp_path / "d.txt").write_bytes(gzip.compress((tmp_path / "b.sqlite").read_bytes()))
    for name, kind in (
        ("a.json", "nsys"),
        ("b.sqlite", "kineto"),
        ("c", "nsys"),
        ("d.txt", "kineto"),
    ):
        trace = open_capture(tmp_path / name)
        assert trace.kind == kind and trace.file == tmp_path / name


def test_a_bare_list_of_events_is_a_trace(tmp_path):
    """PyTorch 1.7 wrote its traces so."""
    events = b"\n " + json.dumps(small_trace()["traceEvents"], indent=1).encode()
    (tmp_path / "old.json").write_bytes(events)
    (tmp_path / "old.json.gz").write_bytes(gzip.compress(events))
    for name in ("old.json", "old.json.gz"):
        trace = open_capture(tmp_path / name)
        assert trace.kind == "kineto" and len(trace.operations.start_ns)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["is empty"]),
        (b"\x89PNG\r\n\x1a\n" + b"x" * 99, ["a picture"]),
        (b"\x80\x04\x95" + b"x" * 99, ["a pickle"]),
        (b"Time (%),Total Time (ns)\n1,2\n", ["not a capture", ".sqlite"]),
        (b"[1, 2]", ["not a capture"]),
        (b"{}", ["traceEvents"]),
        (b'{"traceEvents": 7}', ["traceEvents"]),
        (b'{"traceEvents": [7]}', ["damaged"]),
        (b'{"traceEvents": [{"ts": "x"}]}', ["damaged"]),
        (b'{"traceEvents": [{"ph": "X", "cat": "kernel"}]}', ["impossible"]),
        (b'{"traceEvents": [{"ph": "X", "cat": "cuda_driver", "tid": [[[]]]}]}', ["impossible"]),
        (b'{"traceEvents": [{"ph": "X", "cat": "cuda_driver", "pid": 1e300}]}', ["impossible"]),
        (b'{"traceEvents": [{"name": "\xff\xfe"}]}', ["damaged"]),
        (b'{"traceEvents": [{"args": ' + b"[" * 200_000, ["damaged"]),
        (b'{"traceEvents": [{"ts": NaN}]}', ["damaged"]),
        (b"SQLite format 3\0" + b"\xff" * 4000, []),
        (b"SQLite format 3\0", []),
        (gzip.compress(b"", mtime=0), ["is empty"]),
        (gzip.compress(b"hello", mtime=0), ["not a capture"]),
        (gzip.compress(b"{" * 99999, mtime=0)[:-20], ["cut off"]),
        (b"\x1f\x8b" + b"x" * 99, ["damaged"]),
        (gzip.compress(gzip.compress(b"{}", mtime=0), mtime=0), ["not a capture"]),
    ],
)
def test_each_wrong_file_is_told_in_one_line(tmp_path, content, words):
    path = tmp_path / "wrong"
    path.write_bytes(content)
    refused(path, *words)


def test_what_is_no_file(tmp_path):
    refused(tmp_path / "none", "no such file")
    refused(tmp_path, "no capture in this folder")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "is not a")  # and does not wait for a writer


def test_a_database_of_something_else(tmp_path):
    database = sqlite3.connect(tmp_path / "x.sqlite")
    database.execute("CREATE TABLE runs (id INT)")
    database.close()
    refused(tmp_path / "x.sqlite", "not an nsys export")


def test_a_locked_export(export):
    writer = sqlite3.connect(export, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    refused(export, "another program is writing this file")
    writer.close()
    assert open_capture(export).kind == "nsys"


def test_a_view_is_never_run(export):
    """A view could run for ever."""
    database = sqlite3.connect(export)
    database.executescript(
        "DROP TABLE NVTX_EVENTS; CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE c(start) AS "
        "(SELECT 1 UNION ALL SELECT start + 1 FROM c) SELECT start, start AS end FROM c;"
    )
    database.close()
    assert open_capture(export).ranges is None


@pytest.mark.slow
def test_a_bomb_is_not_unpacked(tmp_path):
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        for _ in range(70):
            file.write(bytes(1 << 20))
    refused(path, "is larger than")


def test_the_newest_capture_of_a_run_folder(tmp_path, export, capsys):
    folder = tmp_path / "out" / "profile"
    folder.mkdir(parents=True)
    os.rename(export, folder / "nsys.sqlite")
    write_trace(folder / "window-1.trace.json", small_trace())
    for other in ("window-2.json", "report.json"):  # a manifest, a report: no captures
        (folder / other).write_text("{}")
    os.utime(folder / "window-1.trace.json", (1, 1))
    for place in (tmp_path / "out", folder):
        assert open_capture(place).file == folder / "nsys.sqlite"
        assert "nsys.sqlite" in capsys.readouterr().err
    os.utime(folder / "nsys.sqlite", (0, 0))
    assert open_capture(folder).kind == "kineto"


def test_a_run_without_a_capture_says_what_shows_it(tmp_path):
    folder = tmp_path / "my run"
    folder.mkdir()
    with pytest.raises(ValueError, match="no capture in this folder .*; name a file$"):
        open_capture(folder)
    (folder / "metrics.jsonl").touch()
    with pytest.raises(ValueError, match="profiling dashboard '.*my run' shows its rows$"):
        open_capture(folder)
    with pytest.raises(ValueError, match="; name one of the runs in it; .* home .* lists them$"):
        open_capture(tmp_path)


def report_file(folder: Path) -> Path:
    path = folder / "nsys.nsys-rep"
    path.write_bytes(b"a report")
    return path


def test_a_report_without_nsys(tmp_path, monkeypatch):
    monkeypatch.setattr(nsight, "installed_programs", lambda tool: [])
    refused(report_file(tmp_path), "nsys export --type sqlite")


def test_a_report_beside_its_export(tmp_path, export, capsys, monkeypatch):
    monkeypatch.setattr(nsight, "installed_programs", lambda tool: [])
    path = report_file(tmp_path)
    os.rename(export, tmp_path / "nsys.sqlite")
    os.utime(path, (1, 1))
    assert open_capture(path).kind == "nsys"
    assert "the export of nsys.nsys-rep" in capsys.readouterr().err
    os.utime(tmp_path / "nsys.sqlite", (0, 0))  # of an older report
    refused(path, "only nsys can read")


@pytest.mark.parametrize("works", [True, False])
def test_a_report_is_exported(tmp_path, export, monkeypatch, works):
    nsys = tmp_path / "nsys"
    script = f'for word; do case $word in --output=*) cp {export} "${{word#*=}}";; esac; done'
    nsys.write_text(f"#!/bin/sh\n{script if works else 'echo disk full; exit 1'}\n")
    nsys.chmod(nsys.stat().st_mode | stat.S_IXUSR)
    found = [nsight.Program(str(nsys), "2025.3")]
    monkeypatch.setattr(nsight, "installed_programs", lambda tool: found)
    path = report_file(tmp_path)
    if not works:
        refused(path, "disk full")
        return
    trace = open_capture(path)
    assert trace.file == path and trace.operations is not None
    assert not (tmp_path / "nsys.sqlite").exists()


def test_a_json_of_any_name_is_a_capture_if_it_begins_as_one(tmp_path):
    (tmp_path / "report.json").write_text('{"schema_version": 1, "capture": {"file": "a"}}')
    refused(tmp_path, "no capture in this folder")
    write_trace(tmp_path / "resnet.json", small_trace())
    assert open_capture(tmp_path).file.name == "resnet.json"


def test_the_name_of_the_newest_capture_is_told_without_control_characters(tmp_path, capsys):
    write_trace(tmp_path / "a\x1b]0;owned\x07.trace.json", small_trace())
    assert open_capture(tmp_path).operations is not None
    assert capsys.readouterr().err == f"reading {tmp_path / 'a.trace.json'}\n"


def test_of_several_captures_the_choice_is_told_a_report_and_its_export_being_one(
    tmp_path, export, capsys
):
    os.rename(export, tmp_path / "nsys.sqlite")
    (tmp_path / "nsys.nsys-rep").touch()
    os.utime(tmp_path / "nsys.nsys-rep", (1, 1))
    open_capture(tmp_path)
    assert capsys.readouterr().err == f"reading {tmp_path / 'nsys.sqlite'}\n"
    write_trace(tmp_path / "other.trace.json", small_trace())
    os.utime(tmp_path / "other.trace.json", (2, 2))
    open_capture(tmp_path)
    newest = f"reading {tmp_path / 'nsys.sqlite'}, the newest of 2 captures there\n"
    assert capsys.readouterr().err == newest


def manifest(folder: Path, name: str, **facts) -> Path:
    path = folder / name
    window = {"first_iteration": 100, "steps": 20}
    path.write_text(json.dumps({"schema_version": 1, "kind": "nsys", "window": window} | facts))
    return path


def test_the_manifest_of_an_nsys_capture(tmp_path):
    path = tmp_path / "nsys.sqlite.gz"
    path.write_bytes((CAPTURES / "flash_eager.sqlite.gz").read_bytes())
    trace = open_capture(path)
    assert find_manifest(path, trace) is None
    manifest(tmp_path, "window-1.json", window={"first_iteration": 50, "steps": 20})
    manifest(tmp_path, "window-2.json", kind="torch")
    manifest(tmp_path, "window-3-rank0.json")
    (tmp_path / "window-4.json").write_text("{ cut")
    (tmp_path / "window-5.json").write_text("[" * 100_000)
    (tmp_path / "window-6.json").write_text("[]")
    assert find_manifest(path, trace) is None
    assert len(trace.warnings) == 3 and "window-4.json" in trace.warnings[0]
    manifest(tmp_path, "window-7.json", config={"attention": "flash"})
    name, content = find_manifest(path, trace)
    assert name == "window-7.json" and content.config == {"attention": "flash"}
    assert find_manifest(tmp_path, trace)[0] == "window-7.json"


@pytest.mark.parametrize(("ended_by", "found"), [("the end of the program", True), (None, False)])
def test_a_program_may_end_within_the_last_iteration_of_an_nsys_capture(tmp_path, ended_by, found):
    path = tmp_path / "nsys.sqlite.gz"
    path.write_bytes((CAPTURES / "flash_eager.sqlite.gz").read_bytes())
    window = {"first_iteration": 100, "steps": 19, "ended_by": ended_by}
    manifest(tmp_path, "window-1.json", window=window)
    assert (find_manifest(path, open_capture(path)) is not None) == found


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"step_ms": {"before": 5}}, r"`int` - at `\$.step_ms.before`"),
        ({"step_ms": {"after": {"laps": []}}}, r"`median` - at `\$.step_ms.after`"),
        ({"step_ms": {"after": {"median": 0}}}, r"> 0.0 - at `\$.step_ms.after.median`"),
        ({"overhead_percent": "x"}, r"overhead_percent"),
        ({"compiled_inside": {"graphs": 1e308}}, r"compiled_inside.graphs"),
        ({"window": {"errors": -1}}, r"window.errors"),
        ({"window": {"steps": -1}}, r">= 0 - at `\$.window.steps`"),
        ({"vocab_size": 2**62}, r"vocab_size"),
        ({"world_size": 0}, r">= 1 - at `\$.world_size`"),
        ({"config": {"dropout": float("nan")}}, r"malformed"),
    ],
)
def test_a_manifest_with_impossible_values_is_named_with_its_field(tmp_path, facts, said):
    path = manifest(tmp_path, "window-1.json", **facts)
    with pytest.raises(ValueError, match=rf"window-1.json: is damaged: .*{said}"):
        read_manifest(path)


def test_the_manifest_of_a_trace(tmp_path):
    path = write_trace(tmp_path / "window-2.trace.json", small_trace())
    trace = open_capture(path)
    manifest(tmp_path, "window-1.json", kind="torch", files=["window-1.trace.json.gz"])
    assert find_manifest(path, trace) is None
    manifest(tmp_path, "window-3.json", kind="torch", files=["window-2.trace.json.gz"])
    assert find_manifest(path, trace)[0] == "window-3.json"
    os.rename(tmp_path / "window-3.json", tmp_path / "window-2.json")
    manifest(tmp_path, "window-2.json", kind="torch")
    assert find_manifest(path, trace)[0] == "window-2.json"


def test_a_manifest_may_lack_what_an_older_trainer_did_not_write_and_hold_what_a_newer_one_does(
    tmp_path,
):
    path = manifest(tmp_path, "window-1.json", of_tomorrow={"x": [1]})
    assert read_manifest(path) == Manifest(1, "nsys", CapturedWindow(100, steps=20))


@pytest.mark.parametrize(
    ("facts", "field"),
    [
        ({"files": 7}, "files"),
        ({"window": {"steps": "20"}}, "window.steps"),
        ({"step_ms": {"before": {"laps": []}}}, "median"),
        ({"kind": None}, "kind"),
    ],
)
def test_a_damaged_manifest_is_told_in_one_line_with_the_field(tmp_path, facts, field):
    path = manifest(tmp_path, "window-1.json", **facts)
    with pytest.raises(ValueError, match=rf"window-1\.json: .*{re.escape(field)}") as error:
        read_manifest(path)
    assert "\n" not in str(error.value)


def test_a_manifest_that_is_none(tmp_path):
    with pytest.raises(ValueError, match=r"no\.json: cannot be read"):
        read_manifest(tmp_path / "no.json")


def test_reading_imports_no_torch():
    code = "import sys; import profiling.timeline.opening; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=PROJECT).returncode == 0


def test_unpacked_files_do_not_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(opening.tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    open_capture(CAPTURES / "flash_compile.sqlite.gz")
    assert list((tmp_path / "scratch").iterdir()) == []
