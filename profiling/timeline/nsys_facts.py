"""Facts in an nsys export besides its events: devices, counters, versions, complaints.

Called by profiling.timeline.nsys_sqlite, and by profiling.analysis.ranks.found.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from profiling.timeline import personal
from profiling.timeline.nsys_export import ACTIVITY, Export, process_of
from profiling.timeline.reading import LATEST_NS, capability, rows_of, sort_by_start
from profiling.timeline.sqlite_columns import FIRST_ROW, Row, row_count, tables, texts
from profiling.timeline.trace import Allocations, CounterSamples, Device, EventCounts

MEMORY, KERNELS = "CUDA_GPU_MEMORY_USAGE_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL"
SYSTEM, BEGIN = "TARGET_INFO_SYSTEM_ENV", "TARGET_INFO_SESSION_START_TIME"
DEVICE_MEMORY, ARRAY_MEMORY = 2, 3  # ENUM_CUDA_MEM_KIND
ALLOCATED, FREED = 0, 1  # ENUM_CUDA_DEV_MEM_EVENT_OPER
WARNING, ERROR = 2, 3  # ENUM_DIAGNOSTIC_SEVERITY_LEVEL
RECORDED = re.compile(r"Number of CUPTI events produced:\s*(\d{1,15})\b")
UNPROCESSED = "Error when processing events"
# "Not all CUDA events might have been collected" is not among these: nsys says so of every window
LOST = re.compile(
    r"\b(lost|losing|drop|discard|overflow|truncat|incomplete|fail|unable)|Error when processing",
    re.I,
)


def devices(export: Export) -> list[Device]:
    figures = ("smCount", "totalMemory", "memoryBandwidth")
    columns = ("id", "name", *figures, "computeMajor", "computeMinor")
    have = [name for name in columns if name in export.tables.get("TARGET_INFO_GPU", ())]
    gpus = []
    for row in export.rows("TARGET_INFO_GPU", *have) if "id" in have else ():
        fact = dict(zip(have, row, strict=True))
        if not isinstance(fact["id"], int):
            continue
        values = (fact.get(name) for name in figures)
        sms, size, speed = (
            value if isinstance(value, int) and value > 0 else None for value in values
        )
        generation = capability(fact.get("computeMajor"), fact.get("computeMinor"))
        name = str(fact.get("name") or "unknown GPU")
        gpus.append(Device(fact["id"], name, sms, size, speed, generation))
    return sorted(gpus, key=lambda device: device.id)


def allocations(export: Export) -> Allocations | None:
    """Allocations and frees of device memory, or None if they were not captured.

    nsys's table also lists the host's memory and that of loaded code, which are left out.
    """
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
    rows = sort_by_start(rows_of(rows, of_device))
    rows["time_ns"], rows["process"] = rows["start_ns"], process_of(rows["process"])
    rows["bytes"] = np.where(rows["operation"] == FREED, -rows["bytes"], rows["bytes"])
    return Allocations.from_columns(rows)


def counters(export: Export) -> list[CounterSamples] | None:
    present = export.tables.get("GPU_METRICS", set())
    if not {"timestamp", "typeId", "metricId", "value"} <= present:
        return None
    wanted = {"time": "timestamp", "type": "typeId", "metric": "metricId", "value": "value"}
    nulls = {"time": FIRST_ROW}
    rows = export.numbers("GPU_METRICS", wanted, nulls, real=("value",))
    rows = rows_of(rows, (abs(rows["time"]) < LATEST_NS) & np.isfinite(rows["value"]))
    rows = rows_of(rows, np.argsort(rows["time"], kind="stable"))
    metrics = export.rows("TARGET_INFO_GPU_METRICS", "typeId", "metricId", "metricName")
    names = {
        (type_id, metric): str(name)
        for type_id, metric, name in metrics
        if isinstance(type_id, int) and isinstance(metric, int)
    }
    samples = []
    for (type_id, metric), name in sorted(names.items()):
        of_metric = (rows["type"] == type_id) & (rows["metric"] == metric)
        if of_metric.any():
            hertz = name.endswith("[MHz]")  # nsys 2025.3 stores hertz under that name
            value = rows["value"][of_metric] / 1e6 if hertz else rows["value"][of_metric]
            samples.append(CounterSamples(name, type_id & 0xFF, rows["time"][of_metric], value))
    return samples


def complaints(export: Export) -> list[str]:
    """Messages of nsys about what it lost or could not do, each once."""
    messages = dict.fromkeys(
        UNPROCESSED if str(text).startswith(UNPROCESSED) else " ".join(str(text).split())
        for severity, text in export.rows("DIAGNOSTIC_EVENT", "severity", "text")
        if severity == ERROR or (severity == WARNING and LOST.search(str(text)))
    )
    return list(messages)


def event_counts(export: Export) -> EventCounts | None:
    """CUPTI's events that nsys recorded and those that the export holds.

    None where nsys processed all events, or does not say how many there were.
    """
    messages = [str(text) for (text,) in export.rows("DIAGNOSTIC_EVENT", "text")]
    counted = [int(number) for text in messages for number in RECORDED.findall(text)]
    if not counted or not any(text.startswith(UNPROCESSED) for text in messages):
        return None
    held = row_count(export.path, {name for name in export.tables if name.startswith(ACTIVITY)})
    return EventCounts(sum(counted), held)


@dataclass(frozen=True)
class Session:
    """The host and the time (ns, UTC) of a capture of several ranks' processes.

    The session ends with its last kernel: at its start plus that kernel's time. Where a range in
    the program began the capture, this end is too late by the time that the program ran before:
    nsys 2025.3 then counts kernels from the program's start, but records the range's start as the
    session's.
    """

    host: frozenset[str]  # name, and UUIDs of the GPUs, which scrubbing leaves; empty: unknown
    begin_ns: int
    end_ns: int

    def is_beside(self, other: "Session") -> bool:
        """Whether both sessions are known to have run at the same time on different hosts."""
        apart = self.host and other.host and self.host.isdisjoint(other.host)
        overlap = self.begin_ns <= other.end_ns and other.begin_ns <= self.end_ns
        return bool(apart) and overlap


def session_of_ranks(path: Path) -> Session | None:
    """The session of the export at `path`, which is read only in small part.

    None where it lacks collectives, or kernels of several processes.
    """
    present = tables(path)
    if not {"globalPid", "end"} <= present.get(KERNELS, set()):
        return None
    talks = texts(path, "SELECT 1 FROM StringIds WHERE value LIKE '%nccl%' LIMIT 1")
    if not talks or len(texts(path, f"SELECT DISTINCT globalPid FROM {KERNELS} LIMIT 2")) < 2:
        return None
    host = list[Row]()
    if {"name", "value"} <= present.get(SYSTEM, set()):
        host += texts(path, f"SELECT value FROM {SYSTEM} WHERE name = 'Hostname'")
    if "uuid" in present.get("TARGET_INFO_GPU", set()):
        host += texts(path, "SELECT uuid FROM TARGET_INFO_GPU")
    began = texts(path, f"SELECT utcEpochNs FROM {BEGIN}") if BEGIN in present else []
    ((last_ns,),) = texts(path, f"SELECT MAX(end) FROM {KERNELS}")
    begin_ns = began[0][0] if len(began) == 1 else None
    if not isinstance(begin_ns, int) or not isinstance(last_ns, int):
        return Session(frozenset(), 0, 0)
    return Session(frozenset(str(text) for (text,) in host if text), begin_ns, begin_ns + last_ns)


def versions(export: Export) -> tuple[str | None, str | None]:
    """(version of nsys, version of the export's schema), each None if unknown."""
    facts = {name: value for name, value in export.rows("META_DATA_EXPORT", "name", "value")}
    stored = (facts.get(f"EXPORT_{what}_VERSION") for what in ("PRODUCT", "SCHEMA"))
    tool, schema = (str(version) if version is not None else None for version in stored)
    return tool, schema


def is_personal(export: Export) -> bool:
    """Whether scrubbing would remove something."""
    pairs = [table for table, columns in export.tables.items() if {"name", "value"} <= columns]
    facts = [row for table in pairs for row in export.rows(table, "name", "value")]
    texts = [value for _, value in facts] + [*export.strings.values(), *export.names.numbers]
    for table, column in (("DIAGNOSTIC_EVENT", "text"), ("ANALYSIS_FILE", "filename")):
        texts += [text for (text,) in export.rows(table, column)]
    printed = export.rows("ProcessStreams", "contentId")
    return (
        any(personal.NAMES.search(str(name)) for name, _ in facts)
        or any(export.strings.get(key) for (key,) in printed)
        or any(isinstance(text, str) and personal.is_personal(text) for text in texts)
    )
