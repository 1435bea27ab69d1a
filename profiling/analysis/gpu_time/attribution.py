"""Attribute each GPU operation to a step, a phase and ranges. Called by analysis.

An operation belongs to the time of its launch. A range of a thread owns what that thread launches
while it is open. If the launching thread has no phase open, the operation belongs, by process and
time, to the phase that is open on the thread with the steps: autograd launches the backward pass
from a thread of its own. The same goes for ranges that no thread owns, and a CUDA graph's
operations all belong to the one call that launched it.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from profiling.analysis.columns import distinct, is_one_of, parents
from profiling.analysis.records import Coverage
from profiling.analysis.steps.steps import StepRanges, Steps
from profiling.timeline.trace import (
    ANY_THREAD,
    GRAPH,
    KERNEL,
    AutogradOperators,
    Calls,
    CollectiveCalls,
    Operations,
    Ranges,
    ShapedOperators,
)

QUEUED_NS = 100_000  # a free GPU begins an operation within this time after its launch


@dataclass(frozen=True)
class OwnedOperations:
    """The operations that belong to the steps, as columns sorted by start."""

    steps: Steps
    operations: Operations  # all operations of the capture
    row: np.ndarray  # row in `operations`
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    kind: np.ndarray
    name: np.ndarray
    call: np.ndarray  # -1: unknown
    launch_ns: np.ndarray  # begin of the launching call, or of the operation if that is unknown
    returned_ns: np.ndarray  # end of the launching call, or launch_ns if that is unknown
    thread: np.ndarray  # the launching thread; -1: unknown
    step: np.ndarray  # index of the step
    phase: np.ndarray  # row in steps.phases; -1: none
    same_thread: np.ndarray  # bool: the phase's own thread launched it

    @property
    def duration_ns(self) -> np.ndarray:
        return self.end_ns - self.start_ns

    @cached_property
    def kernels_and_graphs(self) -> np.ndarray:
        """Mask of the kernels and of the CUDA graphs that were captured as wholes."""
        return is_one_of(self.kind, (KERNEL, GRAPH))


def attribute(operations: Operations, calls: Calls | None, steps: Steps) -> OwnedOperations:
    row = steps.rows_of(operations)
    call = np.full(len(row), -1) if calls is None else operations.call[row]
    launch_ns, thread = operations.start_ns[row], np.full(len(row), -1)
    returned_ns = launch_ns.copy()
    if calls is not None:
        known = call >= 0
        launch_ns[known], thread[known] = calls.start_ns[call[known]], calls.thread[call[known]]
        returned_ns[known] = calls.end_ns[call[known]]
    chosen = (launch_ns >= steps.start_ns[0]) & (launch_ns <= steps.host_end_ns())
    columns = (row, call, launch_ns, returned_ns, thread)
    row, call, launch_ns, returned_ns, thread = (column[chosen] for column in columns)
    phase, same_thread = phase_of(steps, launch_ns, thread)
    if steps.thread is not None:  # else no calls were captured; ranges have the GPU's times
        phase[call < 0] = -1
    return OwnedOperations(
        steps,
        operations,
        row,
        operations.start_ns[row],
        operations.end_ns[row],
        operations.kind[row],
        operations.name[row],
        call,
        launch_ns,
        returned_ns,
        thread,
        np.searchsorted(steps.start_ns, launch_ns, side="right") - 1,
        phase,
        same_thread & (phase >= 0),
    )


def phase_of(
    steps: Steps, launch_ns: np.ndarray, thread: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(row in steps.phases or -1, whether the phase is of the launching thread) for each launch."""
    phases = steps.phases
    central = (phases.thread == steps.thread) | (phases.thread == ANY_THREAD)
    phase = open_rows(phases, np.flatnonzero(central), launch_ns)
    same = (thread == steps.thread) & (phase >= 0)
    for other in distinct(phases.thread[~central]).tolist():
        rows = np.flatnonzero(thread == other)
        own = open_rows(phases, np.flatnonzero(phases.thread == other), launch_ns[rows])
        phase[rows[own >= 0]], same[rows[own >= 0]] = own[own >= 0], True
    return phase, same


def open_rows(
    ranges: StepRanges | Ranges | ShapedOperators | CollectiveCalls,
    rows: np.ndarray,
    time_ns: np.ndarray,
) -> np.ndarray:
    """The one of `rows` that is open at each time, or -1; the rows are disjoint and sorted."""
    if not len(rows):
        return np.full(len(time_ns), -1)
    last = np.searchsorted(ranges.start_ns[rows], time_ns, side="right") - 1
    candidates = rows[last]
    return np.where((last >= 0) & (time_ns <= ranges.end_ns[candidates]), candidates, -1)


def open_innermost(
    nested: Ranges | AutogradOperators,
    time_ns: np.ndarray,
    thread: np.ndarray,
    around: np.ndarray | None = None,
) -> NDArray[np.int64]:
    """Row of the innermost one that is open on the thread at each time, or -1.

    Those of a thread are nested and sorted by start; `around` is the row around each, if known.
    """
    found = np.full(len(time_ns), -1)
    for number in distinct(np.sort(thread)).tolist():
        own, wanted = np.flatnonzero(nested.thread == number), np.flatnonzero(thread == number)
        if not len(own):
            continue
        if around is None:
            above = parents(nested.start_ns[own], nested.end_ns[own])
            outer = np.where(above >= 0, own[above], -1)
        else:
            outer = around[own]
        last = np.searchsorted(nested.start_ns[own], time_ns[wanted], side="right") - 1
        row = np.where(last >= 0, own[last], -1)
        while np.any(closed := (row >= 0) & (nested.end_ns[row] < time_ns[wanted])):
            row[closed] = outer[np.searchsorted(own, row[closed])]
        found[wanted] = row
    return found


def boundaries(steps: Steps, owned: OwnedOperations | None) -> np.ndarray:
    """The n + 1 boundaries of the n steps on the GPU's time line, in ns.

    A step ends with the last operation it owns, or where the host ended it if it owns none. A
    capture without steps begins with its first operation, if that was launched long before it ran:
    the GPU was still busy with earlier launches, which the capture does not hold. Steps behind one
    that was left out begin where that one ended.
    """
    if owned is None or not len(owned.row):
        first = steps.start_ns[0] if steps.begin_ns is None else steps.begin_ns
        return np.concatenate(([first], steps.end_ns)).astype(np.int64)
    ends = np.full(len(steps.start_ns), np.iinfo(np.int64).min)
    np.maximum.at(ends, owned.step, owned.end_ns)
    ends = np.where(ends == np.iinfo(np.int64).min, steps.end_ns, ends)
    first = steps.start_ns[0] if steps.begin_ns is None else steps.begin_ns
    if steps.name is None and owned.returned_ns[0] < owned.start_ns[0] - QUEUED_NS:
        first = owned.start_ns[0]
    return np.maximum.accumulate(np.concatenate(([first], ends))).astype(np.int64)


def coverage(owned: OwnedOperations) -> Coverage:
    kernel = owned.kernels_and_graphs
    duration_ns = owned.duration_ns[kernel]
    total = int(duration_ns.sum())
    same = int(duration_ns[owned.same_thread[kernel]].sum())
    attributed = int(duration_ns[owned.phase[kernel] >= 0].sum())
    ratio = attributed / total if total else None
    return Coverage(total, attributed, ratio, same, attributed - same)


def owning_phases(owned: OwnedOperations) -> np.ndarray:
    """(operations of the capture,): index in Trace.names of the phase that owns each, or -1."""
    name = np.full(len(owned.operations.start_ns), -1)
    has = owned.phase >= 0
    name[owned.row[has]] = owned.steps.phases.name[owned.phase[has]]
    return name


def kernels_of_ranges(owned: OwnedOperations) -> tuple[np.ndarray, np.ndarray]:
    """(nanoseconds, number) of the kernels that each of steps.ranges owns."""
    ranges = owned.steps.ranges
    gpu_ns, count = (np.zeros(len(ranges.start_ns), np.int64) for _ in range(2))
    top = np.flatnonzero(ranges.depth == 0)
    is_kernel = owned.kernels_and_graphs & ((owned.call >= 0) | (owned.phase >= 0))
    has = is_kernel & (owned.phase >= 0)
    duration_ns = owned.duration_ns
    np.add.at(gpu_ns, top[owned.phase[has]], duration_ns[has])
    np.add.at(count, top[owned.phase[has]], 1)
    own_threads = distinct(ranges.thread)
    for thread in own_threads:
        rows = np.flatnonzero((ranges.thread == thread) & (ranges.depth > 0))
        chosen = is_kernel & (owned.thread == thread)
        if thread in (owned.steps.thread, ANY_THREAD):
            chosen |= is_kernel & ~is_one_of(owned.thread, own_threads.tolist())
        order = np.flatnonzero(chosen)
        order = order[np.argsort(owned.launch_ns[order], kind="stable")]
        sums = np.concatenate(([0], np.cumsum(duration_ns[order])))
        launched = owned.launch_ns[order]
        first = np.searchsorted(launched, ranges.start_ns[rows], side="left")
        last = np.searchsorted(launched, ranges.end_ns[rows], side="right")
        gpu_ns[rows], count[rows] = sums[last] - sums[first], last - first
    return gpu_ns, count
