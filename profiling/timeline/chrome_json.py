"""Reads a Chrome trace that torch.profiler wrote. Called by profiling.timeline.opening."""

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from profiling.timeline import personal
from profiling.timeline.chrome_events import Args, Event, Top, pieces
from profiling.timeline.trace import (
    COPY,
    KERNEL,
    LATEST_NS,
    MEMSET,
    Allocations,
    Calls,
    Device,
    Names,
    Operations,
    Ranges,
    Trace,
    possible,
)

KINDS = {"kernel": KERNEL, "gpu_memcpy": COPY, "gpu_memset": MEMSET}
ON_HOST = {
    "cuda_runtime": "calls",
    "cuda_driver": "calls",
    "user_annotation": "ranges",
    "cpu_op": "operators",
}
THREAD_BITS = 32  # of a thread's number, below those of its process
CUDA = 1  # "Device Type" of an allocation
COPIED = re.compile(r"Memcpy (?P<from>\w)to(?P<to>\w)\b")
PLACES = {"H": "Host", "D": "Device", "A": "Array", "P": "Peer"}

Columns = dict[str, np.ndarray]


def read(path: Path) -> Trace:
    """The capture in a trace as JSON. Raises ValueError with one line if it is damaged."""
    reading = Reading(path)
    for piece in pieces(path):
        reading.take(piece)
    tables = {name: joined(parts) for name, parts in reading.parts.items()}
    calls = tables.get("calls")
    return Trace(
        kind="kineto",
        file=path,
        names=list(reading.names.numbers),
        devices=sorted(reading.devices.values(), key=lambda device: device.id),
        operations=kineto_operations(tables.get("operations"), calls),
        calls=kineto_calls(calls),
        ranges=kineto_ranges(tables.get("ranges")),
        operators=kineto_ranges(tables.get("operators")),
        allocations=kineto_allocations(tables.get("allocations")),
        schema_version=reading.schema_version,
        warnings=reading.warnings(),
        personal=reading.personal or any(map(personal.is_personal, reading.names.numbers)),
    )


class Reading:
    """What is kept of the pieces that were read."""

    def __init__(self, path: Path):
        self.path, self.names = path, Names()
        self.parts: dict[str, list[Columns]] = defaultdict(list)
        self.devices: dict[int, Device] = {}
        self.schema_version: str | None = None
        self.personal = False
        self.left_out = 0

    def take(self, piece: Top) -> None:
        for fact in piece.deviceProperties:
            self.devices[fact.id] = Device(fact.id, fact.name, fact.numSms, fact.totalGlobalMem)
        if piece.schemaVersion is not None:
            self.schema_version = str(piece.schemaVersion)
        self.personal |= personal.is_personal(piece.traceName)
        events: dict[str, list[Event]] = defaultdict(list)
        for event in piece.traceEvents:
            events[event.cat if event.ph == "X" else event.ph].append(event)
        try:
            self.take_events(events)
        except (ValueError, TypeError, OverflowError) as error:
            said = " ".join(str(error).split())[:200]
            raise ValueError(f"{self.path}: an event has impossible values ({said})") from error

    def take_events(self, events: dict[str, list[Event]]) -> None:
        for category, kind in KINDS.items():
            self.keep("operations", events[category], kind)
        for category, table in ON_HOST.items():
            self.keep(table, events[category], None)
        memory = [event for event in events["i"] if event.name == "[memory]" and event.args]
        if memory:
            of_gpus = [e for e in memory if e.args and e.args.device_type == CUDA]
            self.add("allocations", of_memory(of_gpus))
        for event in events["M"]:
            self.personal |= event.args is not None and personal.is_personal(str(event.args.name))
        for event in events["cpu_op"]:
            if event.args and (event.args.kernel_file or event.args.stack):
                told = f"{event.args.kernel_file} {event.args.stack}"
                self.personal = self.personal or personal.is_personal(told)

    def keep(self, table: str, events: list[Event], kind: int | None) -> None:
        if not events:
            return
        of_kind = (
            of_host(events, self.names) if kind is None else of_device(events, self.names, kind)
        )
        self.add(table, times(events) | of_kind)

    def add(self, table: str, rows: Columns) -> None:
        """The rows whose times make sense."""
        good = possible(rows["start"], rows["end"])
        if bad := len(good) - int(np.count_nonzero(good)):
            self.left_out += bad
            rows = {name: values[good] for name, values in rows.items()}
        self.parts[table].append(rows)

    def warnings(self) -> list[str]:
        if not self.left_out:
            return []
        return [f"left out {self.left_out} events, their times are impossible"]


def times(events: list[Event]) -> Columns:
    """Nanoseconds. The fraction by itself, or multiplying would round what the double still has."""
    start_us = np.array([event.ts for event in events])
    start_us = np.where(abs(start_us) < LATEST_NS / 1e3, start_us, LATEST_NS / 1e3)
    whole_us = np.floor(start_us)
    start = whole_us.astype(np.int64) * 1000
    start += np.rint((start_us - whole_us) * 1e3).astype(np.int64)
    took_ns = np.rint(np.array([event.dur for event in events]) * 1e3)
    took_ns = np.where(abs(took_ns) < LATEST_NS, took_ns, LATEST_NS)
    return {"start": start, "end": start + took_ns.astype(np.int64)}


def of_host(events: list[Event], names: Names) -> Columns:
    process = whole(event.pid for event in events)
    thread = whole(event.tid for event in events) & ((1 << THREAD_BITS) - 1)
    return {
        "name": names.numbered(event.name for event in events),
        "process": process,
        "thread": process << THREAD_BITS | thread,
        "id": whole(event.args.correlation if event.args else None for event in events),
    }


def of_device(events: list[Event], names: Names, kind: int) -> Columns:
    found = args_of(events)
    return {
        "kind": np.full(len(events), kind, np.int8),
        "name": names.numbered(operation_name(event.name, kind) for event in events),
        "pageable": np.array([kind == COPY and "Pageable" in event.name for event in events]),
        "id": whole(args.correlation for args in found),
        "device": whole((args.device for args in found), np.int32),
        "stream": whole(args.stream for args in found),
        "bytes": whole(None if kind == KERNEL else args.bytes for args in found),
        "blocks": whole(product(args.grid) for args in found),
        "threads": whole((product(args.block) for args in found), np.int32),
    }


def of_memory(events: list[Event]) -> Columns:
    found = args_of(events)
    return times(events) | {
        "process": whole(event.pid for event in events),
        "bytes": whole(args.allocated for args in found),
        "device": whole((args.device_id for args in found), np.int32),
    }


def args_of(events: list[Event]) -> list[Args]:
    found = [event.args for event in events if event.args is not None]
    if len(found) < len(events):
        raise ValueError(f"{events[0].cat} without args")
    return found


def whole(values: Iterable[Any], dtype: type[np.integer] = np.int64) -> np.ndarray:
    """As integers; -1 for what is missing. Raises where something is no number, or too large."""
    return np.fromiter((-1 if value is None else value for value in values), dtype)


def product(sizes: Any) -> int | None:
    if not isinstance(sizes, list) or len(sizes) != 3:
        return None
    x, y, z = sizes
    return x * y * z


def operation_name(name: str, kind: int) -> str:
    """As `nsys stats` has it, so that captures of both kinds can be compared."""
    if kind == KERNEL:
        return name
    if kind == MEMSET:
        return "[CUDA memset]"
    match = COPIED.match(name)
    if not match:
        return "[CUDA memcpy Unknown]"
    places = (PLACES.get(match[end], match[end]) for end in ("from", "to"))
    return f"[CUDA memcpy {'-to-'.join(places)}]"


def joined(parts: list[Columns]) -> Columns:
    """In order of their beginning."""
    rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    parts.clear()
    order = np.argsort(rows["start"], kind="stable")
    return {name: values[order] for name, values in rows.items()}


def kineto_calls(rows: Columns | None) -> Calls | None:
    if rows is None:
        return None
    return Calls(rows["start"], rows["end"], rows["name"], rows["process"], rows["thread"])


def kineto_operations(rows: Columns | None, calls: Columns | None) -> Operations | None:
    if rows is None:
        return None
    call = np.full(len(rows["start"]), -1)
    process = call.copy()
    if calls is not None and len(calls["id"]):
        order = np.argsort(calls["id"], kind="stable")
        ids = calls["id"][order]
        at = np.minimum(np.searchsorted(ids, rows["id"]), len(ids) - 1)
        known = (rows["id"] >= 0) & (ids[at] == rows["id"])
        call[known] = order[at[known]]
        process[known] = calls["process"][call[known]]
    return Operations(
        start_ns=rows["start"],
        end_ns=rows["end"],
        kind=rows["kind"],
        name=rows["name"],
        process=process,
        device=rows["device"],
        stream=rows["stream"],
        call=call,
        bytes=rows["bytes"],
        blocks=rows["blocks"],
        threads=rows["threads"],
        pageable=rows["pageable"],
    )


def kineto_ranges(rows: Columns | None) -> Ranges | None:
    if rows is None:
        return None
    length = len(rows["start"])
    return Ranges(
        start_ns=rows["start"],
        end_ns=rows["end"],
        closed=np.ones(length, bool),
        name=rows["name"],
        domain=np.full(length, -1, np.int32),
        process=rows["process"],
        thread=rows["thread"],
    )


def kineto_allocations(rows: Columns | None) -> Allocations | None:
    if rows is None:
        return None
    return Allocations(rows["start"], rows["bytes"], rows["process"], rows["device"])
