"""What a capture is about: which process and GPU, which ranges are steps, which are phases.

Called by summary. Steps are, in this order: what --step names; ranges "iteration N" (this project's
are in the NVTX domain "nanogpt"); torch.profiler's "ProfilerStep#N"; in a Kineto capture what ends
with an optimizer's step; the most frequent outermost range that is repeated; the whole capture.
Phases are the outermost ranges of the steps' domain and thread that are no steps or micro-steps
themselves, in steps or between them; or what --phases names; or, in a Kineto capture without any,
what autograd's and the optimizer's operators tell.
"""

import re
from dataclasses import replace

import numpy as np

from profiling.analysis.columns import called, depths, distinct, used
from profiling.analysis.steps.operators import operator_phases, optimizer_steps
from profiling.analysis.steps.phases import phase_spans
from profiling.analysis.steps.steps import NO_SPANS, Spans, Window
from profiling.timeline.trace import ANY_THREAD, Ranges, Trace

PROJECT_DOMAIN = "nanogpt"
KNOWN_STEPS = (r"iteration \d+", r"ProfilerStep#\d+")
NUMBER = re.compile(r"[\s#_:]*(\d+)$")
PHASE_WORDS = re.compile(r"forward|backward|fwd|bwd", re.IGNORECASE)


def find_window(
    trace: Trace, step: str | None, phases: list[str] | None, device: int | None
) -> Window:
    """Raises ValueError for a step, phase or device that the capture does not hold."""
    process, device = subject(trace, step, device)
    chosen = step_rows(trace, process, step)
    if not len(chosen) and step is None and (found := optimizer_steps(trace, process)):
        window = Window(process, device, *found, None, NO_SPANS)
    elif not len(chosen):
        window = whole_capture(trace, process, device)
    else:
        window = range_window(trace, process, device, chosen)
    spans, unclosed = phase_spans(trace, window, chosen, phases)
    has_phases = called(trace.names, spans.name, PHASE_WORDS.search).any()
    if phases is None and trace.operators is not None and not has_phases:
        guessed = operator_phases(trace, process, window.thread, window.start_ns, window.end_ns)
        if guessed is not None:
            return replace(window, phases_from="operators", spans=Spans(*guessed))
    from_ranges = "ranges" if len(spans.start_ns) else None
    return replace(window, phases_from=from_ranges, spans=spans, unclosed=unclosed)


def subject(trace: Trace, step: str | None, device: int | None) -> tuple[int | None, int | None]:
    """(process, device): the one that has steps, and of several the one with most GPU time."""
    with_steps = {int(p) for p in distinct(ranges_process(trace, step_mask(trace, step)))}
    operations = trace.operations
    if operations is None or not len(operations.start_ns):
        if device is not None:
            raise ValueError(f"device={device}: {trace.file.name} holds no GPU activity")
        everything = ranges_process(trace, slice(None))
        processes = with_steps or {int(p) for p in distinct(everything)}
        return (min(processes) if processes else None), None
    found = []
    for process in distinct(operations.process).tolist():
        mine = operations.process == process
        for on in distinct(operations.device[mine]).tolist():
            of = mine & (operations.device == on)
            busy_ns = int((operations.end_ns[of] - operations.start_ns[of]).sum())
            found.append((process, on, busy_ns))
    if device is not None:
        held = sorted({d for _, d, _ in found})
        found = [row for row in found if row[1] == device]
        if not found:
            raise ValueError(f"device={device}: {trace.file.name} holds GPU activity of {held}")
    process, device, _ = max(found, key=lambda row: (row[0] in with_steps, row[2]))
    return process, device


def ranges_process(trace: Trace, chosen: np.ndarray | slice) -> np.ndarray:
    return np.empty(0, np.int64) if trace.ranges is None else trace.ranges.process[chosen]


def step_mask(trace: Trace, step: str | None) -> np.ndarray:
    """Which of the ranges are steps by name; of "iteration N" the project's own go first."""
    ranges = trace.ranges
    if ranges is None:
        return np.empty(0, bool)
    prefix = None if step is None else re.escape(step)
    patterns = KNOWN_STEPS if step is None else (prefix, rf"{prefix}[\s#_:]*\d+")
    for pattern in patterns:
        found = named(trace, ranges, pattern)
        own = found & (ranges.domain >= 0)
        own[own] = [trace.names[d] == PROJECT_DOMAIN for d in ranges.domain[own]]
        if found.any():
            return own if own.any() else found
    return np.zeros(len(ranges.start_ns), bool)


def named(trace: Trace, ranges: Ranges, pattern: str) -> np.ndarray:
    whole = re.compile(pattern)
    return called(trace.names, ranges.name, whole.fullmatch)


def step_rows(trace: Trace, process: int | None, step: str | None) -> np.ndarray:
    """Rows of the ranges that are steps: of one thread, none inside another."""
    ranges = trace.ranges
    if ranges is None:
        return np.empty(0, np.int64)
    rows = np.flatnonzero(step_mask(trace, step) & (ranges.process == process))
    if not len(rows) and step is not None:
        known = sorted({trace.names[row] for row in used(ranges.name)})[:8]
        raise ValueError(f"step={step}: no range is called so; there are {', '.join(known)}, ...")
    if not len(rows) and not optimizer_steps(trace, process):
        rows = repeated_rows(trace, ranges, process)
    if not len(rows):
        return rows
    threads, count = np.unique(ranges.thread[rows], return_counts=True)
    rows = rows[ranges.thread[rows] == threads[np.argmax(count)]]
    return rows[depths(ranges.start_ns[rows], ranges.end_ns[rows]) == 0]


def repeated_rows(trace: Trace, ranges: Ranges, process: int | None) -> np.ndarray:
    """The most frequent outermost range that comes more than once; of a tie the first."""
    found = []
    mine = ranges.process == process
    for thread in np.unique(ranges.thread[mine]):
        rows = np.flatnonzero(mine & (ranges.thread == thread))
        rows = rows[depths(ranges.start_ns[rows], ranges.end_ns[rows]) == 0]
        names, first, count = np.unique(ranges.name[rows], return_index=True, return_counts=True)
        for i in np.flatnonzero(count > 1).tolist():
            found.append((-count[i], rows[first[i]], rows[ranges.name[rows] == names[i]]))
    return min(found, key=lambda row: row[:2])[2] if found else np.empty(0, np.int64)


def range_window(trace: Trace, process: int | None, device: int | None, rows: np.ndarray) -> Window:
    ranges = trace.ranges
    first = trace.names[ranges.name[rows[0]]]
    number = NUMBER.search(first)
    thread = int(ranges.thread[rows[0]])
    if thread == ANY_THREAD:
        thread = busiest_thread(trace, process)
    return Window(
        process,
        device,
        thread,
        first[: number.start()] if number else first,
        int(number.group(1)) if number else None,
        ranges.start_ns[rows],
        ranges.end_ns[rows],
        None,
        NO_SPANS,
    )


def busiest_thread(trace: Trace, process: int | None) -> int | None:
    """The thread that calls CUDA most; None without calls."""
    if trace.calls is None:
        return None
    threads = trace.calls.thread[trace.calls.process == process]
    if not len(threads):
        return None
    unique, count = np.unique(threads, return_counts=True)
    return int(unique[np.argmax(count)])


def whole_capture(trace: Trace, process: int | None, device: int | None) -> Window:
    """One step from the first event of the process to the last."""
    tables = [trace.calls, trace.ranges, trace.operators, trace.operations]
    starts, ends = [], []
    for table in tables:
        if table is None or not (mine := table.process == process).any():
            continue
        starts.append(int(table.start_ns[mine].min()))
        ends.append(int(table.end_ns[mine].max()))
    if not starts:
        raise ValueError(f"{trace.file.name}: it holds no event; was a window captured at all?")
    start, end = np.array([min(starts)]), np.array([max(ends)])
    thread = busiest_thread(trace, process)
    return Window(process, device, thread, None, None, start, end, None, NO_SPANS)
