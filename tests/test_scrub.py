"""profiling.launch.scrub: nothing of the environment stays in the file, and no event is touched."""

import sqlite3

import pytest

from profiling.launch.scrub import scrub, without_folders

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
