"""Lines of the program from nsys's backtraces: a real export, with stacks as nsys writes them."""

import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import pytest

from profiling.analysis.open_report import open_report
from profiling.report.renderers.markdown import markdown
from profiling.report.single.document import report_document
from profiling.timeline.nsys_sqlite import read
from profiling.timeline.nsys_stacks import OF_NO_CALL, UNKNOWN
from profiling.timeline.scrub import scrub
from tests.helpers.captures import small_export

# numbers that nsys 2025.3 gives to the layouts; those of its samples come with every export
SCHEMA, STATE, FRAME = 4294967301, 4294967300, 4294967299
SAMPLE, SAMPLE_STATE, SAMPLE_FRAME = 4294967298, 4294967297, 4294967296
RUN = "/home/me/run"
TORCH = "/usr/lib/python3.12/site-packages/torch"
TABLES = f"""
CREATE TABLE CUDA_CALLCHAINS (id INT, symbol INT, module INT, stackDepth INT);
CREATE TABLE NVTX_PAYLOAD_SCHEMAS (domainId INT, schemaId INT, name TEXT, payloadSize INT);
CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES
  (domainId INT, schemaId INT, name TEXT, type INT, offset INT);
INSERT INTO NVTX_PAYLOAD_SCHEMAS VALUES (1, {SCHEMA}, 'Python Backtrace on CUDA', NULL),
  (1, {FRAME}, NULL, 24), (-2, {SAMPLE}, 'Python Periodic Sampling', NULL),
  (-2, {SAMPLE_FRAME}, NULL, 24);
INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES
  (1, {SCHEMA}, 'Thread state ID', 18, NULL), (1, {SCHEMA}, 'Thread state', {STATE}, 8),
  (1, {SCHEMA}, 'Frames count', 16, 12), (1, {SCHEMA}, 'Frames', {FRAME}, 16),
  (1, {FRAME}, 'Function', 80, NULL), (1, {FRAME}, 'File', 80, 8), (1, {FRAME}, 'Line', 15, 16),
  (-2, {SAMPLE}, 'Thread state ID', 18, NULL), (-2, {SAMPLE}, 'Thread state', {SAMPLE_STATE}, 8),
  (-2, {SAMPLE}, 'Frames count', 16, 12), (-2, {SAMPLE}, 'Frames', {SAMPLE_FRAME}, 16),
  (-2, {SAMPLE_FRAME}, 'Function', 80, NULL), (-2, {SAMPLE_FRAME}, 'File', 80, 8),
  (-2, {SAMPLE_FRAME}, 'Line', 5, 16);
INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:WORKING_DIR', '{RUN}');
"""
REST = b"Key="  # behind a line lies what happened to be in memory
Stack = list[tuple[str, str, int]]  # function, file, line; the innermost first
MAIN = ("&lt;module&gt;", f"{RUN}/train.py", 9)
HOOK = "/home/me/tool/profiling/attach/hook/_profiling_attach/outermost.py"  # of `run`
FORWARD: Stack = [
    ("softmax", f"{TORCH}/nn/functional.py", 2000),
    ("__call__", HOOK, 67),
    ("forward", f"{RUN}/parts/model.py", 71),
    ("_call_impl", f"{TORCH}/nn/modules/module.py", 1775),
    MAIN,
]
BACKWARD: Stack = [
    ("_engine_run_backward", f"{TORCH}/autograd/graph.py", 841),
    ("backward", f"{TORCH}/_tensor.py", 630),
    ("step", f"{RUN}/train.py", 12),
    MAIN,
]
OF_TORCH: Stack = [("load", f"{TORCH}/loader.py", 3)]


def payload(database: sqlite3.Connection, stack: Stack, schema: int = SCHEMA) -> bytes:
    def number(text: str) -> int:
        row = database.execute("SELECT id FROM StringIds WHERE value = ?", [text]).fetchone()
        if row is None:
            row = database.execute("SELECT max(id) + 1 FROM StringIds").fetchone()
            database.execute("INSERT INTO StringIds VALUES (?, ?)", [*row, text])
        return row[0]

    frames = (struct.pack("<QQi4s", number(name), number(file), n, REST) for name, file, n in stack)
    content = struct.pack("<QII", 7, 1, len(stack)) + b"".join(frames)
    return struct.pack("<4Q", 1, schema, len(content), 32) + content


@pytest.fixture
def export(tmp_path):
    """export(*stacks): a real export whose launches but the first have these stacks in turn."""

    def written(*stacks: Stack | bytes | None) -> Path:
        path = tmp_path / "stacks.sqlite"
        small_export(path)
        with closing(sqlite3.connect(path)) as database:
            database.executescript(TABLES)
            blobs = [payload(database, s) if isinstance(s, list) else s for s in stacks]
            launches = database.execute(
                "SELECT DISTINCT r.start, r.end, r.globalTid, r.correlationId, r.nameId FROM "
                "CUPTI_ACTIVITY_KIND_RUNTIME r JOIN CUPTI_ACTIVITY_KIND_KERNEL USING "
                "(correlationId) ORDER BY r.start"
            ).fetchall()
            for turn, (start, end, *of_call) in enumerate(launches[1:]):
                row = [start - 90, end + 70, 67, *of_call, 0, turn]
                database.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?,?,?,?)", row
                )
                mark = [start - 90, 34, of_call[0], 1, blobs[turn % len(blobs)]]
                database.execute(
                    "INSERT INTO NVTX_EVENTS (start, eventType, globalTid, domainId, binaryData) "
                    "VALUES (?,?,?,?,?)",
                    mark,
                )
            database.commit()
        return path

    return written


def edit(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute(statement)
        database.commit()


def test_a_launch_has_the_line_of_its_stack(export, tmp_path):
    plain = small_export(tmp_path / "plain.sqlite")
    bare, path = read(plain), export(FORWARD, BACKWARD, OF_TORCH)
    trace = read(path)
    assert len(trace.calls.name) == len(bare.calls.name), "a launch counts once"
    assert (trace.operations.call == bare.operations.call).all()
    assert bare.call_stacks is None and not trace.warnings
    capture = open_report(path)
    lines = capture.report.lines
    found = {(row.place, row.function, row.exact): list(row.found_ms) for row in lines.lines}
    assert found == {
        ("parts/model.py:71", "forward", True): ["launch"],
        ("train.py:12", "step", True): ["backward_call"],
    }
    assert sorted(row.count for row in lines.lines) == [1, 2]
    assert lines.replayed_ns > 0, "the other call of backward replays a CUDA graph"
    events = capture.step_events
    named = {events.names[line] for line in events.launched.line if line >= 0}
    assert named == {"parts/model.py:71", "train.py:12"}
    said = markdown(report_document(capture.report))
    assert "nsys records no Python stack of some calls" in said


def test_what_is_scrubbed_has_the_same_lines_and_no_folders(export):
    path = export(FORWARD, OF_TORCH)
    before = open_report(path).report.lines
    edit(path, "UPDATE NVTX_EVENTS SET binaryData = x'736563726574' WHERE eventType = 59")
    marks = "eventType, globalTid, start, binaryData"  # of programs, also without a text
    edit(path, f"INSERT INTO NVTX_EVENTS ({marks}) VALUES (34, 1, 0, x'736563726574')")
    longer = "zeroblob(8) || x'0500000000000000' || zeroblob(16) || x'736563726574'"
    edit(path, f"INSERT INTO NVTX_EVENTS ({marks}) VALUES (34, 1, 0, {longer})")
    scrub(path)
    assert open_report(path).report.lines == before
    content = path.read_bytes()
    assert not any(part in content for part in (b"/home/me", b"secret", REST))


def test_scrubbing_drops_the_payloads_of_an_export_without_names_of_texts(export):
    path = export(FORWARD)
    edit(path, "ALTER TABLE NVTX_EVENTS DROP COLUMN textId")
    edit(path, "UPDATE NVTX_EVENTS SET binaryData = x'736563726574'")
    scrub(path)
    assert b"secret" not in path.read_bytes()


def test_an_export_without_its_payloads_says_how_to_get_them(export):
    trace = read(export(None))
    assert trace.call_stacks is None
    assert any("--include-blobs=true" in warning for warning in trace.warnings)


def test_another_layout_is_said_to_be_unknown(export):
    path = export(FORWARD)
    edit(path, "UPDATE NVTX_PAYLOAD_SCHEMA_ENTRIES SET name = 'Source' WHERE offset = 8")
    trace = read(path)
    assert trace.call_stacks is None and UNKNOWN in trace.warnings


def test_stacks_of_a_capture_without_their_calls_are_said_to_be_there(export):
    path = export(FORWARD)
    edit(path, "DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE eventClass != 67")
    trace = read(path)
    assert trace.call_stacks is None and OF_NO_CALL in trace.warnings
    assert open_report(path).report.lines is None


def test_a_payload_that_is_damaged_or_another_one_has_no_frames(export):
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript("CREATE TABLE StringIds (id INT, value TEXT)")
        database.execute("INSERT INTO StringIds VALUES (1, '')")
        whole = payload(database, FORWARD)
        other = payload(database, FORWARD, schema=5)
    endless = whole[:44] + b"\xff\xff\xff\x7f" + whole[48:]
    trace = read(export(b"", whole[:40], whole[:-10], endless, other))
    assert trace.call_stacks is None
    assert UNKNOWN in trace.warnings
