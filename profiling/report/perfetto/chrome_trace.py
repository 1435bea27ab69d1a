"""Writes a capture as a Chrome trace, which ui.perfetto.dev and chrome://tracing open.

Called by profiling.verbs.export. Host threads have ranges, PyTorch's operators and CUDA calls as
nested slices, GPUs a track for each stream; arrows lead from a launch to what it started. The trace
holds names, times and sizes, and nothing about the machine that it was captured on.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TextIO

import msgspec
import numpy as np

from cli.plain import without_controls
from profiling.analysis.gpu_work.families import FAMILIES, families_of
from profiling.report.kernel_label import kernel_label
from profiling.timeline.personal import without_folders
from profiling.timeline.trace import (
    ANY_THREAD,
    COPY,
    GRAPH,
    KERNEL,
    MEMSET,
    Calls,
    CounterSamples,
    Operations,
    Ranges,
    Trace,
)

FIRST_GPU_PID = 1 << 23  # above any pid of Linux, so that no process has it
LANES = 1000  # tids reserved for one stream or thread, a lane each, for slices that overlap
LABEL_WIDTH = 120  # characters
CATEGORIES = {KERNEL: "kernel", COPY: "copy", MEMSET: "memset", GRAPH: "graph"}
TID = 0xFFFFFF  # mask of the system's thread id in one of nsys's
Event = dict[str, object]


@dataclass(frozen=True)
class Source:
    """The capture to write, and its names made fit for that."""

    trace: Trace
    phases: np.ndarray  # index in Trace.names of the phase that owns each operation; -1: none
    origin_ns: int
    names: list[str]  # Trace.names without folders and control characters
    labels: list[str]  # names, shortened


def write(trace: Trace, phases: np.ndarray | None, file: TextIO) -> int:
    """Writes the trace event by event and returns the number of events.

    `phases`: index in Trace.names of the phase that owns each operation, -1 for none.
    """
    return write_events(events_of(trace, phases, trace.first_ns), file)


def write_events(events: Iterable[Event], file: TextIO) -> int:
    count = 0
    file.write('{"displayTimeUnit":"ns","traceEvents":[\n')
    for event in events:
        file.write((",\n" if count else "") + msgspec.json.encode(event).decode())
        count += 1
    file.write("\n]}\n")
    return count


def events_of(trace: Trace, phases: np.ndarray | None, origin_ns: int) -> Iterator[Event]:
    """Yield the events of the trace.

    Times count from `origin_ns`: counted from the boot, a double would lose nanoseconds.
    """
    names = [without_controls(without_folders(name)) for name in trace.names]
    source = Source(
        trace,
        np.empty(0, np.int64) if phases is None else phases,
        origin_ns,
        names,
        [kernel_label(name, LABEL_WIDTH) for name in names],
    )
    operations_by_call = launches(source.trace)
    yield from host_metadata(source.trace)
    for (process, thread), tid in host_threads(source.trace).items():
        yield from host_slices(source, process, thread, tid, operations_by_call)
    yield from unowned_ranges(source)
    if source.trace.operations is not None:
        yield from gpu_slices(source, source.trace.operations)
    for metric in source.trace.counters or []:
        yield from counter(source, metric)


def metadata(kind: str, pid: int, tid: int, value: str | int) -> Event:
    key = "sort_index" if kind.endswith("sort_index") else "name"
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": {key: value}}


def slice_of(name: str, category: str, pid: int, tid: int, start_ns: int, end_ns: int) -> Event:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": pid,
        "tid": tid,
        "ts": start_ns / 1000,
        "dur": (end_ns - start_ns) / 1000,
    }


def arrow(phase: str, operation: int, beside: Event) -> Event:
    """One end, "s" or "f", of the arrow from a launch to its operation; `beside` is its slice."""
    place = {key: beside[key] for key in ("pid", "tid", "ts")}
    bound = {"bp": "e"} if phase == "f" else {}
    return {"ph": phase, "name": "launch", "cat": "launch", "id": operation, **place, **bound}


# --- host


def host_tables(trace: Trace) -> dict[str, Ranges | Calls]:
    """The tables of host events by category, those of outer slices first."""
    tables = {"range": trace.ranges, "operator": trace.operators, "cuda": trace.calls}
    return {category: table for category, table in tables.items() if table is not None}


def host_threads(trace: Trace) -> dict[tuple[int, int], int]:
    """A tid for each (process, thread): small, since tools' thread ids are wider than 32 bits."""
    pairs: set[tuple[int, int]] = set()
    for table in host_tables(trace).values():
        if len(table.start_ns):
            columns = np.unique(np.stack((table.process, table.thread)), axis=1)
            pairs |= {(int(p), int(t)) for p, t in columns.T if t != ANY_THREAD}
    return {pair: (index + 1) * LANES for index, pair in enumerate(sorted(pairs))}


def host_metadata(trace: Trace) -> Iterator[Event]:
    processes = [table.process for table in host_tables(trace).values()]
    for process in np.unique(np.concatenate(processes)).tolist() if processes else ():
        yield metadata("process_name", process, 0, f"process {process}")


def launches(trace: Trace) -> dict[int, list[int]]:
    """The rows of the operations that each call launched; the launch of a CUDA graph has many."""
    operations: dict[int, list[int]] = {}
    if trace.operations is not None and trace.calls is not None:
        rows = np.flatnonzero(trace.operations.call >= 0)
        for row, call in zip(rows.tolist(), trace.operations.call[rows].tolist(), strict=True):
            operations.setdefault(call, []).append(row)
    return operations


def host_slices(
    source: Source, process: int, thread: int, tid: int, operations_by_call: dict[int, list[int]]
) -> Iterator[Event]:
    """Yield the slices of one host thread, merged and sorted so that an outer slice comes first."""
    tables = host_tables(source.trace)
    parts = []
    for outer, table in enumerate(tables.values()):
        rows = np.flatnonzero((table.process == process) & (table.thread == thread))
        start_ns = table.start_ns[rows] - source.origin_ns
        end_ns = np.maximum(table.end_ns[rows] - source.origin_ns, start_ns)
        parts.append((start_ns, end_ns, table.name[rows], np.full(len(rows), outer), rows))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.lexsort((columns[3], -columns[1], columns[0]))
    starts, ends, names, kinds, rows = (column[order].tolist() for column in columns)
    lanes = nested_lanes(starts, ends)
    yield from lane_names(process, tid, f"thread {thread & TID}", lanes)
    categories = list(tables)
    for start, end, name, kind, row, lane in zip(
        starts, ends, names, kinds, rows, lanes, strict=True
    ):
        category = categories[kind]
        made = slice_of(source.names[name], category, process, tid + lane, start, end)
        yield made
        for operation in operations_by_call.get(row, ()) if category == "cuda" else ():
            yield arrow("s", operation, made)


def unowned_ranges(source: Source) -> Iterator[Event]:
    """Yield ranges that may start on one thread and end on another, as asynchronous events."""
    ranges = source.trace.ranges
    if ranges is None:
        return
    for row in np.flatnonzero(ranges.thread == ANY_THREAD).tolist():
        name, pid = source.names[ranges.name[row]], int(ranges.process[row])
        common = {"cat": "range", "name": name, "id": row, "pid": pid, "tid": 0}
        for phase, at_ns in (("b", ranges.start_ns[row]), ("e", ranges.end_ns[row])):
            yield {"ph": phase, **common, "ts": int(at_ns - source.origin_ns) / 1000}


def lane_names(pid: int, tid: int, name: str, lanes: Iterable[int]) -> Iterator[Event]:
    for lane in sorted(set(lanes)):
        title = name if lane == 0 else f"{name}, overlapping {lane}"
        yield metadata("thread_name", pid, tid + lane, title)
        yield metadata("thread_sort_index", pid, tid + lane, tid + lane)


# --- GPU


def gpu_pid(operations: Operations, process: int, device: int) -> int:
    processes = np.unique(operations.process)
    return FIRST_GPU_PID + int(np.searchsorted(processes, process)) * 64 + device


def gpu_slices(source: Source, operations: Operations) -> Iterator[Event]:
    models = {device.id: without_controls(device.name) for device in source.trace.devices}
    family = families_of(source.trace.names, operations.name[operations.kind == KERNEL])
    pairs = np.unique(np.stack((operations.process, operations.device)), axis=1).T.tolist()
    for process, device in pairs:
        pid = gpu_pid(operations, process, device)
        title = f"GPU {device} {models.get(device, '')}".strip() + f", process {process}"
        yield metadata("process_name", pid, 0, title)
        yield metadata("process_sort_index", pid, 0, pid)
        on_device = (operations.process == process) & (operations.device == device)
        for index, stream in enumerate(np.unique(operations.stream[on_device]).tolist(), start=1):
            rows = np.flatnonzero(on_device & (operations.stream == stream))
            lanes = disjoint_lanes(operations.start_ns[rows], operations.end_ns[rows])
            yield from lane_names(pid, index * LANES, f"stream {stream}", lanes)
            tids = [index * LANES + lane for lane in lanes]
            yield from stream_slices(source, operations, rows, family, pid, tids)


def stream_slices(
    source: Source,
    operations: Operations,
    rows: np.ndarray,
    family: np.ndarray,
    pid: int,
    tids: list[int],
) -> Iterator[Event]:
    start_ns, end_ns = operations.start_ns - source.origin_ns, operations.end_ns - source.origin_ns
    columns = (start_ns, end_ns, operations.name, operations.kind, operations.call)
    values = (column[rows].tolist() for column in columns)
    arguments = operation_arguments(source, operations, rows, family)
    for start, end, name, kind, call, row, inside, tid in zip(
        *values, rows.tolist(), arguments, tids, strict=True
    ):
        made = slice_of(source.labels[name], CATEGORIES[kind], pid, tid, start, end)
        yield made | {"args": inside}
        if call >= 0 and source.trace.calls is not None:
            yield arrow("f", row, made)


def operation_arguments(
    source: Source, operations: Operations, rows: np.ndarray, family: np.ndarray
) -> Iterator[Event]:
    """Yield the arguments of each operation, which a click on it shows."""
    phases = source.phases[rows] if len(source.phases) else np.full(len(rows), -1)
    sizes = (operations.bytes, operations.blocks, operations.threads)
    columns = (operations.name, operations.kind, *sizes)
    for name, kind, size, blocks, threads, phase in zip(
        *(column[rows].tolist() for column in columns), phases.tolist(), strict=True
    ):
        arguments: Event = {"name": source.names[name]}
        if kind == KERNEL:
            arguments["family"] = FAMILIES[family[name]]
        if phase >= 0:
            arguments["phase"] = source.names[phase]
        if size >= 0:
            arguments["bytes"] = size
        if blocks >= 0:
            arguments |= {"blocks": blocks, "threads per block": threads}
        yield arguments


def counter(source: Source, metric: CounterSamples) -> Iterator[Event]:
    """Yield the samples of a hardware counter, as a track beside the streams of its GPU."""
    operations = source.trace.operations
    pid = FIRST_GPU_PID
    if operations is not None and (on_device := operations.device == metric.device).any():
        pid = gpu_pid(operations, int(operations.process[on_device][0]), metric.device)
    common = {"ph": "C", "name": without_controls(metric.name), "pid": pid, "tid": 0}
    known = np.isfinite(metric.value)  # JSON has no NaN
    times_us = ((metric.time_ns[known] - source.origin_ns) / 1000).tolist()
    for time_us, value in zip(times_us, metric.value[known].tolist(), strict=True):
        yield {**common, "ts": time_us, "args": {"value": value}}


def nested_lanes(start_ns: list[int], end_ns: list[int]) -> list[int]:
    """The row of each slice, such that two slices on a row are disjoint or one contains the other.

    Slices are sorted by start, longer ones first. All are on row 0 unless some cross, as happens
    where the tool's clock stepped, or the program opens and closes its ranges crosswise.
    """
    open_ends: list[list[int]] = [[]]  # ends of the open slices of each row, the outermost first
    lanes = []
    for start, end in zip(start_ns, end_ns, strict=True):
        for ends in open_ends:
            while ends and ends[-1] <= start:
                ends.pop()
        fitting = (row for row, ends in enumerate(open_ends) if not ends or end <= ends[-1])
        lane = next(fitting, len(open_ends))
        if lane == len(open_ends):
            open_ends.append([])
        open_ends[lane].append(end)
        lanes.append(lane)
    return lanes


def disjoint_lanes(start_ns: np.ndarray, end_ns: np.ndarray) -> list[int]:
    """The row of each slice, such that no two on a row overlap; slices are sorted by start.

    A stream's operations follow each other, except in the branches of a graph and where a kernel
    begins before the end of its predecessor.
    """
    if not np.any(start_ns[1:] < np.maximum.accumulate(end_ns)[:-1]):
        return [0] * len(start_ns)
    free = [0]  # rows that nothing occupies
    busy: list[tuple[int, int]] = []  # (end, row)
    lanes = []
    for start, end in zip(start_ns.tolist(), end_ns.tolist(), strict=True):
        while busy and busy[0][0] <= start:
            heappush(free, heappop(busy)[1])
        lane = heappop(free) if free else len(busy)
        heappush(busy, (end, lane))
        lanes.append(lane)
    return lanes
