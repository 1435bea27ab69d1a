"""Captures in tests/captures, each opened once, and small ones of a few events.

tests/timeline/test_captures.py says where the real ones come from.
"""

import gzip
import json
import sqlite3
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from profiling.analysis.open_report import Capture, open_report
from profiling.analysis.records import Report
from profiling.lab.compiled import Compilation, index_graphs
from profiling.timeline.trace import Trace
from profiling.tools.torch_compile import Binary, GraphBreak, Index, parse_graph
from tests.paths import CAPTURES

OWN = ("slow_eager", "slow_compile", "flash_eager", "flash_compile")
APART = ("flash_attr_false", "flash_eager.trace")  # autograd's own thread launches backward
MANIFESTS = {
    "flash_metrics": "flash_metrics.window-1.json",
    "flash_eager.trace": "flash_eager.trace.window-1.json",
}

own = pytest.mark.parametrize("capture", OWN)
apart = pytest.mark.parametrize("capture", APART)


def path_of(name: str) -> Path:
    """File of a capture: NAME is one of nsys, NAME.trace one of torch.profiler."""
    return CAPTURES / f"{name}.{'json' if name.endswith('.trace') else 'sqlite'}.gz"


@cache
def capture_of(name: str) -> Capture:
    manifest = MANIFESTS.get(name)
    return open_report(path_of(name), CAPTURES / manifest if manifest else None)


def trace_of(name: str) -> Trace:
    return capture_of(name).trace


def report_of(name: str) -> Report:
    return capture_of(name).report


def inductor_code(part: str) -> str:
    """Inductor's code of a block, recorded on an H200; `part` is `forward` or `backward`."""
    with gzip.open(CAPTURES / f"inductor_block_{part}.py.gz", "rt") as file:
        return file.read()


def compilation(
    breaks: list[GraphBreak] | None = None,
    binaries: dict[tuple[str, str], Binary] | None = None,
) -> Compilation:
    """Result of `compiled` for a block recorded on an H200, forward and backward."""
    texts = [inductor_code(part) for part in ("forward", "backward")]
    graphs, kernels, files = index_graphs(
        [(parse_graph(text), text) for text in texts], binaries or {}
    )
    index = Index(
        torch="2.11.0",
        device="NVIDIA H200",
        attention="flash",
        dtype="bfloat16",
        compile_scope="block",
        first_micro_step_s=12.34,
        graphs=graphs,
        graph_breaks=breaks or [],
        kernels=kernels,
    )
    return Compilation(index, files)


PARTS = (
    *("CUPTI", "ENUM_CUDA_MEMCPY", "NVTX", "META_DATA", "StringIds", "DIAGNOSTIC_EVENT"),
    "TARGET_INFO_GPU",
)
KEPT = 40  # first events of each table


def small_export(path: Path) -> Path:
    """Write the beginning of a real export to `path`, in tables without constraints."""
    path.write_bytes(content_of_small_export())
    return path


@cache
def content_of_small_export() -> bytes:
    database = sqlite3.connect(":memory:")
    database.deserialize(gzip.decompress((CAPTURES / "flash_compile.sqlite.gz").read_bytes()))
    rows = "SELECT name FROM sqlite_master WHERE type = 'table'"
    for (table,) in database.execute(rows).fetchall():
        if table.startswith(PARTS):
            limit = "" if table in ("StringIds", "META_DATA_EXPORT") else f"LIMIT {KEPT}"
            database.execute(f"CREATE TABLE part AS SELECT * FROM {table} {limit}")
            database.execute(f"DROP TABLE {table}")
            database.execute(f"ALTER TABLE part RENAME TO {table}")
        else:
            database.execute(f"DROP TABLE {table}")
    database.execute(
        "DELETE FROM StringIds WHERE id NOT IN (SELECT demangledName FROM "
        "CUPTI_ACTIVITY_KIND_KERNEL UNION SELECT nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME "
        "UNION SELECT textId FROM NVTX_EVENTS WHERE textId NOTNULL)"
    )
    add_rare_tables(database)
    database.commit()
    database.execute("PRAGMA page_size = 1024")
    database.execute("VACUUM")
    return database.serialize()


def add_rare_tables(database: sqlite3.Connection) -> None:
    """Add tables that the capture lacks: memory, counters, a graph as a whole."""
    (process,) = database.execute(
        "SELECT globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL LIMIT 1"
    ).fetchone()
    database.executescript(
        f"""
        CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INT, globalPid INT, deviceId INT,
            bytes INT, memKind INT, memoryOperationType INT);
        INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (20, {process}, 0, 512, 2, 1),
            (10, {process}, 0, 512, 2, 0), (11, {process}, 0, 64, 1, 0),
            (12, {process}, 0, 8, 5, 0);
        CREATE TABLE GPU_METRICS (timestamp INT, typeId INT, metricId INT, value INT);
        INSERT INTO GPU_METRICS VALUES (30, 281479271677952, 1, 7), (20, 281479271677952, 1, 5),
            (20, 281479271677952, 2, 50), (20, 281479271677953, 1, 6), (20, 5, 99, 1);
        CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INT, metricId INT, metricName TEXT);
        INSERT INTO TARGET_INFO_GPU_METRICS VALUES (281479271677952, 1, 'SMs Active'),
            (281479271677952, 2, 'Tensor Active'), (281479271677953, 1, 'SMs Active');
        CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INT, end INT, deviceId INT,
            streamId INT, correlationId INT, globalPid INT, graphId INT);
        INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (100, 200, 0, 7, 1, {process}, 12);
        """
    )


def event(category: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    args = {key.replace("_", " ") if "Dev" in key else key: v for key, v in args.items()}
    row = {"ph": "X", "cat": category, "name": name, "pid": 41, "tid": 42, "ts": ts, "dur": dur}
    return row | {"args": args}


def small_trace() -> dict[str, Any]:
    """A Chrome trace of a few events, as torch.profiler writes it."""
    grid = {"grid": [2, 3, 4], "block": [32, 2, 1]}
    place = {"device": 0, "stream": 7}
    base = 4336715317583.299
    memory = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 41, "tid": 42}
    events = [
        {"name": "process_name", "ph": "M", "ts": base, "pid": 41, "args": {"name": "python3"}},
        event("user_annotation", "iteration 7", base, 90.5),
        event("cpu_op", "aten::mm", base + 1, 10.001),
        event("cuda_runtime", "cudaLaunchKernel", base + 2, 5.5, correlation=3),
        event("cuda_driver", "cuLaunchKernelEx", base + 9, 1, correlation=4),
        event("cuda_runtime", "cudaMemcpyAsync", base + 11, 1, correlation=5),
        event("cuda_runtime", "cudaMemsetAsync", base + 12, 1, correlation=6),
        event(
            "kernel", "gemm<{lambda()#1}, {x}>", base + 20, 30.25, correlation=3, **place, **grid
        ),
        event("kernel", "late", base + 60, 2, correlation=4, **place, **grid),
        event(
            "gpu_memcpy",
            "Memcpy HtoD (Pageable -> Device)",
            base + 70,
            1,
            **place,
            correlation=5,
            bytes=64,
        ),
        event("gpu_memset", "Memset (Device)", base + 72, 1, **place, correlation=99, bytes=4),
        {"ph": "s", "id": 3, "pid": 41, "tid": 42, "ts": base, "cat": "ac2g", "name": "ac2g"},
        memory | {"ts": base + 5, "args": {"Bytes": 512, "Device Id": 0, "Device Type": 1}},
        memory | {"ts": base + 6, "args": {"Bytes": 9, "Device Id": -1, "Device Type": 0}},
        memory | {"ts": base + 7, "args": {"Bytes": -512, "Device Id": 0, "Device Type": 1}},
        event("Trace", "PyTorch Profiler (0)", base, 100) | {"pid": "Spans", "tid": "x"},
    ]
    events[7]["args"] |= {"registers per thread": 40, "shared memory": 1024}
    device = {"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "numSms": 132}
    device |= {"computeMajor": 9, "computeMinor": 0}
    return {
        "schemaVersion": 1,
        "deviceProperties": [device],
        "displayTimeUnit": "ms",
        "traceEvents": events,
        "traceName": "window-1",
    }  # fmt: skip


def write_trace(path: Path, trace: Any) -> Path:
    path.write_text(json.dumps(trace), encoding="utf-8")
    return path
