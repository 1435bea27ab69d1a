"""Reads a Chrome trace that torch.profiler wrote. Called by profiling.timeline.opening."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from profiling.timeline import collective_calls, mtia, personal
from profiling.timeline.chrome_events import Args, Event, Top, pieces
from profiling.timeline.gpu_annotations import host_times, with_annotated
from profiling.timeline.operator_inputs import SHAPED, InputsSeen
from profiling.timeline.reading import (
    LATEST_NS,
    Names,
    capability,
    joined,
    matching,
    sensible,
    told_of_outlasting,
    within_session,
)
from profiling.timeline.trace import (
    COPY,
    KERNEL,
    MEMSET,
    Allocations,
    Calls,
    CollectiveCalls,
    Columns,
    Device,
    Operations,
    Ranges,
    ShapedOperators,
    Trace,
)

KINDS = {"kernel": KERNEL, "gpu_memcpy": COPY, "gpu_memset": MEMSET}
ON_HOST = {
    "cuda_runtime": "calls",
    "cuda_driver": "calls",
    "user_annotation": "ranges",
    "cpu_op": "operators",
    "overhead": "overhead",
}
# what PyTorch 1.8 and 1.9 called them
OLD_CATEGORIES = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Runtime": "cuda_runtime",
    "Operator": "cpu_op",
}
ANNOTATIONS = ("ProfilerStep#", "enumerate(", "Optimizer.")  # which were operators then
SESSION = "PyTorch Profiler"  # the event of category Trace from the profiler's start to its end
THREAD_BITS = 32  # of a thread's number, below those of its process
MOST_RANKS = 1_000_000  # more were never trained on together
GPUS = (1, 6)  # "Device Type" of an allocation: CUDA, HIP
COPIED = re.compile(r"Memcpy (?P<from>\w)to(?P<to>\w)\b")
PLACES = {"H": "Host", "D": "Device", "A": "Array", "P": "Peer"}


def read(path: Path) -> Trace:
    """The capture in a trace as JSON. Raises ValueError with one line if it is damaged."""
    reading = Reading(path)
    for piece in pieces(path):
        reading.take(piece)
    tables = reading.tables()
    calls = tables.get("calls")
    collectives = tables.get("collective_calls") or tables.get("collective_ranges")
    operations = launched(tables.get("operations"), calls)
    annotations = tables.get("gpu_annotations")
    ranges = with_annotated(tables.get("ranges"), annotations, host_times(operations, calls))
    return Trace(
        kind="kineto",
        file=path,
        names=list(reading.names.numbers),
        devices=sorted(reading.devices.values(), key=lambda device: device.id),
        operations=Operations.of(operations),
        calls=Calls.of(calls),
        ranges=Ranges.of(ranges),
        operators=Ranges.of(tables.get("operators")),
        shaped_operators=ShapedOperators.of(tables.get("shaped_operators")),
        inputs=reading.inputs.records(),
        allocations=Allocations.of(tables.get("allocations")),
        collective_calls=CollectiveCalls.of(collectives),
        overhead=Ranges.of(tables.get("overhead")),
        schema_version=reading.schema_version,
        rank=reading.rank,
        world_size=reading.world_size,
        no_gpu=reading.looked_for_gpus and not reading.devices,
        warnings=reading.warnings,
        personal=reading.personal or any(map(personal.is_personal, reading.names.numbers)),
    )


class Reading:
    """What is kept of the pieces that were read."""

    def __init__(self, path: Path):
        self.path, self.names, self.inputs = path, Names(), InputsSeen()
        self.parts: dict[str, list[Columns]] = defaultdict(list)
        self.devices: dict[int, Device] = {}
        self.looked_for_gpus = False
        self.schema_version: str | None = None
        self.rank: int | None = None
        self.world_size: int | None = None
        self.personal = False
        self.left_out = self.outlasting = 0
        self.session_ns: int | None = None  # for how long the profiler was on

    @property
    def warnings(self) -> list[str]:
        said = []
        if self.left_out:
            said.append(f"left out {self.left_out} events, their times are impossible")
        if self.outlasting:
            said.append(told_of_outlasting(self.outlasting))
        return said

    def tables(self) -> dict[str, Columns | None]:
        """All that was kept, without events that last longer than the profiler says it ran."""
        whole = {name: joined(self.parts.pop(name)) for name in list(self.parts)}
        kept, self.outlasting = within_session(list(whole.values()), self.session_ns)
        return dict(zip(whole, kept, strict=True))

    def take(self, piece: Top) -> None:
        self.looked_for_gpus |= piece.deviceProperties is not None
        for fact in piece.deviceProperties or []:
            self.devices[fact.id] = Device(
                fact.id,
                fact.name,
                fact.numSms,
                fact.totalGlobalMem,
                compute_capability=capability(fact.computeMajor, fact.computeMinor),
            )
        if piece.schemaVersion is not None:
            self.schema_version = str(piece.schemaVersion)
        if of := piece.distributedInfo:
            self.rank = of.rank if is_count(of.rank) else None
            self.world_size = of.world_size if is_count(of.world_size) else None
        self.personal |= personal.is_personal(piece.traceName)
        events: dict[str, list[Event]] = defaultdict(list)
        for event in piece.traceEvents:
            events[event.cat if event.ph == "X" else event.ph].append(event)
        rename_old(events)
        mtia.sort_as_of_gpu(events)
        try:
            self.take_events(events)
        except (ValueError, TypeError, OverflowError) as error:
            said = " ".join(str(error).split())[:200]
            raise ValueError(f"{self.path}: an event has impossible values ({said})") from error

    def take_events(self, events: dict[str, list[Event]]) -> None:
        if spans := [event for event in events["Trace"] if event.name.startswith(SESSION)]:
            span, _ = sensible(times(spans))
            took_ns = (span["end_ns"] - span["start_ns"]).tolist()
            self.session_ns = max([*took_ns, self.session_ns or 0])
        for category, kind in KINDS.items():
            if of := events[category]:
                self.keep("operations", times(of) | of_device(of, self.names, kind))
        for category, table in ON_HOST.items():
            if of := events[category]:
                ids = launch_ids(of) if table == "calls" else {}
                self.keep(table, times(of) | of_host(of, self.names) | ids)
        if of := events["gpu_user_annotation"]:
            self.keep("gpu_annotations", times(of) | of_stream(of, self.names))
        shaped = [event for event in events["cpu_op"] if event.name in SHAPED]
        if shaped := [event for event in shaped if event.args and event.args.dims]:
            inputs = {"inputs": self.inputs.numbered(shaped)}
            self.keep("shaped_operators", times(shaped) | of_host(shaped, self.names) | inputs)
        if talks := collective_calls.told_of(events["cpu_op"]):
            of_calls = collective_calls.columns(talks, self.names)
            self.keep("collective_calls", times(talks) | of_host(talks, self.names) | of_calls)
        if talks := collective_calls.ranges_of(events["user_annotation"]):
            of_ranges = collective_calls.columns(talks, self.names)
            self.keep("collective_ranges", times(talks) | of_host(talks, self.names) | of_ranges)
        if memory := [event for event in events["i"] if event.name == "[memory]" and event.args]:
            self.keep("allocations", of_memory(memory))
        self.personal = self.personal or any(map(personal.is_personal, told(events)))

    def keep(self, table: str, rows: Columns) -> None:
        rows, left_out = sensible(rows)
        self.left_out += left_out
        self.parts[table].append(rows)


def is_count(value: Any) -> bool:
    """Of ranks, or the number of one."""
    return isinstance(value, int) and 0 <= value < MOST_RANKS


def rename_old(events: dict[str, list[Event]]) -> None:
    """Gives the categories of old PyTorch the names that they have today."""
    for old, today in OLD_CATEGORIES.items():
        for event in events.pop(old, ()):
            is_range = today == "cpu_op" and event.name.startswith(ANNOTATIONS)
            events["user_annotation" if is_range else today].append(event)


def times(events: list[Event]) -> Columns:
    """Nanoseconds. The fraction by itself, or multiplying would round what the double still has."""
    start_us = microseconds(map(attrgetter("ts"), events))
    took_us = microseconds(map(attrgetter("dur"), events))
    whole_us = np.floor(start_us)
    start = whole_us.astype(np.int64) * 1000
    start += np.rint((start_us - whole_us) * 1e3).astype(np.int64)
    return {"start_ns": start, "end_ns": start + np.rint(took_us * 1e3).astype(np.int64)}


def microseconds(values: Iterable[float]) -> np.ndarray:
    """What no number of nanoseconds is becomes the latest time, which is not sensible."""
    found = np.fromiter(values, np.float64)
    return np.where(abs(found) < LATEST_NS / 1e3, found, LATEST_NS / 1e3)


def of_host(events: list[Event], names: Names) -> Columns:
    process = whole(map(attrgetter("pid"), events))
    thread = whole(map(attrgetter("tid"), events)) & ((1 << THREAD_BITS) - 1)
    return {
        "name": names.numbered(map(attrgetter("name"), events)),
        "process": process,
        "thread": process << THREAD_BITS | thread,
        "closed": np.ones(len(events), bool),
    }


def launch_ids(events: list[Event]) -> Columns:
    """What operations name the call by that launched them."""
    return {"id": whole(event.args.correlation if event.args else None for event in events)}


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
        "registers": whole((args.registers for args in found), np.int32),
        "shared_bytes": whole((args.shared_bytes for args in found), np.int32),
    }


def of_stream(events: list[Event], names: Names) -> Columns:
    found = args_of(events)
    return {
        "name": names.numbered(event.name for event in events),
        "device": whole((args.device for args in found), np.int32),
        "stream": whole(args.stream for args in found),
    }


def of_memory(events: list[Event]) -> Columns:
    """Of GPUs alone."""
    events = [event for event in events if event.args and event.args.device_type in GPUS]
    found, when = args_of(events), times(events)
    return when | {
        "time_ns": when["start_ns"],
        "process": whole(event.pid for event in events),
        "bytes": whole(args.allocated for args in found),
        "device": whole((args.device_id for args in found), np.int32),
    }


def told(events: dict[str, list[Event]]) -> Iterator[str]:
    """What may tell who and where, besides names."""
    yield from (str(event.args.name) for event in events["M"] if event.args)
    operators = [event.args for event in events["cpu_op"] if event.args]
    yield from (f"{a.kernel_file} {a.stack}" for a in operators if a.kernel_file or a.stack)


def args_of(events: list[Event]) -> list[Args]:
    found = [event.args for event in events if event.args is not None]
    if len(found) < len(events):
        raise ValueError(f"{events[0].cat} without args")
    return found


def whole(values: Iterable[Any], dtype: type[np.integer] = np.int64) -> np.ndarray:
    """As integers; -1 for what is missing. Raises where something is no number, or too large."""
    found = list(values)
    with suppress(TypeError):  # seldom is one missing, or something else
        return np.fromiter(found, dtype)
    return np.fromiter((-1 if value is None else value for value in found), dtype)


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


def launched(rows: Columns | None, calls: Columns | None) -> Columns | None:
    """With the call that launched each operation, and its process; -1: not captured.

    What was launched before the capture began belongs to the process that uses the same GPU.
    """
    if rows is None or calls is None or not len(calls["id"]):
        return rows
    nowhere = [np.zeros(len(each["id"]), np.int64) for each in (rows, calls)]
    call = matching(nowhere[0], rows["id"], nowhere[1], calls["id"])
    process = np.append(calls["process"], -1)[call]
    main = most_frequent(calls["process"])
    for device in np.unique(rows["device"][call < 0]).tolist():
        of = rows["device"] == device
        known = process[of & (call >= 0)]
        process[of & (call < 0)] = most_frequent(known) if len(known) else main
    return rows | {"call": call, "process": process}


def most_frequent(column: np.ndarray) -> int:
    values, count = np.unique(column, return_counts=True)
    return int(values[np.argmax(count)])
