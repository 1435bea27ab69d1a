"""Which step, phase and range each GPU operation belongs to. Called by summary.

An operation belongs to its launch's time. A range of a thread owns what that thread launches while
it is open. What is launched by a thread that has no phase open at that time belongs, by process
and time, to the phase that is open on the thread with the steps: autograd launches the backward
pass from a thread of its own. The same goes for ranges that no thread owns, and a CUDA graph's
operations all belong to the one call that launched it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from profiling.analysis.columns import distinct
from profiling.analysis.steps.steps import Spans, Window
from profiling.timeline.trace import ANY_THREAD, GRAPH, KERNEL, Trace


@dataclass(frozen=True)
class Owned:
    """The operations of the window's process and device that belong to its steps, by start."""

    row: np.ndarray  # in Trace.operations
    start_ns: np.ndarray
    end_ns: np.ndarray
    kind: np.ndarray
    name: np.ndarray
    call: np.ndarray  # -1: unknown
    launch_ns: np.ndarray  # begin of the launching call; the operation's own where that is unknown
    thread: np.ndarray  # that launched; -1: unknown
    step: np.ndarray  # which step
    phase: np.ndarray  # row in window.phases(), -1: none
    same_thread: np.ndarray  # bool: the phase's thread launched it


def attribute(trace: Trace, window: Window) -> Owned | None:
    """None where no GPU activity was captured."""
    operations, calls = trace.operations, trace.calls
    if operations is None:
        return None
    row = np.flatnonzero(
        (operations.process == window.process) & (operations.device == window.device)
    )
    call = operations.call[row]
    known = call >= 0
    launch_ns = operations.start_ns[row].copy()
    thread = np.full(len(row), -1, np.int64)
    if calls is not None:
        launch_ns[known] = calls.start_ns[call[known]]
        thread[known] = calls.thread[call[known]]
    else:
        call = np.full(len(row), -1)
    chosen = (launch_ns >= window.start_ns[0]) & (launch_ns <= window.host_end_ns())
    row, call, launch_ns, thread = (c[chosen] for c in (row, call, launch_ns, thread))
    phase, same_thread = phase_of(window, launch_ns, thread)
    phase[call < 0] = -1
    return Owned(
        row,
        operations.start_ns[row],
        operations.end_ns[row],
        operations.kind[row],
        operations.name[row],
        call,
        launch_ns,
        thread,
        np.searchsorted(window.start_ns, launch_ns, side="right") - 1,
        phase,
        same_thread & (phase >= 0),
    )


def phase_of(
    window: Window, launch_ns: np.ndarray, thread: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(row in window.phases() or -1, whether its thread is the launching one) of each launch."""
    phases = window.phases()
    central = (phases.thread == window.thread) | (phases.thread == ANY_THREAD)
    found = covering(phases, np.flatnonzero(central), launch_ns)
    same = (thread == window.thread) & (found >= 0)
    for other in distinct(phases.thread[~central]).tolist():
        of = np.flatnonzero(thread == other)
        own = covering(phases, np.flatnonzero(phases.thread == other), launch_ns[of])
        found[of[own >= 0]], same[of[own >= 0]] = own[own >= 0], True
    return found, same


def covering(spans: Spans, rows: np.ndarray, time_ns: np.ndarray) -> np.ndarray:
    """Which of `rows`, disjoint and sorted, is open at each time; -1: none."""
    if not len(rows):
        return np.full(len(time_ns), -1)
    last = np.searchsorted(spans.start_ns[rows], time_ns, side="right") - 1
    found = rows[last]
    return np.where((last >= 0) & (time_ns <= spans.end_ns[found]), found, -1)


def boundaries(window: Window, owned: Owned | None) -> np.ndarray:
    """The n + 1 times, in ns, between the n steps as the GPU had them.

    A step ends with the last operation it owns, or where the host ended it if it owns none.
    """
    if owned is None or not len(owned.row):
        return np.concatenate((window.start_ns[:1], window.end_ns)).astype(np.int64)
    ends = np.full(len(window.start_ns), np.iinfo(np.int64).min)
    np.maximum.at(ends, owned.step, owned.end_ns)
    ends = np.where(ends == np.iinfo(np.int64).min, window.end_ns, ends)
    first = window.start_ns[0]
    return np.maximum.accumulate(np.concatenate(([first], ends))).astype(np.int64)


def coverage(owned: Owned | None) -> dict[str, Any] | None:
    """How much of the window's kernel time a phase owns."""
    if owned is None:
        return None
    kernel = (owned.kind == KERNEL) | (owned.kind == GRAPH)
    duration_ns = (owned.end_ns - owned.start_ns)[kernel]
    total = int(duration_ns.sum())
    same = int(duration_ns[owned.same_thread[kernel]].sum())
    attributed = int(duration_ns[owned.phase[kernel] >= 0].sum())
    return {
        "kernel_ns": total,
        "attributed_ns": attributed,
        "coverage": attributed / total if total else None,
        "same_thread_ns": same,
        "by_time_ns": attributed - same,
    }


def range_totals(
    names: list[str], window: Window, owned: Owned | None, end_ns: int
) -> list[dict[str, Any]]:
    """Totals of each range's name in the window: on the host, and of the kernels it owns."""
    spans = window.spans
    inside = np.flatnonzero(spans.start_ns < end_ns)
    gpu_ns, kernels = owned_by(window, owned)
    found: dict[tuple[int, int], dict[str, Any]] = {}
    keys = spans.name[inside] * 64 + np.minimum(spans.depth[inside], 63)
    for key in dict.fromkeys(keys.tolist()):
        rows = inside[keys == key]
        found[key] = {
            "name": names[key // 64],
            "depth": key % 64,
            "count": len(rows),
            "host_ms": int((spans.end_ns[rows] - spans.start_ns[rows]).sum()) / 1e6,
            "gpu_ms": None if owned is None else int(gpu_ns[rows].sum()) / 1e6,
            "kernels": None if owned is None else int(kernels[rows].sum()),
        }
    return list(found.values())


def owned_by(window: Window, owned: Owned | None) -> tuple[np.ndarray, np.ndarray]:
    """(nanoseconds, count) of the kernels of each span."""
    spans = window.spans
    gpu_ns, kernels = (np.zeros(len(spans.start_ns), np.int64) for _ in range(2))
    if owned is None:
        return gpu_ns, kernels
    top = np.flatnonzero(spans.depth == 0)
    is_kernel = ((owned.kind == KERNEL) | (owned.kind == GRAPH)) & (owned.call >= 0)
    has = is_kernel & (owned.phase >= 0)
    durations = owned.end_ns - owned.start_ns
    np.add.at(gpu_ns, top[owned.phase[has]], durations[has])
    np.add.at(kernels, top[owned.phase[has]], 1)
    own_threads = distinct(spans.thread)
    for thread in own_threads:
        rows = np.flatnonzero((spans.thread == thread) & (spans.depth > 0))
        chosen = is_kernel & (owned.thread == thread)
        if thread in (window.thread, ANY_THREAD):
            chosen |= is_kernel & ~np.isin(owned.thread, own_threads)
        order = np.flatnonzero(chosen)
        order = order[np.argsort(owned.launch_ns[order], kind="stable")]
        sums = np.concatenate(([0], np.cumsum(durations[order])))
        launched = owned.launch_ns[order]
        first = np.searchsorted(launched, spans.start_ns[rows], side="left")
        last = np.searchsorted(launched, spans.end_ns[rows], side="right")
        gpu_ns[rows], kernels[rows] = sums[last] - sums[first], last - first
    return gpu_ns, kernels
