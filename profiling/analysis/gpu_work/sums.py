"""Sum up kernels, calls, copies, operators and counters. Called by summary.

Sums over the whole capture are of all processes and devices, as `nsys stats` prints them: kernels,
families, calls (of CUDA and of the system), copies and memsets; without a first step that was left
out (Analysis.summed). The others are of the steps. Times are integer nanoseconds, averages floats.
"""

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import distinct, is_one_of, parents, used_names
from profiling.analysis.gpu_work.families import FAMILIES
from profiling.analysis.sum_records import (
    AllocationSum,
    CallSum,
    CounterMean,
    FamilySum,
    KernelSum,
    MemopSum,
    OperatorSum,
)
from profiling.timeline.trace import COPY, KERNEL, MEMSET, Calls, CounterSamples, Ranges, Trace

# count, total_ns, avg_ns, med_ns, min_ns, max_ns, stddev_ns of the rows of one name; stddev is that
# of the sample, and 0 for a single row, as in nsys
Durations = tuple[int, int, float, float, int, int, float]


def sort_by_name_and_duration(
    name: np.ndarray, duration_ns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Both columns, sorted by name and then by duration, which gives the medians."""
    shift = int(duration_ns.max()).bit_length()
    if shift + int(name.max()).bit_length() > 63:
        order = np.lexsort((duration_ns, name))
        return name[order], duration_ns[order]
    packed = np.sort(name << shift | duration_ns)  # one integer sorts sooner than two
    return packed >> shift, packed & ((1 << shift) - 1)


def durations_by_name(name: np.ndarray, duration_ns: np.ndarray) -> list[tuple[int, Durations]]:
    """(index of the name, its durations), the longest in total first."""
    if not len(name):
        return []
    names, durations = sort_by_name_and_duration(name.astype(np.int64), duration_ns)
    first = np.concatenate(([0], np.flatnonzero(np.diff(names)) + 1))
    count = np.diff(np.append(first, len(names)))
    total = np.add.reduceat(durations, first)
    mean = total / count
    squares = np.add.reduceat((durations - np.repeat(mean, count)) ** 2, first)
    stddev = np.sqrt(squares / np.maximum(count - 1, 1))
    low, high = durations[first + (count - 1) // 2], durations[first + count // 2]
    shortest, longest = durations[first], durations[first + count - 1]
    order = np.argsort(-total, kind="stable")
    columns = (count, total, mean, (low + high) / 2, shortest, longest, stddev)
    rows = zip(*(column[order].tolist() for column in columns), strict=True)
    return list(zip(names[first][order].tolist(), rows, strict=True))


def kernels(analysis: Analysis) -> list[KernelSum]:
    trace, operations = analysis.trace, analysis.summed.operations
    if operations is None:
        return []
    is_kernel = operations.kind == KERNEL
    duration_ns = (operations.end_ns - operations.start_ns)[is_kernel]
    whole = int(duration_ns.sum()) or 1
    return [
        KernelSum(trace.names[name], *row, 100 * row[1] / whole, FAMILIES[analysis.family[name]])
        for name, row in durations_by_name(operations.name[is_kernel], duration_ns)
    ]


def sum_by_family(kernels: list[KernelSum]) -> list[FamilySum]:
    sums = []
    for family in dict.fromkeys(row.family for row in kernels):
        members = [row for row in kernels if row.family == family]
        count, total_ns = sum(row.count for row in members), sum(row.total_ns for row in members)
        sums.append(FamilySum(family, count, total_ns, sum(row.percent for row in members)))
    return sorted(sums, key=lambda row: -row.total_ns)


def calls(trace: Trace) -> list[CallSum]:
    return sums_of(trace.names, trace.calls) if trace.calls is not None else []


def os_calls(trace: Trace) -> list[CallSum] | None:
    return sums_of(trace.names, trace.os_calls) if trace.os_calls is not None else None


def sums_of(names: list[str], calls: Calls) -> list[CallSum]:
    rows = durations_by_name(calls.name, calls.end_ns - calls.start_ns)
    whole = sum(row[1] for _, row in rows) or 1
    return [CallSum(names[name], *row, 100 * row[1] / whole) for name, row in rows]


def memops(trace: Trace) -> list[MemopSum]:
    """Sums of copies and memsets of each kind."""
    operations = trace.operations
    if operations is None:
        return []
    copies = operations.rows(is_one_of(operations.kind, (COPY, MEMSET)))
    sums = []
    for name, row in durations_by_name(copies.name, copies.end_ns - copies.start_ns):
        same_name = copies.rows(copies.name == name)
        sums.append(
            MemopSum(
                trace.names[name], *row, *sizes(same_name.bytes), int(same_name.pageable.sum())
            )
        )
    return sums


def sizes(
    size: np.ndarray,
) -> tuple[int | None, float | None, float | None, int | None, int | None]:
    """(total, mean, median, least, most) in bytes; None where the capture lacks one of them."""
    if np.any(size < 0):
        return (None,) * 5
    mean, median = float(size.mean()), float(np.median(size))
    return int(size.sum()), mean, median, int(size.min()), int(size.max())


def allocations(analysis: Analysis) -> AllocationSum | None:
    """Device memory allocated in the steps; the peak is above what was held at their beginning."""
    table, steps = analysis.trace.allocations, analysis.steps
    if table is None:
        return None
    chosen = (table.time_ns >= analysis.host_begin_ns) & (table.time_ns <= analysis.end_ns)
    for column, value in ((table.process, steps.process), (table.device, steps.device)):
        if value is not None:
            chosen &= column == value
    sizes = table.bytes[chosen]
    return AllocationSum(
        count=int((sizes > 0).sum()),
        allocated_bytes=int(sizes[sizes > 0].sum()),
        freed_bytes=int(-sizes[sizes < 0].sum()),
        peak_bytes=max(0, int(np.cumsum(sizes).max())) if len(sizes) else 0,
    )


def operators(analysis: Analysis) -> list[OperatorSum] | None:
    """Sums of PyTorch's operators that began in the steps, the longest self time first."""
    if (found := operators_of_steps(analysis)) is None:
        return None
    table, self_ns = found
    total_ns = table.end_ns - table.start_ns
    name, names = table.name, analysis.trace.names
    count = np.bincount(name, minlength=len(names))
    whole_ns, own_ns = np.zeros((2, len(names)), np.int64)
    np.add.at(whole_ns, name, total_ns)
    np.add.at(own_ns, name, self_ns)
    sums = [
        OperatorSum(names[number], int(count[number]), int(whole_ns[number]), int(own_ns[number]))
        for number in used_names(name)
    ]
    return sorted(sums, key=lambda row: -row.self_ns)


def operators_of_steps(analysis: Analysis) -> tuple[Ranges, np.ndarray] | None:
    """(the operators that began in the steps, the self time of each in ns), or None without any.

    Self time is without the operators inside.
    """
    table, process = analysis.trace.operators, analysis.steps.process
    if table is None:
        return None
    chosen = (table.start_ns >= analysis.host_begin_ns) & (table.start_ns < analysis.end_ns)
    if process is not None:
        chosen &= table.process == process
    table = table.rows(chosen)
    total_ns = table.end_ns - table.start_ns
    self_ns = total_ns.copy()
    for thread in distinct(table.thread).tolist():
        on_thread = np.flatnonzero(table.thread == thread)
        parent = parents(table.start_ns[on_thread], table.end_ns[on_thread])
        nested = parent >= 0
        np.subtract.at(self_ns, on_thread[parent[nested]], total_ns[on_thread[nested]])
    return table, self_ns


def counters(analysis: Analysis) -> list[CounterMean] | None:
    """Means of the hardware counters of the report's GPU in the steps; None: not captured."""
    samples, device = analysis.trace.counters, analysis.steps.device
    if samples is None:
        return None
    return [
        mean(counter, analysis) for counter in samples if device is None or counter.device == device
    ]


def mean(counter: CounterSamples, analysis: Analysis) -> CounterMean:
    """Mean of a counter over the samples in the steps, and over those while the GPU was busy."""
    inside = (counter.time_ns >= analysis.begin_ns) & (counter.time_ns <= analysis.end_ns)
    time_ns, value = counter.time_ns[inside], counter.value[inside]
    while_busy = np.zeros(len(time_ns), bool)
    if analysis.activity is not None:
        while_busy = analysis.activity.busy.ns_within(time_ns, time_ns + 1) > 0
    return CounterMean(
        counter.name,
        float(value[while_busy].mean()) if while_busy.any() else None,
        float(value.mean()) if len(value) else None,
    )
