"""Traces of made-up programs (tests.helpers.programs) as files, in the formats of both tools."""

import sqlite3
from pathlib import Path

from profiling.timeline.nsys_export import PROCESS_BITS
from profiling.timeline.nsys_sqlite import ACTIVITY
from profiling.timeline.trace import COPY, KERNEL, Trace
from tests.helpers.captures import event, write_trace
from tests.helpers.programs import US

KINDS = {
    "Host-to-Device": (1, "HtoD", "{} -> Device"),
    "Device-to-Host": (2, "DtoH", "Device -> {}"),
}
TABLES = """
    CREATE TABLE StringIds (id INT, value TEXT);
    CREATE TABLE TARGET_INFO_GPU (id INT, name TEXT, smCount INT, totalMemory INT);
    CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, globalTid INT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, correlationId INT, nameId INT,
        globalTid INT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId INT,
        correlationId INT, globalPid INT, demangledName INT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, deviceId INT, streamId INT,
        correlationId INT, globalPid INT, copyKind INT, bytes INT, srcKind INT, dstKind INT);
"""


def write_as(trace: Trace, tool: str, folder: Path) -> Path:
    """Write the kernels, copies, calls and ranges of a trace as `tool`, nsys or kineto, would."""
    write = {"nsys": write_nsys, "kineto": write_kineto}[tool]
    return write(trace, folder / {"nsys": "x.sqlite", "kineto": "x.json"}[tool])


def kind_of_copy(name: str) -> tuple[int, str, str]:
    return next(kind for direction, kind in KINDS.items() if direction in name)


def rows(trace: Trace, table: str) -> list[dict[str, int]]:
    columns = vars(getattr(trace, table))
    lists = (column.tolist() for column in columns.values())
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]


def write_nsys(trace: Trace, path: Path) -> Path:
    process = 41 << PROCESS_BITS
    database = sqlite3.connect(path)
    database.executescript(TABLES)

    def add(table: str, *values: object) -> None:
        marks = ", ".join("?" * len(values))
        database.execute(f"INSERT INTO {table} VALUES ({marks})", values)

    for number, name in enumerate(trace.names):
        add("StringIds", number, name)
    add("TARGET_INFO_GPU", 0, "NVIDIA H200", 132, 150 * 10**9)
    for row in rows(trace, "ranges"):
        name = trace.names[row["name"]]
        add("NVTX_EVENTS", row["start_ns"], row["end_ns"], 59, name, process + row["thread"])
    for number, row in enumerate(rows(trace, "calls")):
        times = row["start_ns"], row["end_ns"]
        add(f"{ACTIVITY}RUNTIME", *times, number, row["name"], process + row["thread"])
    for row in rows(trace, "operations"):
        place = (row["start_ns"], row["end_ns"], 0, row["stream"], row["call"], process)
        if row["kind"] == KERNEL:
            add(f"{ACTIVITY}KERNEL", *place, row["name"])
        if row["kind"] == COPY:
            number, short, _ = kind_of_copy(trace.names[row["name"]])
            host, device = 0 if row["pageable"] else 1, 2
            ends = (host, device) if short == "HtoD" else (device, host)
            add(f"{ACTIVITY}MEMCPY", *place, number, row["bytes"], *ends)
    database.commit()
    database.close()
    return path


def write_kineto(trace: Trace, path: Path) -> Path:
    events = []
    for row in rows(trace, "ranges"):
        events.append(event_of(row, "user_annotation", trace.names[row["name"]]))
    for number, row in enumerate(rows(trace, "calls")):
        events.append(event_of(row, "cuda_runtime", trace.names[row["name"]], correlation=number))
    for row in rows(trace, "operations"):
        place = {"device": 0, "stream": row["stream"], "correlation": row["call"]}
        name = trace.names[row["name"]]
        if row["kind"] == KERNEL:
            events.append(event_of(row, "kernel", name, **place))
        if row["kind"] == COPY:
            _, short, ends = kind_of_copy(name)
            name = f"Memcpy {short} ({ends.format('Pageable' if row['pageable'] else 'Pinned')})"
            events.append(event_of(row, "gpu_memcpy", name, **place, bytes=row["bytes"]))
    device = {"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150 * 10**9, "numSms": 132}
    trace_events = {"schemaVersion": 1, "deviceProperties": [device], "traceEvents": events}
    return write_trace(path, trace_events)


def event_of(row: dict[str, int], category: str, name: str, **args: int) -> dict[str, object]:
    took_us = (row["end_ns"] - row["start_ns"]) / US
    result = event(category, name, row["start_ns"] / US, took_us, **args)
    return result if category in ("kernel", "gpu_memcpy") else result | {"tid": row["thread"]}
