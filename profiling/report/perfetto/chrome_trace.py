"""A capture as a Chrome trace, which ui.perfetto.dev and chrome://tracing open.

Called by profiling.verbs.export. Host threads have ranges, PyTorch's operators and CUDA calls as
nested slices, GPUs a track for each stream; arrows lead from a launch to what it started. It holds
names, times and sizes, nothing of the machine that it was captured on.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TextIO

import numpy as np

from profiling.analysis.kernels.families import FAMILIES, families_of
from profiling.report.kernel_label import kernel_label
from profiling.report.perfetto.tracks import disjoint_lanes, nested_lanes
from profiling.timeline.personal import without_folders
from profiling.timeline.trace import (
    ANY_THREAD,
    COPY,
    GRAPH,
    KERNEL,
    MEMSET,
    CounterSamples,
    Operations,
    Trace,
)

FIRST_GPU_PID = 1 << 23  # above any pid of Linux, so that no process has it
LANES = 1000  # tids between one stream or thread and the next: for what overlaps on it
LABEL_WIDTH = 120
HOST = ("range", "operator", "cuda")  # what a host thread did; the outer first
CATEGORIES = {KERNEL: "kernel", COPY: "copy", MEMSET: "memset", GRAPH: "graph"}
TID = 0xFFFFFF  # of nsys's thread ids the system's


@dataclass(frozen=True)
class Source:
    """What is written."""

    trace: Trace
    phases: np.ndarray  # index in Trace.names of the phase that owns each operation; -1: none
    origin_ns: int
    names: list[str]  # JSON strings of Trace.names, without folders
    labels: list[str]  # the same, short


def write(trace: Trace, phases: np.ndarray | None, file: TextIO) -> int:
    """Writes the trace event by event and returns how many events those are.

    `phases`: index in Trace.names of the phase that owns each operation, -1 for none.
    """
    clean = [without_folders(name) for name in trace.names]
    source = Source(
        trace,
        np.empty(0, np.int64) if phases is None else phases,
        first_ns(trace),
        [json.dumps(name) for name in clean],
        [json.dumps(kernel_label(name, LABEL_WIDTH)) for name in clean],
    )
    count = 0
    file.write('{"displayTimeUnit":"ns","traceEvents":[\n')
    for event in events(source):
        file.write(",\n" + event if count else event)
        count += 1
    file.write("\n]}\n")
    return count


def first_ns(trace: Trace) -> int:
    """Times are told from here: in microseconds since the boot a double would lose nanoseconds."""
    tables = (trace.ranges, trace.calls, trace.operators, trace.operations)
    starts = [int(t.start_ns.min()) for t in tables if t is not None and len(t.start_ns)]
    starts += [int(m.time_ns.min()) for m in trace.counters or [] if len(m.time_ns)]
    return min(starts, default=0)


def events(source: Source) -> Iterator[str]:
    launched = launches(source.trace)
    yield from host_metadata(source.trace)
    for (process, thread), tid in host_threads(source.trace).items():
        yield from host_slices(source, process, thread, tid, launched)
    yield from unowned_ranges(source)
    if source.trace.operations is not None:
        yield from gpu_slices(source, source.trace.operations)
    for metric in source.trace.counters or []:
        yield from counter(source, metric)


def microseconds(ns: int) -> str:
    """With all digits: 1234567 is 1234.567."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def metadata(kind: str, pid: int, tid: int, value: str | int) -> str:
    key = "sort_index" if kind.endswith("sort_index") else "name"
    event = {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": {key: value}}
    return json.dumps(event, separators=(",", ":"))


def slice_of(
    name: str, category: str, track: str, start_ns: int, took_ns: int, args: str = ""
) -> str:
    return (
        f'{{"ph":"X","name":{name},"cat":"{category}",{track},"ts":{microseconds(start_ns)},'
        f'"dur":{microseconds(took_ns)}{args}}}'
    )


def arrow(phase: str, operation: int, track: str, at_ns: int) -> str:
    """One end of the arrow from a launch (s) to the operation (f), each inside its slice."""
    bound = '"bp":"e",' if phase == "f" else ""
    return (
        f'{{"ph":"{phase}",{bound}"name":"launch","cat":"launch","id":{operation},{track},'
        f'"ts":{microseconds(at_ns)}}}'
    )


# --- host


def host_threads(trace: Trace) -> dict[tuple[int, int], int]:
    """(process, thread) -> tid: small numbers, since a tool's thread ids are wider than 32 bits."""
    pairs: set[tuple[int, int]] = set()
    for table in (trace.ranges, trace.operators, trace.calls):
        if table is not None and len(table.start_ns):
            found = np.unique(np.stack((table.process, table.thread)), axis=1)
            pairs |= {(int(p), int(t)) for p, t in found.T if t != ANY_THREAD}
    return {pair: (index + 1) * LANES for index, pair in enumerate(sorted(pairs))}


def host_metadata(trace: Trace) -> Iterator[str]:
    tables = (trace.ranges, trace.operators, trace.calls)
    processes = [np.unique(table.process) for table in tables if table is not None]
    for process in np.unique(np.concatenate(processes)).tolist() if processes else ():
        yield metadata("process_name", process, 0, f"process {process}")


def launches(trace: Trace) -> dict[int, list[int]]:
    """The operations that each call launched; a CUDA graph's launch has many."""
    found: dict[int, list[int]] = {}
    if trace.operations is not None and trace.calls is not None:
        rows = np.flatnonzero(trace.operations.call >= 0)
        for row, call in zip(rows.tolist(), trace.operations.call[rows].tolist(), strict=True):
            found.setdefault(call, []).append(row)
    return found


def host_slices(
    source: Source, process: int, thread: int, tid: int, launched: dict[int, list[int]]
) -> Iterator[str]:
    """What one thread did, merged and sorted so that the outer slice comes first."""
    tables = (source.trace.ranges, source.trace.operators, source.trace.calls)
    parts = []
    for outer, table in enumerate(tables):
        if table is None:
            continue
        rows = np.flatnonzero((table.process == process) & (table.thread == thread))
        begin = table.start_ns[rows] - source.origin_ns
        took = np.maximum(table.end_ns[rows] - table.start_ns[rows], 0)
        parts.append((begin, took, table.name[rows], np.full(len(rows), outer), rows))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.lexsort((columns[3], -(columns[0] + columns[1]), columns[0]))
    start_ns, took_ns, name, kind, row = (column[order].tolist() for column in columns)
    ends = [start + ns for start, ns in zip(start_ns, took_ns, strict=True)]
    lanes = nested_lanes(start_ns, ends)
    yield from lane_names(process, tid, f"thread {thread & TID}", lanes)
    for start, ns, named, of, at, lane in zip(
        start_ns, took_ns, name, kind, row, lanes, strict=True
    ):
        track = f'"pid":{process},"tid":{tid + lane}'
        yield slice_of(source.names[named], HOST[of], track, start, ns)
        for operation in launched.get(at, ()) if HOST[of] == "cuda" else ():
            yield arrow("s", operation, track, start)


def unowned_ranges(source: Source) -> Iterator[str]:
    """Ranges that may start on one thread and end on another: asynchronous events."""
    ranges = source.trace.ranges
    if ranges is None:
        return
    rows = np.flatnonzero(ranges.thread == ANY_THREAD)
    columns = (ranges.start_ns, ranges.end_ns, ranges.name, ranges.process)
    values = (column[rows].tolist() for column in columns)
    for row, start, end, name, process in zip(rows.tolist(), *values, strict=True):
        common = f'"cat":"range","name":{source.names[name]},"id":{row},"pid":{process},"tid":0'
        yield f'{{"ph":"b",{common},"ts":{microseconds(start - source.origin_ns)}}}'
        yield f'{{"ph":"e",{common},"ts":{microseconds(end - source.origin_ns)}}}'


def lane_names(pid: int, tid: int, name: str, lanes: Iterable[int]) -> Iterator[str]:
    for lane in sorted(set(lanes)):
        told = name if lane == 0 else f"{name}, overlapping {lane}"
        yield metadata("thread_name", pid, tid + lane, told)
        yield metadata("thread_sort_index", pid, tid + lane, tid + lane)


# --- GPU


def gpu_pid(operations: Operations, process: int, device: int) -> int:
    processes = np.unique(operations.process)
    return FIRST_GPU_PID + int(np.searchsorted(processes, process)) * 64 + device


def gpu_slices(source: Source, operations: Operations) -> Iterator[str]:
    models = {device.id: device.name for device in source.trace.devices}
    family = families_of(source.trace.names, operations.name[operations.kind == KERNEL])
    pairs = np.unique(np.stack((operations.process, operations.device)), axis=1).T.tolist()
    for process, device in pairs:
        pid = gpu_pid(operations, process, device)
        title = f"GPU {device} {models.get(device, '')}".strip() + f", process {process}"
        yield metadata("process_name", pid, 0, title)
        yield metadata("process_sort_index", pid, 0, pid)
        mine = (operations.process == process) & (operations.device == device)
        for index, stream in enumerate(np.unique(operations.stream[mine]).tolist()):
            rows = np.flatnonzero(mine & (operations.stream == stream))
            tid = (index + 1) * LANES
            lanes = disjoint_lanes(operations.start_ns[rows], operations.end_ns[rows])
            yield from lane_names(pid, tid, f"stream {stream}", lanes)
            arguments = operation_arguments(source, operations, rows, family)
            yield from stream_slices(source, operations, rows, arguments, pid, tid, lanes)


def stream_slices(
    source: Source,
    operations: Operations,
    rows: np.ndarray,
    arguments: Iterator[str],
    pid: int,
    tid: int,
    lanes: list[int],
) -> Iterator[str]:
    start_ns = (operations.start_ns[rows] - source.origin_ns).tolist()
    took_ns = (operations.end_ns - operations.start_ns)[rows].tolist()
    launched = operations.call[rows] >= 0
    launched &= source.trace.calls is not None
    columns = (operations.name, operations.kind)
    for row, start, took, name, kind, arrives, inside, lane in zip(
        rows.tolist(),
        start_ns,
        took_ns,
        *(column[rows].tolist() for column in columns),
        launched.tolist(),
        arguments,
        lanes,
        strict=True,
    ):
        track = f'"pid":{pid},"tid":{tid + lane}'
        yield slice_of(source.labels[name], CATEGORIES[kind], track, start, took, inside)
        if arrives:
            yield arrow("f", row, track, start)


def operation_arguments(
    source: Source, operations: Operations, rows: np.ndarray, family: np.ndarray
) -> Iterator[str]:
    """What a click on each operation shows, as JSON."""
    phases = source.phases[rows] if len(source.phases) else np.full(len(rows), -1)
    sizes = (operations.bytes, operations.blocks, operations.threads)
    columns = (operations.name, operations.kind, *sizes)
    for name, kind, size, blocks, threads, phase in zip(
        *(column[rows].tolist() for column in columns), phases.tolist(), strict=True
    ):
        told = [f'"name":{source.names[name]}']
        told += [f'"family":"{FAMILIES[family[name]]}"'] if kind == KERNEL else []
        told += [f'"phase":{source.names[phase]}'] if phase >= 0 else []
        told += [f'"bytes":{size}'] if size >= 0 else []
        told += [f'"blocks":{blocks},"threads per block":{threads}'] if blocks >= 0 else []
        yield f',"args":{{{",".join(told)}}}'


def counter(source: Source, metric: CounterSamples) -> Iterator[str]:
    """A track for each hardware counter, beside the streams of its GPU."""
    operations = source.trace.operations
    pid = FIRST_GPU_PID
    if operations is not None and (on_device := operations.device == metric.device).any():
        pid = gpu_pid(operations, int(operations.process[on_device][0]), metric.device)
    common = f'"ph":"C","name":{json.dumps(metric.name)},"pid":{pid},"tid":0'
    known = np.isfinite(metric.value)  # JSON has no NaN
    times = (metric.time_ns[known] - source.origin_ns).tolist()
    for time, value in zip(times, metric.value[known].tolist(), strict=True):
        yield f'{{{common},"ts":{microseconds(time)},"args":{{"value":{value!r}}}}}'
