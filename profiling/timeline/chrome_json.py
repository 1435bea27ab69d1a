"""Reads a Chrome trace that torch.profiler wrote. Called by profiling.timeline.opening."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import TypeGuard

import numpy as np

from profiling.shared.python_samples import PythonSamples
from profiling.timeline import collective_calls, mtia, personal, python_samples
from profiling.timeline.chrome_events import (
    THREAD_BITS,
    Args,
    Event,
    Top,
    pieces,
)
from profiling.timeline.gpu_annotations import add_annotated_ranges, host_times
from profiling.timeline.operator_inputs import SHAPED, InputsSeen
from profiling.timeline.reading import (
    LATEST_NS,
    Names,
    capability,
    drop_impossible_times,
    first_matching,
    join_tables,
    outlasting_warning,
    within_session,
)
from profiling.timeline.trace import (
    COPY,
    KERNEL,
    MEMSET,
    Allocations,
    AutogradOperators,
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
    "python_function": "frames",
}
# names of PyTorch 1.8 and 1.9 -> today's
OLD_CATEGORIES = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Runtime": "cuda_runtime",
    "Operator": "cpu_op",
}
ANNOTATIONS = ("ProfilerStep#", "enumerate(", "Optimizer.")  # ranges that were operators then
SESSION = "PyTorch Profiler"  # the event of category Trace from the profiler's start to its end
SETTINGS = ("record_shapes", "with_stack")  # members of the trace, 1 where they were on
MOST_RANKS = 1_000_000  # a larger number is damage
GPUS = (1, 6)  # "Device Type" of an allocation: CUDA, HIP
ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of the object whose method a frame calls
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
    operations = add_launches(tables.get("operations"), calls)
    annotations = tables.get("gpu_annotations")
    ranges = add_annotated_ranges(tables.get("ranges"), annotations, host_times(operations, calls))
    return Trace(
        kind="kineto",
        file=path,
        names=list(reading.names.numbers),
        devices=sorted(reading.devices.values(), key=lambda device: device.id),
        operations=Operations.from_columns(operations),
        calls=Calls.from_columns(calls),
        ranges=Ranges.from_columns(ranges),
        operators=Ranges.from_columns(tables.get("operators")),
        shaped_operators=ShapedOperators.from_columns(tables.get("shaped_operators")),
        inputs=reading.inputs.records(),
        allocations=Allocations.from_columns(tables.get("allocations")),
        collective_calls=CollectiveCalls.from_columns(collectives),
        overhead=Ranges.from_columns(tables.get("overhead")),
        frames=Ranges.from_columns(tables.get("frames")),
        sampled=Ranges.from_columns(tables.get("sampled")),
        autograd=AutogradOperators.from_columns(tables.get("autograd")),
        settings=frozenset(reading.settings),
        schema_version=reading.schema_version,
        rank=reading.rank,
        world_size=reading.world_size,
        no_gpu=reading.looked_for_gpus and not reading.devices,
        warnings=reading.warnings,
        personal=reading.personal or any(map(personal.is_personal, reading.names.numbers)),
    )


class Reading:
    """Everything kept from the pieces of a trace, while they are read."""

    def __init__(self, path: Path):
        self.path, self.names, self.inputs = path, Names(), InputsSeen()
        self.parts: dict[str, list[Columns]] = defaultdict(list)
        self.devices: dict[int, Device] = {}
        self.looked_for_gpus = False
        self.schema_version: str | None = None
        self.rank: int | None = None
        self.world_size: int | None = None
        self.settings: set[str] = set()
        self.personal = False
        self.left_out = self.outlasting = 0
        self.session_ns: int | None = None  # how long the profiler was on
        self.samples: PythonSamples | None = None
        self.base_ns = 0  # what times count from, in ns since 1970

    @property
    def warnings(self) -> list[str]:
        lines = []
        if self.left_out:
            lines.append(f"left out {self.left_out} events with impossible times")
        if self.outlasting:
            lines.append(outlasting_warning(self.outlasting))
        return lines

    def tables(self) -> dict[str, Columns | None]:
        """The kept events by table, without those that last longer than the profiler was on."""
        try:
            if self.samples:
                rows = python_samples.ranges_of(self.samples, self.names, self.base_ns)
                self.keep("sampled", rows)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{self.path}: is damaged ({error}); capture it again") from error
        tables = {name: join_tables(self.parts.pop(name)) for name in list(self.parts)}
        kept, self.outlasting = within_session(list(tables.values()), self.session_ns)
        return dict(zip(tables, kept, strict=True))

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
        self.settings |= {name for name in SETTINGS if getattr(piece, name)}
        if info := piece.distributedInfo:
            self.rank = info.rank if is_count(info.rank) else None
            self.world_size = info.world_size if is_count(info.world_size) else None
        self.personal |= personal.is_personal(piece.traceName)
        self.samples = piece.python_samples or self.samples
        if isinstance(piece.baseTimeNanoseconds, int):
            self.base_ns = piece.baseTimeNanoseconds or self.base_ns
        events: dict[str, list[Event]] = defaultdict(list)
        for event in piece.traceEvents:
            events[event.cat if event.ph == "X" else event.ph].append(event)
        rename_old(events)
        mtia.move_to_gpu_categories(events)
        try:
            self.take_events(events)
        except (ValueError, TypeError, OverflowError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"{self.path}: an event has impossible values ({reason})") from error

    def take_events(self, events: dict[str, list[Event]]) -> None:
        if spans := [event for event in events["Trace"] if event.name.startswith(SESSION)]:
            span, _ = drop_impossible_times(times(spans))
            took_ns = (span["end_ns"] - span["start_ns"]).tolist()
            self.session_ns = max([*took_ns, self.session_ns or 0])
        for category, kind in KINDS.items():
            if chosen := events[category]:
                self.keep("operations", times(chosen) | operation_columns(chosen, self.names, kind))
        for frame in events["python_function"]:
            frame.name = ADDRESS.sub("", frame.name)
        for category, table in ON_HOST.items():
            if chosen := events[category]:
                ids = launch_ids(chosen) if table == "calls" else {}
                self.keep(table, times(chosen) | host_columns(chosen, self.names) | ids)
        if chosen := events["gpu_user_annotation"]:
            self.keep("gpu_annotations", times(chosen) | annotation_columns(chosen, self.names))
        shaped = [event for event in events["cpu_op"] if event.name in SHAPED]
        if shaped := [event for event in shaped if event.args and event.args.dims]:
            inputs = {"inputs": self.inputs.numbers_of(shaped)}
            self.keep("shaped_operators", times(shaped) | host_columns(shaped, self.names) | inputs)
        # else no line of the program is to be found, nor a forward without gradients
        if "with_stack" in self.settings or (self.looked_for_gpus and not self.devices):
            numbered = [event for event in events["cpu_op"] if is_in_autograd(event)]
            if numbered:
                self.keep("autograd", times(numbered) | autograd_columns(numbered, self.names))
        if calls := collective_calls.collective_operators(events["cpu_op"]):
            facts = collective_calls.columns(calls, self.names)
            self.keep("collective_calls", times(calls) | host_columns(calls, self.names) | facts)
        if ranges := collective_calls.collective_ranges(events["user_annotation"]):
            facts = collective_calls.columns(ranges, self.names)
            self.keep("collective_ranges", times(ranges) | host_columns(ranges, self.names) | facts)
        if memory := [event for event in events["i"] if event.name == "[memory]" and event.args]:
            self.keep("allocations", allocation_columns(memory))
        self.personal = self.personal or any(map(personal.is_personal, personal_texts(events)))

    def keep(self, table: str, rows: Columns) -> None:
        rows, left_out = drop_impossible_times(rows)
        self.left_out += left_out
        self.parts[table].append(rows)


def is_count(value: object) -> TypeGuard[int]:
    """Whether `value` is a possible number of ranks, or of one rank."""
    return isinstance(value, int) and 0 <= value < MOST_RANKS


def rename_old(events: dict[str, list[Event]]) -> None:
    """Moves events from the categories of old PyTorch to those of today."""
    for old, today in OLD_CATEGORIES.items():
        for event in events.pop(old, ()):
            is_range = today == "cpu_op" and event.name.startswith(ANNOTATIONS)
            events["user_annotation" if is_range else today].append(event)


def times(events: list[Event]) -> Columns:
    """`start_ns` and `end_ns` of the events.

    The fraction of a microsecond is converted by itself: multiplying the whole double by 1000
    would round it.
    """
    start_us = microseconds(map(attrgetter("ts"), events))
    took_us = microseconds(map(attrgetter("dur"), events))
    whole_us = np.floor(start_us)
    start = whole_us.astype(np.int64) * 1000
    start += np.rint((start_us - whole_us) * 1e3).astype(np.int64)
    return {"start_ns": start, "end_ns": start + np.rint(took_us * 1e3).astype(np.int64)}


def microseconds(values: Iterable[float]) -> np.ndarray:
    """The values as float64. One that is no valid time becomes LATEST_NS, whose row is dropped."""
    column = np.fromiter(values, np.float64)
    return np.where(abs(column) < LATEST_NS / 1e3, column, LATEST_NS / 1e3)


def host_columns(events: list[Event], names: Names) -> Columns:
    return threads_of(events) | {
        "name": names.numbers_of(map(attrgetter("name"), events)),
        "closed": np.ones(len(events), bool),
    }


def threads_of(events: list[Event]) -> Columns:
    process = integers(map(attrgetter("pid"), events))
    thread = integers(map(attrgetter("tid"), events)) & ((1 << THREAD_BITS) - 1)
    return {"process": process, "thread": process << THREAD_BITS | thread}


def launch_ids(events: list[Event]) -> Columns:
    """The correlation ids of calls, by which operations name the call that launched them."""
    return {"id": integers(event.args.correlation if event.args else None for event in events)}


def operation_columns(events: list[Event], names: Names, kind: int) -> Columns:
    all_args = args_of(events)
    return {
        "kind": np.full(len(events), kind, np.int8),
        "name": names.numbers_of(operation_name(event.name, kind) for event in events),
        "pageable": np.array([kind == COPY and "Pageable" in event.name for event in events]),
        "id": integers(args.correlation for args in all_args),
        "device": integers(
            (args.in_device if args.device is None else args.device for args in all_args), np.int32
        ),
        "stream": integers(args.stream for args in all_args),
        "bytes": integers(None if kind == KERNEL else args.bytes for args in all_args),
        "blocks": integers(product(args.grid) for args in all_args),
        "threads": integers((product(args.block) for args in all_args), np.int32),
        "registers": integers((args.registers for args in all_args), np.int32),
        "shared_bytes": integers((args.shared_bytes for args in all_args), np.int32),
    }


def is_in_autograd(event: Event) -> bool:
    """Whether the operator has a sequence number; those of no node have an impossible one."""
    number = event.args.autograd if event.args else None
    return isinstance(number, int) and 0 <= number < LATEST_NS


def autograd_columns(events: list[Event], names: Names) -> Columns:
    all_args = args_of(events)
    return host_columns(events, names) | {
        "sequence": integers(args.autograd for args in all_args),
        "forward_thread": integers(args.forward_thread or 0 for args in all_args),
    }


def annotation_columns(events: list[Event], names: Names) -> Columns:
    all_args = args_of(events)
    return {
        "name": names.numbers_of(event.name for event in events),
        "device": integers((args.device for args in all_args), np.int32),
        "stream": integers(args.stream for args in all_args),
    }


def allocation_columns(events: list[Event]) -> Columns:
    """Allocations and frees of GPU memory; those of other devices are left out."""
    events = [event for event in events if event.args and event.args.device_type in GPUS]
    all_args, when = args_of(events), times(events)
    return when | {
        "time_ns": when["start_ns"],
        "process": integers(event.pid for event in events),
        "bytes": integers(args.allocated for args in all_args),
        "device": integers((args.device_id for args in all_args), np.int32),
    }


def personal_texts(events: dict[str, list[Event]]) -> Iterator[str]:
    """Texts that may say who ran the program and where, besides the names of events."""
    yield from (str(event.args.name) for event in events["M"] if event.args)
    operators = [event.args for event in events["cpu_op"] if event.args]
    yield from (f"{a.kernel_file} {a.stack}" for a in operators if a.kernel_file or a.stack)


def args_of(events: list[Event]) -> list[Args]:
    args = [event.args for event in events if event.args is not None]
    if len(args) < len(events):
        raise ValueError(f"{events[0].cat} without args")
    return args


def integers(values: Iterable[object], dtype: type[np.integer] = np.int64) -> np.ndarray:
    """The values as a column of integers; None becomes -1.

    Raises TypeError or ValueError for a value that is no number, OverflowError for one too large.
    """
    known = list(values)
    with suppress(TypeError):  # most columns have no None, and this way is faster
        return np.fromiter(known, dtype)
    return np.fromiter((-1 if value is None else value for value in known), dtype)


def product(sizes: object) -> int | None:
    if not isinstance(sizes, list) or len(sizes) != 3:
        return None
    x, y, z = sizes
    total: int = x * y * z
    return total


def operation_name(name: str, kind: int) -> str:
    """The operation's name as `nsys stats` prints it, so that both kinds of capture compare."""
    if kind == KERNEL:
        return name
    if kind == MEMSET:
        return "[CUDA memset]"
    match = COPIED.match(name)
    if not match:
        return "[CUDA memcpy Unknown]"
    places = (PLACES.get(match[end], match[end]) for end in ("from", "to"))
    return f"[CUDA memcpy {'-to-'.join(places)}]"


def add_launches(rows: Columns | None, calls: Columns | None) -> Columns | None:
    """The rows with `call`, the row of the call that launched each operation, and its `process`.

    Both are -1 where the call was not captured. An operation that was launched before the capture
    began gets the process that mostly uses the same GPU.
    """
    if rows is None or calls is None or not len(calls["id"]):
        return rows
    one_process = [np.zeros(len(table["id"]), np.int64) for table in (rows, calls)]
    call = first_matching(one_process[0], rows["id"], one_process[1], calls["id"])
    process = np.append(calls["process"], -1)[call]
    main = most_frequent(calls["process"])
    for device in np.unique(rows["device"][call < 0]).tolist():
        on_device = rows["device"] == device
        known = process[on_device & (call >= 0)]
        process[on_device & (call < 0)] = most_frequent(known) if len(known) else main
    return rows | {"call": call, "process": process}


def most_frequent(column: np.ndarray) -> int:
    values, count = np.unique(column, return_counts=True)
    return int(values[np.argmax(count)])
