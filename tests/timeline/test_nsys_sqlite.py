"""profiling.timeline.nsys_sqlite: an export as columns, with the sums of `nsys stats`."""

import csv
from pathlib import Path

import numpy as np
import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.summary import summarize
from profiling.timeline.nsys_sqlite import read
from profiling.timeline.trace import ANY_THREAD, COPY, GRAPH, KERNEL, MEMSET
from tests.helpers.captures import small_export, trace_of
from tests.paths import CAPTURES
from tests.soak.damage import alter_export

PROCESS = 281503430868992  # the globalPid of the small export


@pytest.fixture
def export(tmp_path):
    return small_export(tmp_path / "small.sqlite")


def change(path: Path, script: str) -> Path:
    content = alter_export(path.read_bytes(), lambda database: database.executescript(script))
    path.write_bytes(content)
    return path


def test_every_operation_of_a_real_capture_has_its_call():
    trace = trace_of("flash_eager")
    operations, calls = trace.operations, trace.calls
    assert np.bincount(operations.kind).tolist() == [7542, 22, 560]
    assert (operations.call >= 0).all() and (np.diff(operations.start_ns) >= 0).all()
    assert (calls.start_ns[operations.call] <= operations.start_ns).all()
    assert (calls.process[operations.call] == operations.process).all()
    names = {trace.names[name] for name in np.unique(calls.name[operations.call]).tolist()}
    assert "cudaLaunchKernel" in names and "cudaMemcpyAsync" in names
    assert trace.schema_version == "3.20.3" and trace.tool_version == "2025.3.2.0"
    (device,) = trace.devices
    assert (device.name, device.sm_count) == ("NVIDIA H200", 132)
    assert device.compute_capability == "9.0"
    assert device.memory_bandwidth_bytes_per_s == 4814304000000


def test_ranges_have_names_of_both_kinds_and_domains():
    trace = trace_of("slow_eager")
    ranges = trace.ranges
    ours = ranges.domain == trace.names.index("nanogpt")
    names = [trace.names[name] for name in ranges.name[ours].tolist()]
    assert [name for name in names if name.startswith("iteration")] == [
        f"iteration {number}" for number in range(100, 120)
    ]
    assert names.count("backward") == 20
    others = {trace.names[name] for name in ranges.name[~ours].tolist()}
    assert any(name.startswith("cub::") for name in others)  # registered strings of a library
    assert ranges.closed.all() and trace.warnings == [] and not trace.personal


def test_kernels_of_one_graph_launch_share_its_call():
    trace = trace_of("flash_compile")
    name = trace.names.index("cudaGraphLaunch_v10000")  # as `nsys stats` prints it
    launches = np.flatnonzero(trace.calls.name == name)
    by_graph = np.isin(trace.operations.call, launches)
    assert len(launches) < 100 and np.count_nonzero(by_graph) > 6000


def test_a_small_export_event_by_event(export):
    trace = read(export)
    operations = trace.operations
    assert np.bincount(operations.kind).tolist() == [40, 40, 40, 1]
    graph = np.flatnonzero(operations.kind == GRAPH).item()
    assert trace.names[operations.name[graph]] == "CUDA graph 12"
    kernel = np.flatnonzero(operations.kind == KERNEL)[0]
    assert operations.start_ns[kernel] == 14330400 and operations.end_ns[kernel] == 14336032
    assert (operations.blocks[kernel], operations.threads[kernel]) == (17, 128)
    assert (operations.registers[kernel], operations.shared_bytes[kernel]) == (32, 0)
    assert operations.bytes[kernel] == -1 and operations.process[kernel] == 1696
    copy = np.flatnonzero(operations.kind == COPY)[0]
    assert trace.names[operations.name[copy]] == "[CUDA memcpy Device-to-Device]"
    assert operations.bytes[copy] == 131072 and operations.blocks[copy] == -1
    memset = np.flatnonzero(operations.kind == MEMSET)[0]
    assert trace.names[operations.name[memset]] == "[CUDA memset]"
    assert trace.allocations.bytes.tolist() == [512, -512]  # neither the host's nor loaded code's
    assert trace.allocations.time_ns.tolist() == [10, 20]
    sampled = [(m.name, m.device, m.time_ns.tolist(), m.value.tolist()) for m in trace.counters]
    assert sampled == [
        ("SMs Active", 0, [20, 30], [5, 7]),
        ("Tensor Active", 0, [20], [50]),
        ("SMs Active", 1, [20], [6]),
    ]


def test_what_is_not_there_was_not_captured(export):
    change(
        export,
        """
        DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME;
        DROP TABLE NVTX_EVENTS;
        DROP TABLE GPU_METRICS;
        DROP TABLE CUDA_GPU_MEMORY_USAGE_EVENTS;
        DROP TABLE META_DATA_EXPORT;
        ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN gridX;
        ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN globalPid;
        ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN dynamicSharedMemory;
        ALTER TABLE CUPTI_ACTIVITY_KIND_MEMCPY DROP COLUMN srcKind;
        ALTER TABLE TARGET_INFO_GPU DROP COLUMN computeMinor;
        """,
    )
    trace = read(export)
    assert trace.calls is trace.ranges is trace.counters is trace.allocations is None
    assert trace.schema_version is trace.tool_version is None
    assert (trace.operations.call == -1).all()
    kernels = trace.operations.kind == KERNEL
    assert (trace.operations.blocks[kernels] == -1).all()
    assert (trace.operations.threads[kernels] > 0).all()
    assert (trace.operations.shared_bytes[kernels] == -1).all()
    assert (trace.operations.registers[kernels] > 0).all()
    assert trace.devices[0].compute_capability is None
    assert (trace.operations.process[kernels] == -1).all()
    for table in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"):
        change(export, f"DROP TABLE CUPTI_ACTIVITY_KIND_{table}")
    assert read(export).operations is None


def test_a_table_without_rows_was_not_captured(export):
    change(export, "DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME")
    assert read(export).calls is None
    for table in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"):
        change(export, f"DELETE FROM CUPTI_ACTIVITY_KIND_{table}")
    trace = read(export)
    assert trace.operations is None
    assert summarize(Analysis(trace)).gpu is None


def test_a_launch_is_of_the_same_process(export):
    """Correlation ids are unique within a process only."""
    other = PROCESS + (1 << 24)
    change(
        export,
        f"""
        DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME; DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL;
        DROP TABLE CUPTI_ACTIVITY_KIND_MEMCPY; DROP TABLE CUPTI_ACTIVITY_KIND_MEMSET;
        DROP TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE;
        INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId, nameId)
            VALUES (30, 31, {other + 5}, 1, 0), (10, 11, {PROCESS + 5}, 1, 0);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, correlationId, globalPid,
            demangledName) VALUES (50, 60, 1, 1, {other}, 0), (40, 45, 0, 1, {PROCESS}, 0),
            (70, 80, 0, 2, {PROCESS}, 0), (90, 95, 0, NULL, {PROCESS}, 0);
        """,
    )
    trace = read(export)
    assert trace.operations.call.tolist() == [0, 1, -1, -1]
    assert trace.operations.process.tolist() == [1696, 1697, 1696, 1696]
    assert trace.operations.device.tolist() == [0, 1, 0, 0]


def test_that_tracing_of_the_system_began_is_no_call(export):
    change(
        export,
        f"""
        CREATE TABLE OSRT_API (start INT, end INT, eventClass INT, globalTid INT, nameId INT);
        INSERT INTO StringIds VALUES (900001, 'poll'), (900000, '[Unknown]');
        INSERT INTO OSRT_API VALUES (5, 5, 31, {PROCESS}, 900000), (30, 70, 27, {PROCESS}, 900001),
            (10, 20, 27, {PROCESS}, 900001), (80, 80, 32, {PROCESS}, 900000);
        """,
    )
    trace = read(export)
    assert [trace.names[name] for name in trace.os_calls.name.tolist()] == ["poll", "poll"]
    assert trace.os_calls.start_ns.tolist() == [10, 30]
    change(export, "ALTER TABLE OSRT_API DROP COLUMN eventClass")
    assert len(read(export).os_calls.name) == 4


def test_open_and_started_ranges(export):
    change(
        export,
        f"""
        DELETE FROM NVTX_EVENTS;
        INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, domainId) VALUES
            (5, NULL, 59, 'open', {PROCESS + 7}, 0),
            (-1, -1, 59, 'at minus one', {PROCESS + 7}, 0),
            (1, 2, 60, 'started', {PROCESS + 7}, 0),
            (3, NULL, 34, 'a mark', {PROCESS + 7}, 0);
        """,
    )
    trace = read(export)
    ranges = trace.ranges
    assert [trace.names[name] for name in ranges.name] == ["at minus one", "started", "open"]
    assert ranges.closed.tolist() == [True, True, False]
    assert ranges.thread.tolist() == [PROCESS + 7, ANY_THREAD, PROCESS + 7]
    assert ranges.end_ns.tolist()[:2] == [-1, 2]
    assert ranges.end_ns[2] == max(trace.operations.end_ns.max(), trace.calls.end_ns.max())
    assert ranges.domain.tolist() == [-1, -1, -1]


def test_what_nsys_lost_is_said_and_its_chatter_is_not(export):
    change(
        export,
        """
        INSERT INTO DIAGNOSTIC_EVENT (timestamp, timestampType, source, severity, text) VALUES
            (0, 1, 1, 2, 'Not all CUDA events might have been collected.'),
            (0, 1, 1, 2, '120 events were  dropped'), (0, 1, 1, 3, 'CUPTI broke'),
            (0, 1, 1, 3, 'CUPTI broke'), (0, 1, 1, 1, 'nothing was lost');
        UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 1 WHERE rowid = 3;
        """,
    )
    trace = read(export)
    assert trace.warnings[:2] == ["120 events were dropped", "CUPTI broke"]
    assert "KERNEL" in trace.warnings[2] and "1 rows" in trace.warnings[2]
    assert np.count_nonzero(trace.operations.kind == KERNEL) == 39


def test_events_that_nsys_could_not_process_are_counted(export):
    """Elsewhere the count may be of several windows."""
    change(
        export,
        """
        DELETE FROM DIAGNOSTIC_EVENT;
        INSERT INTO DIAGNOSTIC_EVENT (timestamp, timestampType, source, severity, text) VALUES
            (0, 1, 1, 1, 'Number of CUPTI events produced: 	0, CUPTI buffers: 2.'),
            (0, 1, 1, 1, 'Number of CUPTI events produced: 	9000, CUPTI buffers: 50.');
        """,
    )
    assert read(export).events is None
    error = "Error when processing events: Source ID=\nType=ErrorInformation (18)\n"
    change(
        export,
        f"""
        INSERT INTO DIAGNOSTIC_EVENT (timestamp, timestampType, source, severity, text) VALUES
            (1, 2, 1, 2, '{error} 1'), (1, 2, 1, 2, '{error} 2');
        """,
    )
    trace = read(export)
    held = len(trace.operations.name) + len(trace.calls.name)
    assert trace.events.recorded == 9000 and held <= trace.events.kept < 9000
    assert trace.warnings == ["Error when processing events"]


@pytest.mark.parametrize(
    "script",
    [
        "INSERT INTO StringIds VALUES (99991, 'HOME=/x' || char(0) || 'KEY=1')",
        "INSERT INTO StringIds VALUES (99991, '/home/me/train.py')",
        "INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', 'A=b')",
        "INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PARAM_INPUT_PATH', '/data/me/x.nsys-rep')",
        "UPDATE NVTX_EVENTS SET text = 'load /data/me/x.bin'",
    ],
)
def test_what_is_personal_is_noticed(export, script):
    assert not read(export).personal
    assert read(change(export, script)).personal


@pytest.mark.parametrize("name", ["slow_eager", "flash_compile"])
def test_sums_equal_those_of_nsys_stats(name):
    trace = trace_of(name)
    calls, operations = trace.calls, trace.operations
    kernels = operations.kind == KERNEL
    for report, rows, which in (
        ("cuda_api_sum", calls, slice(None)),
        ("cuda_gpu_kern_sum", operations, kernels),
        ("cuda_gpu_mem_time_sum", operations, ~kernels),
    ):
        took_ns = (rows.end_ns - rows.start_ns)[which]
        names = rows.name[which]
        found = {
            trace.names[i]: [int(f(took_ns[names == i])) for f in (len, np.sum, np.min, np.max)]
            for i in np.unique(names).tolist()
        }
        assert found == stock(name, report)


def stock(name: str, report: str) -> dict[str, list[int]]:
    with open(CAPTURES / f"{name}_{report}.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    counts = ("Num Calls", "Instances", "Count")
    return {
        row.get("Name") or row["Operation"]: [
            int(next(row[count] for count in counts if count in row)),
            *(int(row[f"{column} (ns)"]) for column in ("Total Time", "Min", "Max")),
        ]
        for row in rows
    }
