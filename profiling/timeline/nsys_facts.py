"""What an nsys export tells besides its events: devices, counters, versions, complaints.

Called by profiling.timeline.nsys_sqlite.
"""

import re
from pathlib import Path

import numpy as np

from profiling.timeline import personal
from profiling.timeline.nsys_export import Export, process_of
from profiling.timeline.reading import LATEST_NS, by_start, capability, rows_of
from profiling.timeline.sqlite_columns import FIRST_ROW, numbers, opened, tables
from profiling.timeline.trace import Allocations, CounterSamples, Device

MEMORY, KERNELS = "CUDA_GPU_MEMORY_USAGE_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL"
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


def holds_ranks(path: Path) -> bool:
    """Whether it has collectives and kernels of several processes; reads little of it."""
    if "globalPid" not in tables(path).get(KERNELS, set()):
        return False
    with opened(path) as database:
        named = "SELECT 1 FROM StringIds WHERE value LIKE '%nccl%' LIMIT 1"
        if not database.execute(named).fetchone():
            return False
        found = database.execute(f"SELECT DISTINCT globalPid FROM {KERNELS} LIMIT 2").fetchall()
    return len(found) > 1


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
