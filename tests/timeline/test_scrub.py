"""scrub: nothing of the environment stays in the file, and no event changes."""

import gzip
import json
import re
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from profiling.shared.json_records import to_json
from profiling.timeline import scrub as scrubbing
from profiling.timeline.opening import open_capture
from profiling.timeline.scrub import scrub, without_folders
from profiling.verbs.scrub import main
from tests.helpers.captures import event, small_export, small_trace, write_trace
from tests.helpers.planted_secrets import TOKENS
from tests.helpers.reports import MANIFEST
from tests.paths import CAPTURES

SECRET = "sk-planted-4711"


@pytest.fixture
def report(tmp_path):
    """A small file in the shape of an export: every place where nsys was seen to keep secrets."""
    path = tmp_path / "nsys.sqlite"
    database = sqlite3.connect(path)
    database.executescript(
        """
        CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
        CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, nameEnum INT, value TEXT);
        CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT);
        CREATE TABLE ProcessStreams (globalPid INT, filenameId INT, contentId INT);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, shortName INT);
        """
    )
    strings = [
        (1, "void at::native::reduce_kernel<512, 1>(float / 2)"),
        (2, f"HOME=/home/me\0API_KEY={SECRET}\0"),
        (3, "/tmp/streams/pid_1_stdout.log"),
        (4, f"step 0: {SECRET}"),
        (5, "kworker/0:0-events"),
    ]
    database.executemany("INSERT INTO StringIds VALUES (?, ?)", strings)
    database.execute("INSERT INTO ProcessStreams VALUES (1, 3, 4)")
    rows = [("DeviceEnvironment", 610, f"API_KEY={SECRET};A=b"), ("Hostname", 619, "my-host")]
    rows += [("CpuDescription", 13, "Xeon")]
    database.executemany("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (?, ?, ?)", rows)
    rows = [("PROCESS_0:ENVIRONMENT_VARIABLE", f'API_KEY="{SECRET}"')] * 50
    rows += [("PROCESS_0:ARGUMENT_1", "out_dir=/home/me/out-x"), ("RATE_HZ", "0")]
    rows += [("PROCESS_0:ARGUMENT_2", "--api-key"), ("PROCESS_0:ARGUMENT_3", SECRET)]
    database.executemany("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", rows)
    database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 25, 1)")
    database.commit()
    database.close()
    return path


def test_no_byte_of_the_environment_stays(report):
    assert SECRET.encode() in report.read_bytes()
    scrub(report)
    content = report.read_bytes()
    for gone in (SECRET, "my-host", "/home/me", "/tmp/streams"):
        assert gone.encode() not in content
    assert list(report.parent.iterdir()) == [report]


def test_events_names_and_arguments_stay(report):
    scrub(report)
    database = sqlite3.connect(report)
    kernels = database.execute(
        "SELECT start, end, value FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON shortName = id"
    ).fetchall()
    assert kernels == [(10, 25, "void at::native::reduce_kernel<512, 1>(float / 2)")]
    assert dict(database.execute("SELECT name, value FROM META_DATA_CAPTURE")) == {
        "PROCESS_0:ARGUMENT_1": "out_dir=out-x",
        "PROCESS_0:ARGUMENT_2": "--api-key",
        "PROCESS_0:ARGUMENT_3": "[hidden]",
        "RATE_HZ": "0",
    }
    assert database.execute("SELECT name FROM TARGET_INFO_SYSTEM_ENV").fetchall() == [
        ("CpuDescription",)
    ]
    assert database.execute("SELECT value FROM StringIds WHERE id = 5").fetchone() == (
        "kworker/0:0-events",
    )


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("/opt/x/bin/python3", "python3"),
        ("Loaded /usr/lib/libcupti.so.13.0", "Loaded libcupti.so.13.0"),
        ("data_source=/home/me/my.txt", "data_source=my.txt"),
        ("a / b", "a / b"),
        ("config/shakespeare_char.yaml", "config/shakespeare_char.yaml"),
        ("A=1\0B=2", ""),
        ("file:///home/me/a.py(3): step", "file:a.py(3): step"),
        ("/home/planted", ""),
        (r"\/home\/me\/x", "x"),
        (r"C:\Users\Me Too\x.py", "C:x.py"),
        ("memory bandwidth (GB/s)", "memory bandwidth (GB/s)"),
        ("void f<a::b>(int) const::{lambda()#1}", "void f<a::b>(int) const::{lambda()#1}"),
    ],
)
def test_folders_go_and_the_rest_stays(text, clean):
    assert without_folders(text) == clean


def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path):
    path = tmp_path / "x.sqlite"
    path.write_bytes(b"no database" * 100)
    with pytest.raises(ValueError, match=r"x\.sqlite: cannot be scrubbed"):
        scrub(path)
    assert path.read_bytes() == b"no database" * 100
    assert list(tmp_path.iterdir()) == [path]


def plant(path):
    """A secret in every place where an export may hold text."""
    database = sqlite3.connect(path)
    database.executescript(
        """
        CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INT, devStateName TEXT, name TEXT,
            nameEnum INT, value TEXT);
        CREATE TABLE ProcessStreams (globalPid INT, filenameId INT, contentId INT);
        CREATE TABLE ANALYSIS_FILE (id INT, filename TEXT, contentId INT, globalPid INT);
        CREATE TABLE PROCESSES (globalPid INT, pid INT, name TEXT);
        """
    )
    strings = [
        f"A=1\0TOKEN={SECRET}\0",
        f"printed {SECRET}",
        f"/{SECRET}/lib/libx.so",
        f"/home/{SECRET}",
    ]
    strings = [(90_000 + i, text) for i, text in enumerate(strings)]
    # StringIds has lost its primary key; the row is what ProcessStreams is compared with
    database.executemany("INSERT INTO StringIds (rowid, id, value) SELECT ?1, ?1, ?2", strings)
    database.execute("INSERT INTO ProcessStreams VALUES (1, 90002, 90001)")
    for name in ("DeviceEnvironment", "Hostname", "UserName: USER", "Uuid"):
        row = (1, f"/{SECRET}/x", name, 610, SECRET)
        database.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (?, ?, ?, ?, ?)", row)
    for name in ("PROCESS_0:ENVIRONMENT_VARIABLE", "PROCESS_0:WORKING_DIR", "HOST_NAME"):
        database.execute("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", (name, SECRET))
    folders = f"see /tmp/{SECRET}/log.txt of {TOKENS[0]}"
    database.execute(
        "INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PARAM_INPUT_PATH', ?)", (folders,)
    )
    database.execute("INSERT INTO ANALYSIS_FILE VALUES (0, ?, 90001, 1)", (folders,))
    database.execute("INSERT INTO PROCESSES VALUES (1, 2, ?)", (folders,))
    database.execute("UPDATE DIAGNOSTIC_EVENT SET text = ?", (folders,))
    database.execute("UPDATE NVTX_EVENTS SET text = ? WHERE rowid = 5", (folders,))
    database.execute(
        "UPDATE NVTX_EVENTS SET jsonText = ? WHERE rowid = 6", (f'{{"a": "{folders}"}}',)
    )
    database.execute("UPDATE TARGET_INFO_GPU SET ctrlDevPath = ?", (f"/dev/{SECRET}/nvidia0",))
    database.commit()
    database.close()


def columns(trace):
    tables = (trace.operations, trace.calls, trace.ranges, trace.allocations)
    return [column for table in tables for column in vars(table).values()]


@pytest.mark.parametrize("packed", [False, True])
def test_a_secret_in_every_place_goes_and_every_number_stays(tmp_path, packed):
    path, out = tmp_path / "nsys.sqlite", tmp_path / "clean.sqlite"
    plant(small_export(path))
    if packed:
        path, out = tmp_path / "nsys.sqlite.gz", tmp_path / "clean.sqlite.gz"
        path.write_bytes(gzip.compress((tmp_path / "nsys.sqlite").read_bytes()))
    original = path.read_bytes()
    assert main([str(path), "-o", str(out)]) == 0
    content = gzip.decompress(out.read_bytes()) if packed else out.read_bytes()
    assert content.startswith(b"SQLite format 3") and SECRET.encode() not in content
    assert TOKENS[0].encode() not in content
    assert path.read_bytes() == original
    before, after = open_capture(path), open_capture(out)
    assert before.personal and not after.personal
    for old, new in zip(columns(before), columns(after), strict=True):
        assert np.array_equal(old, new)
    assert not [file for file in tmp_path.iterdir() if "scrubbed" in file.name]


@pytest.mark.parametrize("block_bytes", [1 << 20, 300])
def test_a_trace_loses_its_folders(tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr(scrubbing, "BLOCK_BYTES", block_bytes)
    trace = small_trace() | {"hostname": SECRET, "traceName": f"/home/{SECRET}/x.trace.json"}
    trace["distributedInfo"] = {"backend": "nccl", "SLURM_HOST": SECRET, "rank": 0}
    trace["traceEvents"][0]["args"]["name"] = f"/opt/{SECRET}/python3 --hub {TOKENS[0]}"
    trace["traceEvents"].append(event("python_function", f"/home/{SECRET}/train.py(7): step", 1, 2))
    samples = {"names": [f"/home/{SECRET}/train.py(9): read_rows"], "stacks": [[0]]}
    trace = {"python_samples": samples | {"times_ns": [1, 9], "stack": [0, 0]}} | trace
    path = write_trace(tmp_path / "x.trace.json", trace)
    before = open_capture(path)
    scrub(path)
    assert SECRET not in path.read_text() and TOKENS[0] not in path.read_text()
    found = json.loads(path.read_text())
    assert found["traceName"] == "x.trace.json" and found["distributedInfo"]["rank"] == 0
    assert found["traceEvents"][-1]["name"] == "train.py(7): step"
    assert found["python_samples"]["names"] == ["train.py(9): read_rows"]
    assert found["traceEvents"][1:-1] == trace["traceEvents"][1:-1]
    after = open_capture(path)
    assert before.personal and not after.personal


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a.sqlite", "b.sqlite", "-o", "c.sqlite"], "-o: works on one capture"),
        (["a.sqlite"], "give -o FILE for a copy, or --in-place to change the capture itself"),
        (["a.sqlite", "--in-place", "-o", "c.sqlite"], "not allowed with argument"),
        (
            [str(CAPTURES / "slow_eager.sqlite.gz"), "-o", "c.json"],
            "c.json: the name must end in .sqlite or .sqlite.gz",
        ),
        (["none.sqlite", "-o", "c.json"], "none.sqlite: no such file"),
        ([__file__, "-o", "c.json"], "test_scrub.py: cannot be scrubbed: it is neither an nsys ex"),
        (["a.sqlite", "--outptu"], "arguments: --outptu; did you mean --output?"),
        (["a.sqlite", "-o"], "expected one argument; see python -m profiling scrub --help"),
        ([], "required: CAPTURE; see python -m profiling scrub --help"),
        (["none.sqlite", "--in-place"], "none.sqlite: no such file"),
    ],
)
def test_mistakes_on_the_command_line(words, said):
    with pytest.raises(ValueError, match=said):
        main(words)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"hostname": "me", "notes": []}', 'is JSON, but not a trace of events (it has no "trace'),
        (to_json(MANIFEST), "is the manifest of a capture, not a capture; give the capture"),
        ("[1, 2]", "cannot be scrubbed: it is neither an nsys export nor a trace"),
    ],
)
def test_json_that_is_no_trace_is_refused_and_kept(tmp_path, text, said, packed):
    path = tmp_path / ("notes.json.gz" if packed else "notes.json")
    before = gzip.compress(text.encode()) if packed else text.encode()
    path.write_bytes(before)
    for words in (["--in-place"], ["-o", str(tmp_path / "copy.json")]):
        with pytest.raises(ValueError, match=re.escape(f"{path}: {said}")):
            main([str(path), *words])
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_a_database_that_is_no_export_is_refused_and_kept(tmp_path):
    path = tmp_path / "notes.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE Notes (name TEXT, value TEXT)")
        database.execute("INSERT INTO Notes VALUES ('Environment', '/home/me')")
        database.commit()
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"notes\.sqlite: is SQLite, but not an nsys export"):
        main([str(path), "--in-place"])
    assert path.read_bytes() == before


def test_a_trace_that_is_its_list_of_events_alone_is_scrubbed(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(f'[{{"ph": "X", "name": "/home/{SECRET}/train.py(7): step", "ts": 1}}]')
    main([str(path), "--in-place"])
    assert json.loads(path.read_text())[0]["name"] == "train.py(7): step"


def test_several_are_scrubbed_in_place(tmp_path, capsys):
    paths = [small_export(tmp_path / name) for name in ("a.sqlite", "b.sqlite")]
    for path in paths:
        plant(path)
    main(["--in-place", *map(str, paths)])
    assert all(SECRET.encode() not in path.read_bytes() for path in paths)
    assert capsys.readouterr().out.count(": scrubbed\n") == 2


def test_processes_that_nothing_was_recorded_of_go(report):
    mine, other = 5 << 24, 6 << 24
    database = sqlite3.connect(report)
    database.executescript(
        f"""
        CREATE TABLE PROCESSES (globalPid INT, pid INT, name TEXT);
        CREATE TABLE ThreadNames (nameId INT, priority INT, globalTid INT);
        CREATE TABLE NVTX_EVENTS (start INT, end INT, textId INT, globalTid INT);
        INSERT INTO PROCESSES VALUES ({mine}, 5, 'python3'), ({other}, 6, 'secret-agent');
        INSERT INTO StringIds VALUES (20, 'python3'), (21, 'secret-thread'), (22, 'log');
        INSERT INTO ThreadNames VALUES (20, 0, {mine + 5}), (21, 0, {other + 6}),
                                       (22, 0, {other + 7});
        INSERT INTO NVTX_EVENTS VALUES (1, 2, 22, {mine + 5});
        """
    )
    database.commit()
    database.close()
    scrub(report)
    database = sqlite3.connect(report)
    assert database.execute("SELECT name FROM PROCESSES").fetchall() == [("python3",)]
    assert database.execute("SELECT nameId FROM ThreadNames").fetchall() == [(20,)]
    strings = dict(database.execute("SELECT id, value FROM StringIds WHERE id >= 20"))
    assert strings == {20: "python3", 21: "", 22: "log"}  # a range is called log, too
    assert b"secret-" not in report.read_bytes()
