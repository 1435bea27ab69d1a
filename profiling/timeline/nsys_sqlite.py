"""Reads what `nsys export --type sqlite` wrote. Called by profiling.timeline.opening.

Tables exist only where they have rows, and columns differ over the schema's versions: what is not
there was not captured. There are no indexes, so tables are joined here and not by SQLite.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from profiling.timeline import nsys_facts
from profiling.timeline.nsys_export import NVTX, OPEN, PROCESS_BITS, Export, narrow, process_of
from profiling.timeline.sqlite_columns import MISSING, Columns
from profiling.timeline.trace import (
    ANY_THREAD,
    COPY,
    GRAPH,
    KERNEL,
    MEMSET,
    Calls,
    Operations,
    Ranges,
    Trace,
)

ACTIVITY = "CUPTI_ACTIVITY_KIND_"
PUSH_POP, START_END, DOMAIN_CREATE = 59, 60, 75  # NVTX_EVENTS.eventType
PAGEABLE = 0  # ENUM_CUDA_MEM_KIND
ID_BITS = 40  # of a correlation id, which has 32; the rest of a key is for the process

# of ENUM_CUDA_MEMCPY_OPER, for exports that lack that table
COPY_KINDS = (
    *("Unknown", "Host-to-Device", "Device-to-Host", "Host-to-Array", "Array-to-Host"),
    *("Array-to-Array", "Array-to-Device", "Device-to-Array", "Device-to-Device"),
    *("Host-to-Host", "Peer-to-Peer", "Unified Host-to-Device", "Unified Device-to-Host"),
    "Unified Device-to-Device",
)
# `nsys stats` cuts this off, but leaves longer ones, as in cudaLaunchKernelExC_v11060
VERSION = re.compile(r"_v\d{4}$")

CALL = {"id": "correlationId", "thread": "globalTid", "name": "nameId"}
RANGE = {"type": "eventType", "thread": "globalTid", "domain": "domainId"}
PLACE = {"device": "deviceId", "stream": "streamId", "id": "correlationId", "process": "globalPid"}
# kind of operation -> (table, its columns besides times and PLACE)
OPERATIONS = {
    KERNEL: (
        "KERNEL",
        {
            "name": "demangledName",
            "blocks": "gridX * gridY * gridZ",
            "threads": "blockX * blockY * blockZ",
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
        reading = pool.submit(export.read, f"{ACTIVITY}RUNTIME", CALL)
        tables = {
            kind: pool.submit(export.read, ACTIVITY + table, PLACE | columns)
            for kind, (table, columns) in OPERATIONS.items()
        }
        found = {kind: table.result() for kind, table in tables.items()}
        rows = reading.result()
    calls = None if rows is None else by_start(rows)
    events = export.read(NVTX, RANGE)
    tool_version, schema_version = nsys_facts.versions(export)
    operations = nsys_operations(export, found, calls)
    ends = [rows["end"] for rows in (calls, *found.values()) if rows]
    return Trace(
        kind="nsys",
        file=path,
        devices=nsys_facts.devices(export),
        operations=operations,
        calls=nsys_calls(export, calls),
        ranges=nsys_ranges(export, events, ends),
        allocations=nsys_facts.allocations(export),
        counters=nsys_facts.counters(export),
        tool_version=tool_version,
        schema_version=schema_version,
        warnings=nsys_facts.complaints(export) + export.warnings,
        personal=nsys_facts.is_personal(export),
        names=list(export.names.numbers),
    )


def by_start(rows: Columns) -> Columns:
    start = rows["start"]
    if np.all(start[1:] >= start[:-1]):
        return rows
    order = np.argsort(start, kind="stable")
    return {name: values[order] for name, values in rows.items()}


def nsys_calls(export: Export, rows: Columns | None) -> Calls | None:
    if rows is None:
        return None
    return Calls(
        start_ns=rows["start"],
        end_ns=rows["end"],
        name=export.names.of(rows["name"], lambda key: VERSION.sub("", export.string(key))),
        process=process_of(rows["thread"]),
        thread=rows["thread"],
    )


def nsys_operations(
    export: Export, found: dict[int, Columns | None], calls: Columns | None
) -> Operations | None:
    tables = [named(export, kind, rows) for kind, rows in found.items() if rows is not None]
    if not tables:
        return None
    rows = by_start({name: np.concatenate([t[name] for t in tables]) for name in tables[0]})
    none = np.empty(0, np.int64)
    of = calls or {"thread": none, "id": none}
    return Operations(
        start_ns=rows["start"],
        end_ns=rows["end"],
        kind=rows["kind"].astype(np.int8),
        name=rows["name"].astype(np.int32),
        process=process_of(rows["process"]),
        device=narrow(rows["device"], "device", export.path),
        stream=rows["stream"],
        call=matching(rows["process"], rows["id"], of["thread"], of["id"]),
        bytes=rows["bytes"],
        blocks=rows["blocks"],
        threads=narrow(rows["threads"], "block", export.path),
        pageable=rows["pageable"].astype(bool),
    )


def named(export: Export, kind: int, rows: Columns) -> Columns:
    """The same columns for operations of each kind."""
    nothing = np.full(len(rows["start"]), -1)
    copied = dict(export.rows("ENUM_CUDA_MEMCPY_OPER", "id", "label")) or dict(
        enumerate(COPY_KINDS)
    )
    name = {
        KERNEL: export.string,
        COPY: lambda key: f"[CUDA memcpy {copied.get(key, 'Unknown')}]",
        MEMSET: lambda _: "[CUDA memset]",
        GRAPH: lambda key: f"CUDA graph {key}",
    }[kind]
    pageable = [rows[end] == PAGEABLE for end in ("from", "to") if kind == COPY]
    columns = ("start", "end", "device", "stream", "id", "process", "bytes", "blocks", "threads")
    return {column: rows.get(column, nothing) for column in columns} | {
        "kind": np.full(len(nothing), kind),
        "name": export.names.of(rows.get("name", nothing), name),
        "pageable": np.any(pageable, axis=0) if pageable else nothing == PAGEABLE,
    }


def matching(
    process: np.ndarray, number: np.ndarray, of_process: np.ndarray, of_number: np.ndarray
) -> np.ndarray:
    """For each process and number the first row of the others with the same two; -1 without one."""
    found = np.full(len(number), -1)
    if not len(of_number):
        return found
    processes = np.unique(of_process >> PROCESS_BITS)
    others, _ = joint_keys(of_process, of_number, processes)
    order = np.argsort(others, kind="stable")
    others = others[order]
    wanted, known = joint_keys(process, number, processes)
    at = np.minimum(np.searchsorted(others, wanted), len(order) - 1)
    matched = known & (others[at] == wanted)
    found[matched] = order[at[matched]]
    return found


def joint_keys(
    process: np.ndarray, number: np.ndarray, processes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(one number for process and number, whether there are both)."""
    process = process >> PROCESS_BITS
    index = np.minimum(np.searchsorted(processes, process), len(processes) - 1)
    known = (processes[index] == process) & (number >= 0) & (number < 1 << ID_BITS)
    return np.where(known, (index << ID_BITS) | number, MISSING), known


def nsys_ranges(export: Export, events: Columns | None, ends: list[np.ndarray]) -> Ranges | None:
    """`ends` of all other events, as the end of a range that has none is that of the capture."""
    if events is None:
        return None
    rows = by_start(events)
    domain = domains(rows)
    which = np.flatnonzero((rows["type"] == PUSH_POP) | (rows["type"] == START_END))
    rows = {name: values[which] for name, values in rows.items()}
    closed = rows["end"] != OPEN
    ends = [*ends, rows["start"], rows["end"][closed]]
    last = max((int(end.max()) for end in ends if len(end)), default=0)
    return Ranges(
        start_ns=rows["start"],
        end_ns=np.where(closed, rows["end"], last),
        closed=closed,
        name=rows["name"],
        domain=domain[which],
        process=process_of(rows["thread"]),
        thread=np.where(rows["type"] == START_END, ANY_THREAD, rows["thread"]),
    )


def domains(rows: Columns) -> np.ndarray:
    """The name of each event's domain, which another event of its process gave it; else -1."""
    created = np.flatnonzero(rows["type"] == DOMAIN_CREATE)
    thread, domain = rows["thread"], rows["domain"]
    creation = matching(thread, domain, thread[created], domain[created])
    names = np.append(rows["name"][created], np.int32(-1))  # the last for those without one
    return names[creation]
