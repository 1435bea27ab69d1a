"""Reads what `nsys export --type sqlite` wrote. Called by profiling.timeline.opening.

A table exists only where it has rows, and columns differ between versions of the schema: what is
missing was not captured. There are no indexes, so tables are joined here and not by SQLite.
"""

import re
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from profiling.timeline import nsys_facts
from profiling.timeline.nsys_export import ACTIVITY, NVTX, PROCESS_BITS, Export, process_of
from profiling.timeline.nsys_stacks import call_stacks, has_backtraces, split_backtraces
from profiling.timeline.reading import first_matching, join_tables, rows_of, sort_by_start
from profiling.timeline.trace import (
    ANY_THREAD,
    COPY,
    GRAPH,
    KERNEL,
    MEMSET,
    Calls,
    Columns,
    Operations,
    Ranges,
    Trace,
    as_column_type,
)

PUSH_POP, START_END, DOMAIN_CREATE = 59, 60, 75  # NVTX_EVENTS.eventType
PAGEABLE = 0  # ENUM_CUDA_MEM_KIND

# the labels of ENUM_CUDA_MEMCPY_OPER, for exports that lack that table
COPY_KINDS = (
    *("Unknown", "Host-to-Device", "Device-to-Host", "Host-to-Array", "Array-to-Host"),
    *("Array-to-Array", "Array-to-Device", "Device-to-Array", "Device-to-Device"),
    *("Host-to-Host", "Peer-to-Peer", "Unified Host-to-Device", "Unified Device-to-Host"),
    "Unified Device-to-Device",
)
# the suffix that `nsys stats` cuts off; it leaves longer ones, as in cudaLaunchKernelExC_v11060
VERSION = re.compile(r"_v\d{4}$")

CALL = {
    "id": "correlationId",
    "thread": "globalTid",
    "name": "nameId",
    "returned": "returnValue",
}
NAMED = {"thread": "globalTid", "name": "nameId"}
OS_TRACE_EDGES = (31, 32)  # OSRT_API.eventClass of rows that are no calls: tracing began, ended
RANGE = {"type": "eventType", "thread": "globalTid", "domain": "domainId"}
PLACE = {"device": "deviceId", "stream": "streamId", "id": "correlationId", "process": "globalPid"}
GEOMETRY = ("blocks", "threads", "registers", "shared_bytes")
# kind of operation -> (table, its columns besides times and PLACE)
OPERATIONS = {
    KERNEL: (
        "KERNEL",
        {
            "name": "demangledName",
            "blocks": "gridX * gridY * gridZ",
            "threads": "blockX * blockY * blockZ",
            "registers": "registersPerThread",
            "shared_bytes": "staticSharedMemory + dynamicSharedMemory",
            "graph_node": "graphNodeId",
        },
    ),
    COPY: ("MEMCPY", {"name": "copyKind", "bytes": "bytes", "from": "srcKind", "to": "dstKind"}),
    MEMSET: ("MEMSET", {"bytes": "bytes"}),
    GRAPH: ("GRAPH_TRACE", {"name": "graphId"}),
}


def read(path: Path) -> Trace:
    """The capture in an export of schema 3. Raises ValueError with one line if it is damaged."""
    export = Export(path)
    with ThreadPoolExecutor(2) as pool:
        call = CALL | {"class": "eventClass"} if has_backtraces(export) else CALL
        pending_calls = pool.submit(export.read, f"{ACTIVITY}RUNTIME", call)
        tables = {
            kind: pool.submit(export.read, ACTIVITY + table, PLACE | columns)
            for kind, (table, columns) in OPERATIONS.items()
        }
        range_rows = ranges_of(export.read(NVTX, RANGE))
        operation_rows = named_operations(export, tables)
        # the longest table, so the last to be there
        call_rows, backtraces = split_backtraces(pending_calls.result())
    operation_rows, call_rows, range_rows = export.within_session(
        operation_rows, call_rows, range_rows
    )
    calls = None if call_rows is None else sort_by_start(call_rows)
    ends_ns = [rows["end_ns"] for rows in (operation_rows, calls) if rows is not None]
    tool_version, schema_version = nsys_facts.versions(export)
    operations = nsys_operations(operation_rows, calls)
    return Trace(
        kind="nsys",
        file=path,
        devices=nsys_facts.devices(export),
        operations=operations,
        calls=nsys_calls(export, calls),
        ranges=nsys_ranges(range_rows, ends_ns),
        allocations=nsys_facts.allocations(export),
        counters=nsys_facts.counters(export),
        os_calls=os_calls(export),
        call_stacks=call_stacks(export, calls, backtraces),
        overhead=profiler_overhead(export),
        tool_version=tool_version,
        schema_version=schema_version,
        warnings=nsys_facts.complaints(export) + export.warnings,
        events=nsys_facts.event_counts(export),
        personal=nsys_facts.is_personal(export),
        names=list(export.names.numbers),
    )


def nsys_calls(export: Export, rows: Columns | None) -> Calls | None:
    if rows is None:
        return None
    names = export.names.of_keys(rows["name"], lambda key: VERSION.sub("", export.string(key)))
    failed = rows.get("returned", np.zeros(len(names), np.int64)) > 0
    derived = {"name": names, "process": process_of(rows["thread"]), "failed": failed}
    return Calls.from_columns(rows | derived)


def os_calls(export: Export) -> Calls | None:
    rows = export.read("OSRT_API", NAMED | {"class": "eventClass"})
    if rows is None:
        return None
    return nsys_calls(export, sort_by_start(rows_of(rows, ~np.isin(rows["class"], OS_TRACE_EDGES))))


def profiler_overhead(export: Export) -> Ranges | None:
    rows = export.read("PROFILER_OVERHEAD", NAMED)
    calls = nsys_calls(export, None if rows is None else sort_by_start(rows))
    if calls is None:
        return None
    return Ranges.from_columns(vars(calls) | {"closed": np.ones(len(calls.name))})


def named_operations(export: Export, tables: dict[int, Future[Columns | None]]) -> Columns | None:
    """Operations of all kinds in one table, sorted by start.

    Empties `tables`, so that no part is held beside the joined table.
    """
    kinds = list(tables)
    parts = [
        with_common_columns(export, kind, rows)
        for kind in kinds
        if (rows := tables.pop(kind).result())
    ]
    return join_tables(parts) if parts else None


def nsys_operations(rows: Columns | None, calls: Columns | None) -> Operations | None:
    if rows is None:
        return None
    if calls is not None:
        rows["call"] = matching_in_process(
            rows["process"], rows["id"], calls["thread"], calls["id"]
        )
    rows["process"] = process_of(rows["process"])
    return Operations.from_columns(rows)


def with_common_columns(export: Export, kind: int, rows: Columns) -> Columns:
    """The rows of one kind of operation, with the columns that operations of every kind have."""
    nothing = np.broadcast_to(-1, len(rows["start_ns"]))
    stored = export.rows("ENUM_CUDA_MEMCPY_OPER", "id", "label")
    labels = {key: label for key, label in stored or enumerate(COPY_KINDS)}
    name = {
        KERNEL: export.string,
        COPY: lambda key: f"[CUDA memcpy {labels.get(key, 'Unknown')}]",
        MEMSET: lambda _: "[CUDA memset]",
        GRAPH: lambda key: f"CUDA graph {key}",
    }[kind]
    columns = ("start_ns", "end_ns", *PLACE, "bytes", *GEOMETRY, "graph_node")
    pageable = [rows.get(end, nothing) == PAGEABLE for end in ("from", "to")]
    common = {column: as_column_type(column, rows.get(column, nothing)) for column in columns}
    return common | {
        "kind": np.full(len(nothing), kind, np.int8),
        "name": export.names.of_keys(rows.get("name", nothing), name),
        "pageable": np.any(pageable, axis=0),
    }


def matching_in_process(
    process: np.ndarray, number: np.ndarray, of_process: np.ndarray, of_number: np.ndarray
) -> np.ndarray:
    """The result of reading.first_matching, for processes given as globalPid or globalTid."""
    return first_matching(process >> PROCESS_BITS, number, of_process >> PROCESS_BITS, of_number)


def ranges_of(events: Columns | None) -> Columns | None:
    """The ranges among NVTX's events, sorted by start, with the names of their domains."""
    if events is None:
        return None
    rows = sort_by_start(events)
    rows["domain"] = domains(rows)
    return rows_of(rows, np.isin(rows["type"], (PUSH_POP, START_END)))


def nsys_ranges(rows: Columns | None, ends_ns: list[np.ndarray]) -> Ranges | None:
    """The table of ranges. One that was not closed ends with the capture.

    `ends_ns` are the ends of all other events: the last end is that of the capture.
    """
    if rows is None:
        return None
    last_ns = max((int(end.max()) for end in (*ends_ns, rows["end_ns"]) if len(end)), default=0)
    rows["end_ns"] = np.where(rows["closed"], rows["end_ns"], last_ns)
    rows["process"] = process_of(rows["thread"])
    rows["thread"] = np.where(rows["type"] == START_END, ANY_THREAD, rows["thread"])
    return Ranges.from_columns(rows)


def domains(rows: Columns) -> np.ndarray:
    """The number of the name of each event's domain, or -1 without one.

    Another event of the same process gives a domain its name.
    """
    created = np.flatnonzero(rows["type"] == DOMAIN_CREATE)
    thread, domain = rows["thread"], rows["domain"]
    creation = matching_in_process(thread, domain, thread[created], domain[created])
    names = np.append(rows["name"][created], np.int32(-1))  # index -1 is the last
    return np.take(names, creation)
