"""What an nsys export tells besides its events: devices, counters, versions, complaints.

Called by profiling.timeline.nsys_sqlite, and by profiling.analysis.ranks.found.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from profiling.timeline import personal
from profiling.timeline.nsys_export import Export, process_of
from profiling.timeline.reading import LATEST_NS, by_start, capability, rows_of
from profiling.timeline.sqlite_columns import FIRST_ROW, numbers, tables, texts
from profiling.timeline.trace import Allocations, CounterSamples, Device

MEMORY, KERNELS = "CUDA_GPU_MEMORY_USAGE_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL"
SYSTEM, BEGIN = "TARGET_INFO_SYSTEM_ENV", "TARGET_INFO_SESSION_START_TIME"
DEVICE_MEMORY, ARRAY_MEMORY = 2, 3  # ENUM_CUDA_MEM_KIND
ALLOCATED, FREED = 0, 1  # ENUM_CUDA_DEV_MEM_EVENT_OPER
WARNING, ERROR = 2, 3  # ENUM_DIAGNOSTIC_SEVERITY_LEVEL
# "Not all CUDA events might have been collected" is not among these: nsys says so of every window
LOST = re.compile(r"\b(lost|losing|drop|discard|overflow|truncat|incomplete|fail|unable)", re.I)


def devices(export: Export) -> list[Device]:
    figures = ("smCount", "totalMemory", "memoryBandwidth")
    columns = ("id", "name", *figures, "computeMajor", "computeMinor")
    have = [name for name in columns if name in export.tables.get("TARGET_INFO_GPU", ())]
    found = []
    for row in export.rows("TARGET_INFO_GPU", *have) if "id" in have else ():
        fact = dict(zip(have, row, strict=True))
        if not isinstance(fact["id"], int):
            continue
        told = (fact.get(name) for name in figures)
        sms, size, speed = (
            figure if isinstance(figure, int) and figure > 0 else None for figure in told
        )
        generation = capability(fact.get("computeMajor"), fact.get("computeMinor"))
        name = str(fact.get("name") or "unknown GPU")
        found.append(Device(fact["id"], name, sms, size, speed, generation))
    return sorted(found, key=lambda device: device.id)


def allocations(export: Export) -> Allocations | None:
    """Of device memory; what else nsys lists there is the host's, or belongs to loaded code."""
    present = export.tables.get(MEMORY, set())
    wanted = {
        "end_ns": "start",
        "bytes": "bytes",
        "kind": "memKind",
        "operation": "memoryOperationType",
        "process": "globalPid",
        "device": "deviceId",
    }
    rows = export.read(MEMORY, wanted)
    if rows is None or not {"start", "bytes", "memoryOperationType"} <= present:
        return None
    of_device = np.isin(rows["operation"], (ALLOCATED, FREED)) & (rows["bytes"] >= 0)
    if "memKind" in present:
        of_device &= np.isin(rows["kind"], (DEVICE_MEMORY, ARRAY_MEMORY))
    rows = by_start(rows_of(rows, of_device))
    rows["time_ns"], rows["process"] = rows["start_ns"], process_of(rows["process"])
    rows["bytes"] = np.where(rows["operation"] == FREED, -rows["bytes"], rows["bytes"])
    return Allocations.of(rows)


def counters(export: Export) -> list[CounterSamples] | None:
    present = export.tables.get("GPU_METRICS", set())
    if not {"timestamp", "typeId", "metricId", "value"} <= present:
        return None
    wanted = {"time": "timestamp", "type": "typeId", "metric": "metricId", "value": "value"}
    nulls = {"time": FIRST_ROW}
    rows = numbers(export.path, "GPU_METRICS", wanted, present, nulls, real=("value",))
    rows = rows_of(rows, (abs(rows["time"]) < LATEST_NS) & np.isfinite(rows["value"]))
    rows = rows_of(rows, np.argsort(rows["time"], kind="stable"))
    named = export.rows("TARGET_INFO_GPU_METRICS", "typeId", "metricId", "metricName")
    names = {
        (type_id, metric): str(name)
        for type_id, metric, name in named
        if isinstance(type_id, int) and isinstance(metric, int)
    }
    found = []
    for (type_id, metric), name in sorted(names.items()):
        of = (rows["type"] == type_id) & (rows["metric"] == metric)
        if of.any():
            hertz = name.endswith("[MHz]")  # nsys 2025.3 stores them under that name
            value = rows["value"][of] / 1e6 if hertz else rows["value"][of]
            found.append(CounterSamples(name, type_id & 0xFF, rows["time"][of], value))
    return found


def complaints(export: Export) -> list[str]:
    """What nsys says it lost or could not do, once each."""
    found = dict.fromkeys(
        " ".join(str(text).split())
        for severity, text in export.rows("DIAGNOSTIC_EVENT", "severity", "text")
        if severity == ERROR or (severity == WARNING and LOST.search(str(text)))
    )
    return list(found)


@dataclass(frozen=True)
class Session:
    """Where and when the processes of several ranks were traced; by UTC.

    It ends with its last kernel, as far behind its start as that kernel's time says. Where a range
    in the program began the capture, that is later than the truth by what ran before: nsys 2025.3
    then counts from the program's start, and tells as the session's start that of the range.
    """

    host: frozenset[str]  # its name, and its GPUs' UUIDs, which scrubbing leaves; empty: not told
    begin_ns: int
    end_ns: int

    def is_beside(self, other: "Session") -> bool:
        """Whether both tell that it ran on another host at the same time."""
        told = self.host and other.host and self.host.isdisjoint(other.host)
        overlap = self.begin_ns <= other.end_ns and other.begin_ns <= self.end_ns
        return bool(told) and overlap


def session_of_ranks(path: Path) -> Session | None:
    """None where it lacks collectives, or kernels of several processes. Reads little of it."""
    present = tables(path)
    if not {"globalPid", "end"} <= present.get(KERNELS, set()):
        return None
    talks = texts(path, "SELECT 1 FROM StringIds WHERE value LIKE '%nccl%' LIMIT 1")
    if not talks or len(texts(path, f"SELECT DISTINCT globalPid FROM {KERNELS} LIMIT 2")) < 2:
        return None
    host = list[tuple]()
    if {"name", "value"} <= present.get(SYSTEM, set()):
        host += texts(path, f"SELECT value FROM {SYSTEM} WHERE name = 'Hostname'")
    if "uuid" in present.get("TARGET_INFO_GPU", set()):
        host += texts(path, "SELECT uuid FROM TARGET_INFO_GPU")
    began = texts(path, f"SELECT utcEpochNs FROM {BEGIN}") if BEGIN in present else []
    ((last_ns,),) = texts(path, f"SELECT MAX(end) FROM {KERNELS}")
    if len(began) != 1 or not all(isinstance(ns, int) for ns in (began[0][0], last_ns)):
        return Session(frozenset(), 0, 0)
    begin_ns = began[0][0]
    return Session(frozenset(str(told) for (told,) in host if told), begin_ns, begin_ns + last_ns)


def versions(export: Export) -> tuple[str | None, str | None]:
    """(of nsys, of the export's schema)"""
    facts = dict(export.rows("META_DATA_EXPORT", "name", "value"))
    found = (facts.get(f"EXPORT_{what}_VERSION") for what in ("PRODUCT", "SCHEMA"))
    tool, schema = (str(version) if version is not None else None for version in found)
    return tool, schema


def is_personal(export: Export) -> bool:
    """Whether scrubbing would remove something."""
    pairs = [table for table, columns in export.tables.items() if {"name", "value"} <= columns]
    said = [row for table in pairs for row in export.rows(table, "name", "value")]
    texts = [value for _, value in said] + [*export.strings.values(), *export.names.numbers]
    for table, column in (("DIAGNOSTIC_EVENT", "text"), ("ANALYSIS_FILE", "filename")):
        texts += [text for (text,) in export.rows(table, column)]
    printed = export.rows("ProcessStreams", "contentId")
    return (
        any(personal.NAMES.search(str(name)) for name, _ in said)
        or any(export.strings.get(key) for (key,) in printed)
        or any(isinstance(text, str) and personal.is_personal(text) for text in texts)
    )
