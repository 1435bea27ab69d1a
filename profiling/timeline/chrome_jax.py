"""Reads a Chrome trace that JAX's profiler wrote. Called by profiling.timeline.opening.

jax.profiler.trace writes plugins/profile/TIME/HOST.trace.json.gz, and the same as
perfetto_trace.json.gz where create_perfetto_trace is set. Events have no category: the names of
their process and thread tell what they are. A process "/device:GPU:N" has a thread for each stream,
and others that XLA derives from these ("XLA Modules", "Steps"), which are left out. In the process
"/host:CPU" are calls of CUDA, which have a correlation id; StepTraceAnnotation, which has a step
number; calls of jitted functions, and of Python from within them; arrays that are fetched; waits
for results; compilations; XLA's allocations; XLA's operators, if it computes on the CPU; and
Python's frames. What is left out is counted (Trace.host_events), because recording it takes time.
XLA records some kernels into a CUDA graph anew before each launch of it: they do not run then.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np

from profiling.timeline.chrome_events import Args, Event, pieces
from profiling.timeline.chrome_json import (
    add_launches,
    host_columns,
    integers,
    operation_name,
    product,
    threads_of,
    times,
)
from profiling.timeline.reading import Names, drop_impossible_times, join_tables, rows_of
from profiling.timeline.trace import (
    COPY,
    KERNEL,
    MEMSET,
    Calls,
    Columns,
    HostEvents,
    Operations,
    Ranges,
    Trace,
)

Key = TypeVar("Key", bound=Hashable)
HEAD_BYTES = 1 << 16  # the names of the processes stand in front of the events
PROCESSES = re.compile(rb'"/(host:CPU|device:\w+:\d+)[^"]*"')
GPU = re.compile(r"/device:GPU:(\d+)")
STREAM = "Stream "
COPIED = re.compile(r"Memcpy(\w)2(\w)")
OF_CUDA = re.compile(r"(cu|hip)[A-Z_]|Mem(cpy|set|Alloc|Free)")
LAUNCH = "cuLaunchKernel"  # a launch has the name of its kernel in some versions
JITTED = re.compile(r"(PjitFunction|PjRtCApi|jit)\(.*\)")
OF_PYTHON = re.compile(r"\$\w+\.py:\d+ (block_until_ready|_wrapped_callback)")
# kept as functions
FUNCTIONS = (
    "np.asarray(jax.Array)",
    "backend_compile_and_load",
    "Build buffer allocations",
    "block_until_ready",
    "_wrapped_callback",
)
RECORDING = re.compile(r"command_buffer::(update|initialize)")  # kernels into a CUDA graph
SIZE, PAGEABLE = re.compile(r"\bsize:(\d+)"), "pageable"
GRID, BLOCK = re.compile(r"\bgrid:(\d+),(\d+),(\d+)"), re.compile(r"\bblock:(\d+),(\d+),(\d+)")
REGISTERS = re.compile(r"\bregs:(\d+)")
SHARED = re.compile(r"\b(?:static|dynamic)_shared:(\d+)")


def is_of_jax(begin: bytes) -> bool:
    """Whether a JSON that begins so is a trace of JAX's profiler."""
    return bool(PROCESSES.search(begin))


def read(path: Path) -> Trace:
    """The capture in a trace as JSON. Raises ValueError with one line if it is damaged."""
    named: list[Event] = []
    events: list[Event] = []
    others: list[Columns] = []
    for piece in pieces(path):
        named += (event for event in piece.traceEvents if event.ph == "M" and event.args)
        events += filter(is_kept, piece.traceEvents)
        with naming(path):
            others.append(columns_of_others(piece.traceEvents))
    with naming(path):
        return trace_of(path, named, events, others)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Raises ValueError that names the file where an event in it has impossible values."""
    try:
        yield
    except (ValueError, TypeError, OverflowError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path}: an event has impossible values ({reason})") from error


def columns_of_others(events: list[Event]) -> Columns:
    """Times, processes and threads of the events that are no calls of CUDA."""
    others = [event for event in events if event.ph == "X" and not is_call(event)]
    possible, _ = drop_impossible_times(times(others) | threads_of(others))
    return possible


def is_kept(event: Event) -> bool:
    """Whether the event may be of use: Python's frames, most of a trace, are not."""
    told_by_name = (
        event.name in FUNCTIONS
        or JITTED.fullmatch(event.name)
        or OF_PYTHON.fullmatch(event.name)
        or RECORDING.fullmatch(event.name)
    )
    return event.ph == "X" and (event.args is not None or bool(told_by_name))


def trace_of(path: Path, named: list[Event], events: list[Event], others: list[Columns]) -> Trace:
    processes = names_of(named, "process_name", lambda event: event.pid)
    threads = names_of(named, "thread_name", lambda event: (event.pid, event.tid))
    gpus = {pid: int(match[1]) for pid, name in processes.items() if (match := GPU.match(name))}
    on_gpu = [
        event
        for event in events
        if event.pid in gpus
        and threads.get((event.pid, event.tid), "").startswith(STREAM)
        and event.args
    ]
    on_host = [event for event in events if event.pid not in gpus]
    calls = [event for event in on_host if is_call(event)]
    ranges = [event for event in on_host if is_range(event)]
    operators = [event for event in on_host if event.args and event.args.hlo_op is not None]
    for event in on_host:
        if match := OF_PYTHON.fullmatch(event.name):
            event.name = match[1]
    frames = [event for event in on_host if event.name in FUNCTIONS]
    calls = without_recorded(calls, [event for event in on_host if RECORDING.fullmatch(event.name)])
    for event in calls:
        event.name = event.name if OF_CUDA.match(event.name) else LAUNCH

    names = Names()
    chosen = {
        "operations": on_gpu,
        "calls": calls,
        "ranges": ranges,
        "operators": operators,
        "frames": frames,
    }
    tables, left_out = dict[str, Columns](), 0
    for table, rows in chosen.items():
        if not rows:
            continue
        columns = times(rows)
        if table == "operations":
            columns |= operation_columns(rows, names, gpus)
        else:
            columns |= host_columns(rows, names)
        if table == "calls":
            columns |= correlations(rows)
        possible, dropped = drop_impossible_times(columns)
        tables[table], left_out = join_tables([possible]), left_out + dropped
    operations = add_launches(tables.get("operations"), tables.get("calls"))
    return Trace(
        kind="jax",
        file=path,
        names=list(names.numbers),
        devices=[],
        operations=Operations.from_columns(operations),
        calls=Calls.from_columns(tables.get("calls")),
        ranges=Ranges.from_columns(tables.get("ranges")),
        operators=Ranges.from_columns(tables.get("operators")),
        frames=Ranges.from_columns(tables.get("frames")),
        host_events=host_events(others, gpus),
        no_gpu=bool(operators) and not gpus,
        warnings=[f"left out {left_out} events with impossible times"] if left_out else [],
    )


def host_events(others: list[Columns], gpus: dict[object, int]) -> HostEvents | None:
    """The events that are no calls of CUDA, without those of the GPUs."""
    table = join_tables(others)
    of_gpus = np.isin(table["process"], integers(gpus))
    return HostEvents.from_columns(rows_of(table, ~of_gpus))


def without_recorded(calls: list[Event], recordings: list[Event]) -> list[Event]:
    """The calls without launches that XLA recorded into a CUDA graph: their kernels do not run."""
    ends: dict[Hashable, list[tuple[float, float]]] = {}
    for event in sorted(recordings, key=lambda event: event.ts):
        ends.setdefault((event.pid, event.tid), []).append((event.ts, event.ts + event.dur))

    def is_recorded(event: Event) -> bool:
        spans = ends.get((event.pid, event.tid), [])
        before = bisect_right(spans, (event.ts, math.inf))
        return before > 0 and event.ts < spans[before - 1][1] and not OF_CUDA.match(event.name)

    return [event for event in calls if not is_recorded(event)]


def names_of(named: list[Event], what: str, key: Callable[[Event], Key]) -> dict[Key, str]:
    """Names of processes or threads, from the events that give them."""
    return {
        key(event): str(event.args.name) for event in named if event.name == what and event.args
    }


def is_call(event: Event) -> bool:
    return event.args is not None and event.args.correlation_id is not None


def is_range(event: Event) -> bool:
    """Whether the host's event is a step that the program marks, or a call of a jitted function."""
    marked = event.args is not None and event.args.step_num is not None
    return marked or bool(JITTED.fullmatch(event.name))


def correlations(events: list[Event]) -> Columns:
    return {"id": integers(number(event.args.correlation_id) for event in events if event.args)}


def number(text: object) -> int | None:
    """The number in `text`; JAX writes all numbers as texts."""
    return None if text is None else int(str(text))


def operation_columns(events: list[Event], names: Names, gpus: dict[object, int]) -> Columns:
    all_args = [event.args or Args() for event in events]
    kind = [kind_of(event.name, args) for event, args in zip(events, all_args, strict=True)]
    details = [str(args.kernel_details or "") for args in all_args]
    copied = [str(args.memcpy_details or args.memset_details or "") for args in all_args]
    named = (
        operation_name(COPIED.sub(r"Memcpy \1to\2", event.name), of)
        for event, of in zip(events, kind, strict=True)
    )
    return {
        "kind": np.array(kind, np.int8),
        "name": names.numbers_of(named),
        "pageable": np.array([PAGEABLE in text for text in copied]),
        "id": integers(number(args.correlation_id) for args in all_args),
        "device": integers((gpus[event.pid] for event in events), np.int32),
        "stream": integers(event.tid for event in events),
        "bytes": integers(map(bytes_in, copied)),
        "blocks": integers(product(three(GRID, text)) for text in details),
        "threads": integers((product(three(BLOCK, text)) for text in details), np.int32),
        "registers": integers((first(REGISTERS, text) for text in details), np.int32),
        "shared_bytes": integers(map(shared_bytes, details), np.int32),
    }


def kind_of(name: str, args: Args) -> int:
    if args.memcpy_details is not None or COPIED.match(name):
        return COPY
    return MEMSET if args.memset_details is not None or name == "Memset" else KERNEL


@cache
def three(sizes: re.Pattern[str], text: str) -> list[int] | None:
    match = sizes.search(text)
    return [int(size) for size in match.groups()] if match else None


@cache
def first(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return int(match[1]) if match else None


def bytes_in(text: str) -> int | None:
    return first(SIZE, text)


@cache
def shared_bytes(text: str) -> int | None:
    sizes = [int(size) for size in SHARED.findall(text)]
    return sum(sizes) if sizes else None
