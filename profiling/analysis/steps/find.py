"""Find the subject of a capture: its process and GPU, the ranges that are steps, and the phases.

Called by analysis. Steps are the first of these that the capture has: what --step names; ranges
"iteration N" or "token N" (this project's are in the NVTX domain "nanogpt"); torch.profiler's
"ProfilerStep#N"; in a Kineto capture the time up to the end of each optimizer step; the most
frequent outermost range, if it recurs; the time up to the end of each optimizer's kernels; a
sequence of launches that repeats (periodic); the whole capture. Phases are the outermost ranges of
the steps' domain and thread that are no steps or micro-steps themselves, in steps or between them;
or what --phases names; or, in a Kineto capture without any, what the operators of autograd and the
optimizer show.
"""

import re
from dataclasses import replace

import numpy as np

from profiling.analysis.columns import are_outermost, distinct, name_mask, used_names
from profiling.analysis.steps.endless import NUMBER, fill_lost_ends
from profiling.analysis.steps.operators import operator_phases, optimizer_steps
from profiling.analysis.steps.periodic import periodic_steps
from profiling.analysis.steps.phases import phase_ranges, unknown_range
from profiling.analysis.steps.steps import Steps, without_ids
from profiling.analysis.steps.update_kernels import optimizer_kernel_steps
from profiling.timeline.trace import ANY_THREAD, Calls, Operations, Ranges, Trace

PROJECT_DOMAIN = "nanogpt"
KNOWN_STEPS: tuple[str, ...] = (r"iteration \d+", r"token \d+", r"ProfilerStep#\d+")
# NVTX domains in which libraries mark their own calls
LIBRARIES = re.compile(
    r"(CCCL|NCCL|NVSHMEM|TensorRT|DALI|RAPIDS|cu(BLAS|DNN|FFT|RAND|SPARSE|SOLVER|TENSOR))\w*", re.I
)
THREAD_NUMBERS = 1 << 24  # thread numbers of one process, in the low bits of Calls.thread
NEAR = 0.25  # of the median: times that are this close to it count as equal
PHASE_WORDS = re.compile(r"forward|backward|fwd|bwd|prefill|decode", re.IGNORECASE)


def find_steps(
    trace: Trace,
    step: str | None = None,
    phases: list[str] | None = None,
    device: int | None = None,
    process: int | None = None,
) -> Steps:
    """The steps of one process on one GPU, with their phases.

    Raises ValueError for a step, phase, device or process that the capture does not hold.
    """
    trace, endless = fill_lost_ends(trace)
    process, device = choose_process_and_device(trace, step, device, process)
    rows = step_rows(trace, process, step)
    if len(rows):
        steps = steps_from_ranges(trace, process, device, rows)
    else:
        steps = inferred_steps(trace, process, device, step is None)
    ranges, unclosed = phase_ranges(trace, steps, rows, phases, endless)
    has_phases = name_mask(trace.names, ranges.name, PHASE_WORDS.search).any()
    if phases is None and not has_phases and (guessed := operator_phases(trace, steps)):
        return replace(steps, ranges=guessed, phases_from="operators")
    phases_from = "ranges" if len(ranges.start_ns) else None
    lost = 0 if trace.ranges is None else int(endless[trace.ranges.process == process].sum())
    return replace(steps, ranges=ranges, phases_from=phases_from, unclosed=unclosed, endless=lost)


def inferred_steps(
    trace: Trace, process: int | None, device: int | None, by_launches: bool
) -> Steps:
    """Steps of a capture without ranges for them; only `by_launches` may there be several."""
    if by_launches:
        if steps := optimizer_steps(trace, process, device):
            return steps
        thread = main_thread(trace, process)
        for find in (optimizer_kernel_steps, periodic_steps):
            if steps := find(trace, process, device, thread):
                return steps
    return whole_capture_step(trace, process, device)


def ranges_of(trace: Trace) -> Ranges:
    return trace.ranges or Ranges.empty()


def choose_process_and_device(
    trace: Trace, step: str | None, device: int | None, process: int | None
) -> tuple[int | None, int | None]:
    """(process, device) of the report: one with steps, and of several the one with most GPU time.

    `device` and `process` limit the choice. Two processes or GPUs are never mixed into one row of
    steps. Raises ValueError where the capture does not hold what is asked for.
    """
    ranges, operations = ranges_of(trace), trace.operations
    with_steps = set(distinct(ranges.process[step_mask(trace, step)]).tolist())
    if operations is None or not len(operations.start_ns):
        if device is not None:
            raise ValueError(f"device={device}: {trace.file.name} contains no GPU activity")
        held = sorted(with_steps or processes_of(trace))
        if process is not None and process not in held:
            raise ValueError(f"process={process}: {trace.file.name} contains ranges of {held}")
        return process if process is not None else min(held, default=None), None
    used = used_gpus(trace)
    for key, wanted, column in (("device", device, 1), ("process", process, 0)):
        held = sorted({row[column] for row in used})
        used = [row for row in used if wanted in (None, row[column])]
        if not used:
            raise ValueError(f"{key}={wanted}: {trace.file.name} contains GPU activity of {held}")
    process, device, _ = max(used, key=lambda row: (row[0] in with_steps, row[2]))
    return process, device


def processes_of(trace: Trace) -> list[int]:
    """Processes with events on the host: with ranges, or else operators, or else calls."""
    tables = (trace.ranges, trace.operators, trace.calls)
    return next(
        (processes for t in tables if t and (processes := distinct(t.process).tolist())), []
    )


def used_gpus(trace: Trace) -> list[tuple[int, int, int]]:
    """(process, device, nanoseconds of its operations) for each GPU of each process."""
    operations = trace.operations or Operations.empty()
    gpus = []
    for process in distinct(operations.process).tolist():
        of_process = operations.process == process
        for device in distinct(operations.device[of_process]).tolist():
            on_device = of_process & (operations.device == device)
            took_ns = int((operations.end_ns[on_device] - operations.start_ns[on_device]).sum())
            gpus.append((process, device, took_ns))
    return gpus


def step_mask(trace: Trace, step: str | None) -> np.ndarray:
    """(ranges,) mask of those that are steps by name; ranges in the project's domain go first."""
    ranges = ranges_of(trace)
    patterns = KNOWN_STEPS
    if step is not None:
        patterns = (re.escape(step), rf"{re.escape(step)}[\s#_:]*\d+")
    for pattern in patterns:
        matches = name_mask(trace.names, ranges.name, re.compile(pattern).fullmatch)
        own = matches & (ranges.domain >= 0)
        own[own] = [trace.names[d] == PROJECT_DOMAIN for d in ranges.domain[own]]
        if matches.any():
            return own if own.any() else matches
    return np.zeros(len(ranges.start_ns), bool)


def step_rows(trace: Trace, process: int | None, step: str | None) -> np.ndarray:
    """Rows of the ranges that are steps, all on one thread and none inside another.

    Raises ValueError where no range has the name `step`.
    """
    ranges = ranges_of(trace)
    rows = np.flatnonzero(step_mask(trace, step) & (ranges.process == process))
    if not len(rows) and step is not None and trace.ranges is not None:
        present = {trace.names[row] for row in used_names(ranges.name)}
        without_numbers = {NUMBER.sub("", name) for name in present}
        raise ValueError(unknown_range(f"step={step}", step, present, without_numbers))
    if not len(rows) and not optimizer_steps(trace, process, None):
        rows = repeated_rows(ranges, np.flatnonzero(program_mask(trace, ranges, process)))
    if not len(rows):
        return rows
    threads, count = np.unique(ranges.thread[rows], return_counts=True)
    rows = rows[ranges.thread[rows] == threads[np.argmax(count)]]
    outer: np.ndarray = rows[are_outermost(ranges.start_ns[rows], ranges.end_ns[rows])]
    return outer


def program_mask(trace: Trace, ranges: Ranges, process: int | None) -> np.ndarray:
    """(ranges,) mask of those that the process's program made, and not a library that it uses."""
    named = ranges.domain >= 0
    library = np.zeros(len(named), bool)
    library[named] = name_mask(trace.names, ranges.domain[named], LIBRARIES.fullmatch)
    made: np.ndarray = (ranges.process == process) & ~library
    return made


def repeated_rows(ranges: Ranges, mine: np.ndarray) -> np.ndarray:
    """Rows of the most frequent outermost range among `mine`, if it recurs.

    The first one of a tie counts.
    """
    repeated = []
    for thread in np.unique(ranges.thread[mine]):
        rows = mine[ranges.thread[mine] == thread]
        rows = rows[are_outermost(ranges.start_ns[rows], ranges.end_ns[rows])]
        names, first, count = np.unique(ranges.name[rows], return_index=True, return_counts=True)
        for i in np.flatnonzero(count > 1).tolist():
            repeated.append((-count[i], rows[first[i]], rows[ranges.name[rows] == names[i]]))
    rows = min(repeated, key=lambda row: row[:2])[2] if repeated else np.empty(0, np.int64)
    return rows if recur(ranges.start_ns[rows], ranges.end_ns[rows]) else rows[:0]


def recur(start_ns: np.ndarray, end_ns: np.ndarray) -> bool:
    """Whether ranges of one name look like the steps of a loop, and not repeated by chance.

    Steps fill most of the time from the first to the last, or most of them begin at about equal
    distances. Two ranges, which have no rhythm, must take about equally long.
    """
    if len(start_ns) < 2:
        return False
    length_ns = end_ns - start_ns
    filled = 2 * length_ns.sum() >= end_ns[-1] - start_ns[0]
    return bool(filled or nearly_equal(np.diff(start_ns) if len(start_ns) > 2 else length_ns))


def nearly_equal(times_ns: np.ndarray) -> bool:
    """Whether most of the times are near their median."""
    median = np.median(times_ns)
    return bool(2 * np.count_nonzero(abs(times_ns - median) <= NEAR * median) > len(times_ns))


def steps_from_ranges(
    trace: Trace, process: int | None, device: int | None, rows: np.ndarray
) -> Steps:
    ranges = ranges_of(trace).rows(rows)
    first = without_ids(trace.names[ranges.name[0]])
    number = NUMBER.search(first)
    name = first[: number.start()] if number else first
    iteration = int(number.group(1)) if number else None
    thread: int | None = int(ranges.thread[0])
    if thread == ANY_THREAD:
        thread = main_thread(trace, process)
    return Steps(process, device, thread, name, iteration, ranges.start_ns, ranges.end_ns)


def main_thread(trace: Trace, process: int | None) -> int | None:
    """The process's first thread if it calls CUDA, else the one with most calls; None without any.

    The first thread is preferred because autograd's may call more often. The system gives it the
    number of its process.
    """
    calls = trace.calls or Calls.empty()
    unique, count = np.unique(calls.thread[calls.process == process], return_counts=True)
    if not len(unique):
        return None
    first = unique[(unique - (process or 0)) % THREAD_NUMBERS == 0]
    return int(first[0]) if len(first) else int(unique[np.argmax(count)])


def whole_capture_step(trace: Trace, process: int | None, device: int | None) -> Steps:
    """One step from the first event of the process to the last.

    Raises ValueError where the process has no event.
    """
    tables = [trace.calls, trace.ranges, trace.operators, trace.operations]
    starts, ends = [], []
    for table in tables:
        if table is None or not (mine := table.process == process).any():
            continue
        starts.append(int(table.start_ns[mine].min()))
        ends.append(int(table.end_ns[mine].max()))
    if not starts:
        raise ValueError(
            f"{trace.file.name}: the file contains no events; check that a window was captured"
        )
    start, end = np.array([min(starts)]), np.array([max(ends)])
    return Steps(process, device, main_thread(trace, process), None, None, start, end)
