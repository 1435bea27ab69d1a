"""Columns of what the host called and the GPU ran in the steps, with what each waited for.

The threads that launch take turns (forward, then autograd's backward), so they are one host here:
its calls in order of their begin, each with the host's time before it (think) and in it (took). A
call inside another is part of that one. Operations are in the order of their launch, in which each
stream runs them.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import Intervals, distinct, is_one_of, name_mask
from profiling.analysis.gpu_time.host_activity import (
    ALLOCATING,
    BLOCKING,
    FROM_HOST,
    LONG_NS,
    NUMBERS_BYTES,
    TO_HOST,
    UNSEEN_WAITS,
    data_ranges,
    drawing_times,
    foreign_waits,
    in_large_runs,
    is_other_work,
    large_results,
    other_work,
    piece_by_piece,
    sleeps,
    where_often,
)
from profiling.analysis.gpu_time.host_waits import launches_block
from profiling.analysis.gpu_time.profiler_cost import host_events_ns, recorded_overhead
from profiling.analysis.steps.steps import Steps
from profiling.analysis.whatif.constants import LEAST_SHARE
from profiling.analysis.whatif.unseen import with_unseen
from profiling.analysis.whatif.waits import (
    NEVER,
    Timeline,
    awaited_operations,
    operation_lags,
)
from profiling.timeline.trace import COPY, KERNEL, Calls, Operations, Table, Trace

# HostCalls.kind. LAUNCHING: it started operations, but no copies between host and GPU
LAUNCHING, WAITING, ALLOCATION, TRANSFER, OTHER = range(5)


@dataclass(frozen=True)
class HostCalls(Table):
    """The host's calls, in order; times in float64 ns."""

    think_ns: np.ndarray  # of the host before the call; below 0 where threads overlap
    took_ns: np.ndarray  # in the call, without waiting for the GPU
    events: np.ndarray  # calls and operators that the profiler noted since the call before
    held_ns: np.ndarray  # of both times, in which the profiler itself held the thread up
    data_ns: np.ndarray  # of think_ns, in the data phase or waiting for another process
    is_stall: np.ndarray  # bool: think_ns is long, and not because of data
    in_data: np.ndarray  # bool: the call lies in the data phase
    kind: np.ndarray
    name: np.ndarray  # index in Trace.names
    awaited: np.ndarray  # operation behind whose end it returns; -1: none
    wait_lag_ns: np.ndarray  # from that end on
    start_ns: np.ndarray  # this and the next: as captured, from the begin of the first step
    end_ns: np.ndarray


@dataclass(frozen=True)
class Launched(Table):
    """Operations in the order of their launch; times in float64 ns."""

    took_ns: np.ndarray
    call: np.ndarray  # row in HostCalls
    host_lag_ns: np.ndarray  # from the call's begin on; NEVER: it does not run
    stream: np.ndarray  # from 0 on
    stream_lag_ns: np.ndarray  # from the end of the operation before it on the stream
    other: np.ndarray  # a third operation that it waits for; -1: none
    other_lag_ns: np.ndarray
    kind: np.ndarray  # as in Operations
    family: np.ndarray  # of a kernel, index in FAMILIES; -1: no kernel
    name: np.ndarray  # index in Trace.names
    bytes: np.ndarray
    to_host: np.ndarray  # bool: copies from the GPU
    from_host: np.ndarray  # bool: copies to the GPU
    start_ns: np.ndarray  # this and the next: as captured
    end_ns: np.ndarray


@dataclass(frozen=True)
class Work:
    """A window of steps. `awaited` and `other` never point forward, except as `cycle` says."""

    host: HostCalls
    gpu: Launched
    first: np.ndarray  # (calls + 1,): the first operation of each call
    by_stream: np.ndarray  # (operations,): all of one stream, then all of the next
    earlier_ns: np.ndarray  # (streams,): end of what ran before the window; NEVER: nothing
    step_first: np.ndarray  # (steps + 1,): the first call of each step
    names: list[str]  # Trace.names

    @property
    def steps(self) -> int:
        return len(self.step_first) - 1

    def cycle(self) -> "Work":
        """The steps without the first and the last one, to be replayed round and round.

        What waited for an operation of an earlier step waits for the one at the same place, a
        round before, if it is the same kernel on the same stream: it points forward.
        """
        calls = slice(int(self.step_first[1]), int(self.step_first[-2]))
        rows = slice(int(self.first[calls.start]), int(self.first[calls.stop]))
        host, gpu = self.host.rows(calls), self.gpu.rows(rows)
        ordered = self.by_stream[(self.by_stream >= rows.start) & (self.by_stream < rows.stop)]
        return Work(
            replace(host, awaited=self.turned(host.awaited, rows)),
            replace(gpu, call=gpu.call - calls.start, other=self.turned(gpu.other, rows)),
            self.first[calls.start : calls.stop + 1] - rows.start,
            ordered - rows.start,
            np.full(len(self.earlier_ns), NEVER),
            self.step_first[1:-1] - calls.start,
            self.names,
        )

    def turned(self, operation: np.ndarray, rows: slice) -> np.ndarray:
        """The `operation`s as numbers in the cycle of `rows`, earlier ones a round later."""
        later = operation + (rows.stop - rows.start)
        early = np.flatnonzero((operation >= 0) & (operation < rows.start) & (later < rows.stop))
        one, other = operation[early], later[early]
        same = self.gpu.name[one] == self.gpu.name[other]
        same &= self.gpu.stream[one] == self.gpu.stream[other]
        numbers = np.where(operation >= rows.start, operation - rows.start, -1)
        numbers[early[same]] = other[same] - rows.start
        return numbers


def work_of(analysis: Analysis, calls: Calls, operations: Operations) -> Work:
    """The work of the steps. `calls` and `operations` are those of the analysis's trace.

    Raises ValueError where the calls of the steps launched nothing.
    """
    trace, steps = analysis.trace, analysis.steps
    begin_ns = int(steps.start_ns[0])
    threads = driving_threads(steps, calls, operations)
    calls, operations = with_unseen(trace, steps, calls, operations, threads)
    rows, place, events = host_rows(steps, calls, threads)
    spans = spans_of(calls, rows)
    launched, call, early = launched_rows(steps, operations, place)
    if not len(launched):
        raise ValueError(f"{trace.file.name}: nothing on the GPU was launched in its steps")
    streams = distinct(np.sort(operations.stream[launched]))
    stream = np.searchsorted(streams, operations.stream[launched])
    timeline = Timeline(
        as_floats(spans.start_ns, begin_ns),
        as_floats(spans.end_ns, begin_ns),
        np.concatenate(([0], np.cumsum(np.bincount(call, minlength=len(rows))))),
        as_floats(operations.start_ns[launched], begin_ns),
        as_floats(operations.end_ns[launched], begin_ns),
        call,
        stream,
        np.argsort(stream, kind="stable"),
        earlier_ends(operations, launched, early, streams, begin_ns),
    )
    gpu = gpu_columns(analysis, operations.rows(launched), timeline)
    kind = call_kinds(trace.names, calls.name[rows], gpu)
    masks = (kind == what for what in (LAUNCHING, WAITING, ALLOCATION))
    blocks = launches_block(operations, calls, launched)
    awaited, wait_lag_ns, took_ns = awaited_operations(timeline, *masks, launches_block=blocks)
    data_ns, is_stall, in_data = data_columns(trace, steps, spans, gpu, timeline.first)
    reach_ns = np.append(spans.previous_ns, spans.end_ns.max())
    host = HostCalls(
        (spans.start_ns - spans.previous_ns).astype(float),
        took_ns,
        events + operators_before(trace, steps, threads, spans),
        spans.ns_of_all(recorded_overhead(trace, threads))
        + np.diff(host_events_ns(trace, steps, threads, reach_ns)),
        data_ns,
        is_stall,
        in_data,
        kind,
        calls.name[rows],
        awaited,
        wait_lag_ns,
        timeline.call_start_ns,
        timeline.call_end_ns,
    )
    step_first = np.searchsorted(spans.start_ns, steps.start_ns[1:])
    step_first = np.concatenate(([0], step_first, [len(rows)]))
    ordered, earlier_ns = timeline.by_stream, timeline.earlier_ns
    return Work(host, gpu, timeline.first, ordered, earlier_ns, step_first, trace.names)


def as_floats(time_ns: np.ndarray, begin_ns: int) -> NDArray[np.float64]:
    """Times from `begin_ns` on: float64 holds those exactly, but not the nanoseconds since 1970."""
    return (time_ns - begin_ns).astype(np.float64)


def driving_threads(steps: Steps, calls: Calls, operations: Operations) -> list[int]:
    """The threads that launch a share of the operations, and the steps' own."""
    call = operations.call[steps.rows_of(operations)]
    threads, count = np.unique(calls.thread[call[call >= 0]], return_counts=True)
    driving = set(threads[count >= LEAST_SHARE * count.sum()].tolist())
    return sorted(driving | ({steps.thread} if steps.thread is not None else set()))


def host_rows(
    steps: Steps, calls: Calls, threads: list[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rows of the calls that lie in no other, (calls,) place of each call or of the one around it
    among these or -1, number of calls noted from each of these to the next).

    They are the `threads`' calls from the first step's begin to the last one's end.
    """
    end_ns = max(int(steps.end_ns[-1]), steps.host_end_ns())
    window = slice(*np.searchsorted(calls.start_ns, (int(steps.start_ns[0]), end_ns)).tolist())
    mine = is_one_of(calls.thread[window], threads) & (calls.process[window] == steps.process)
    rows = np.flatnonzero(mine) + window.start
    outer = rows.copy()
    for thread in threads if len(threads) > 1 else [None]:
        own = slice(None) if thread is None else np.flatnonzero(calls.thread[rows] == thread)
        outer[own] = outermost(calls, rows[own])
    top = outer == rows
    place = np.full(len(calls.start_ns), -1)
    place[rows] = np.cumsum(top) - 1
    place[rows[~top]] = place[outer[~top]]
    return rows[top], place, np.diff(np.flatnonzero(top), prepend=-1)


def outermost(calls: Calls, rows: np.ndarray) -> np.ndarray:
    """The row of the outermost call around each of the `rows`, all of one thread."""
    start_ns, end_ns = calls.start_ns[rows], calls.end_ns[rows]
    order = np.arange(len(rows))
    if np.any(start_ns[1:] == start_ns[:-1]):  # of two that begin at once the longer is outside
        order = np.lexsort((-end_ns, start_ns))
        start_ns, end_ns = start_ns[order], end_ns[order]
    reach = np.maximum.accumulate(end_ns)
    top = np.concatenate(([True], start_ns[1:] >= reach[:-1]))[: len(rows)]
    found = np.empty_like(rows)
    found[order] = rows[order][np.maximum.accumulate(np.where(top, np.arange(len(rows)), 0))]
    return found


def launched_rows(
    steps: Steps, operations: Operations, place: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rows of the operations that the host's calls launched, by launch, the place of the call of
    each, rows of those that other calls launched)."""
    rows = steps.rows_of(operations)
    rows = rows[operations.call[rows] >= 0]
    call = place[operations.call[rows]]
    early, rows, call = rows[call < 0], rows[call >= 0], call[call >= 0]
    if np.any(call[1:] < call[:-1]):
        order = np.argsort(call, kind="stable")
        rows, call = rows[order], call[order]
    return rows, call, early


def earlier_ends(
    operations: Operations,
    launched: np.ndarray,
    early: np.ndarray,
    streams: np.ndarray,
    begin_ns: int,
) -> np.ndarray:
    """(streams,): when what ran before the first of the `launched` operations ended.

    `early` are rows of operations that were launched before the window, or by other threads.
    """
    begun_ns = np.full(len(streams), np.iinfo(np.int64).max)
    place = np.searchsorted(streams, operations.stream[launched])
    np.minimum.at(begun_ns, place, operations.start_ns[launched])
    early = early[is_one_of(operations.stream[early], streams.tolist())]
    place = np.searchsorted(streams, operations.stream[early])
    before = operations.start_ns[early] < begun_ns[place]
    ends = np.full(len(streams), NEVER)
    np.maximum.at(ends, place[before], as_floats(operations.end_ns[early[before]], begin_ns))
    return ends


def gpu_columns(analysis: Analysis, operations: Operations, timeline: Timeline) -> Launched:
    """The columns of `operations`, which are in the order of their launch."""
    names = analysis.trace.names
    lags = operation_lags(timeline, operations.kind == KERNEL)
    is_copy = operations.kind == COPY
    return Launched(
        timeline.end_ns - timeline.start_ns,
        timeline.call,
        lags.host_ns,
        timeline.stream,
        lags.stream_ns,
        lags.other,
        lags.other_ns,
        operations.kind,
        np.where(operations.kind == KERNEL, analysis.family[operations.name], -1),
        operations.name,
        operations.bytes,
        is_copy & name_mask(names, operations.name, lambda name: TO_HOST in name),
        is_copy & name_mask(names, operations.name, lambda name: FROM_HOST in name),
        timeline.start_ns,
        timeline.end_ns,
    )


def call_kinds(names: list[str], name: np.ndarray, gpu: Launched) -> np.ndarray:
    """(calls,) the kind of each call, from its `name` and what it launched."""
    kind = np.full(len(name), OTHER, np.int8)
    kind[gpu.call] = LAUNCHING
    kind[gpu.call[gpu.to_host | gpu.from_host]] = TRANSFER
    for pattern in (BLOCKING, UNSEEN_WAITS):
        kind[name_mask(names, name, pattern.fullmatch) & (kind == OTHER)] = WAITING
    kind[name_mask(names, name, ALLOCATING.fullmatch)] = ALLOCATION
    return kind


@dataclass(frozen=True)
class Spans(Table):
    """The host's calls in ns of the capture: the end of all before each, its begin, its end."""

    previous_ns: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray

    def ns_of_all(self, times: Intervals) -> np.ndarray:
        """(calls,) ns of the set that lie in each call or in the time before it."""
        return times.ns_within(self.previous_ns, self.end_ns).astype(float)

    def ns_of_think(self, times: Intervals) -> np.ndarray:
        """(calls,) ns of the set that lie in the time before each call."""
        until_ns = np.maximum(self.start_ns, self.previous_ns)
        return times.ns_within(self.previous_ns, until_ns).astype(float)


def spans_of(calls: Calls, rows: np.ndarray) -> Spans:
    start_ns, end_ns = calls.start_ns[rows], calls.end_ns[rows]
    reach = np.maximum.accumulate(end_ns)
    return Spans(np.concatenate((start_ns[:1], reach[:-1])), start_ns, end_ns)


def operators_before(
    trace: Trace, steps: Steps, threads: list[int], spans: Spans
) -> NDArray[np.int64]:
    """(calls,) operators of PyTorch that began before each call and behind the one before it."""
    if trace.operators is None:
        return np.zeros(len(spans.start_ns), np.int64)
    mine = is_one_of(trace.operators.thread, threads) & (trace.operators.process == steps.process)
    begun = np.searchsorted(trace.operators.start_ns[mine], spans.start_ns, side="right")
    outside = np.searchsorted(trace.operators.start_ns[mine], steps.start_ns[0], side="right")
    return np.diff(begun, prepend=outside)


def data_columns(
    trace: Trace, steps: Steps, spans: Spans, gpu: Launched, first: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(ns of the time before each call that make a batch, whether the rest of it is a stall,
    whether the call itself lies in the data phase)."""
    phases = data_ranges(trace, steps)
    foreign, for_programs = foreign_waits(trace, steps)
    think_ns = spans.start_ns - spans.previous_ns
    long = think_ns > LONG_NS
    data_ns, rows = spans.ns_of_think(phases), np.flatnonzero(long)
    data_ns[rows] = np.maximum(data_ns[rows], spans.rows(rows).ns_of_think(foreign))
    stall = long & (think_ns - data_ns > LONG_NS)
    in_data = phases.ns_within(spans.start_ns, spans.end_ns) > 0
    if not len(phases.start_ns):
        batch = stall & makes_batch(gpu, first[:-1], stall)
        small = true_just_before(gpu.to_host & (gpu.bytes > NUMBERS_BYTES), first[:-1])
        batch &= ~where_often(batch & small, len(steps.start_ns))
        did = (other_work(trace, steps, for_programs), foreign, drawing_times(trace, steps))
        other_ns, answered_ns, draws_ns = (spans.ns_of_think(times) for times in did)
        batch &= ~is_other_work(other_ns, answered_ns, draws_ns, think_ns)
        slept_ns = spans.ns_of_think(sleeps(trace, steps, for_programs))
        data_ns = np.where(batch, think_ns - slept_ns, data_ns)
        stall &= think_ns - data_ns > LONG_NS
    return data_ns, stall, in_data


def makes_batch(gpu: Launched, row: np.ndarray, paused: np.ndarray) -> np.ndarray:
    """(rows,) whether from each operation on a batch is copied to the GPU before the next kernel
    and the next result, and the operation before it fetched no results; `paused` before it."""
    fetched = true_just_before(large_results(gpu.to_host, gpu.bytes), row)
    after = row[paused & (row > 0) & (row < len(gpu.call))]
    pieces = piece_by_piece(gpu.from_host, gpu.bytes, after - 1, after)
    batch = next_of(in_large_runs(gpu.from_host, gpu.bytes) & ~pieces)[row]
    kernel = next_of((gpu.kind == KERNEL) | gpu.to_host)[row]
    return np.asarray((batch < len(gpu.call)) & (batch < kernel) & ~fetched)


def true_just_before(mask: np.ndarray, row: np.ndarray) -> NDArray[np.bool_]:
    """(rows,) whether the mask is true for the operation before each of the rows."""
    before: NDArray[np.bool_] = np.append(False, mask)[row]
    return before


def next_of(mask: np.ndarray) -> np.ndarray:
    """(rows + 1,) the first row from each one on for which the mask is true, or their number."""
    rows = np.where(mask, np.arange(len(mask)), len(mask))
    return np.append(np.minimum.accumulate(rows[::-1])[::-1], len(mask))
