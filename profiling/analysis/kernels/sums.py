"""Sums over the whole capture, as `nsys stats` prints them. Called by summary.

Rows are all processes' and devices'; times are integer nanoseconds, averages floats.
"""

from typing import Any

import numpy as np

from profiling.analysis.columns import distinct, parents
from profiling.analysis.kernels.families import FAMILIES
from profiling.timeline.trace import COPY, KERNEL, MEMSET, Operations, Ranges, Trace


def statistics_by_name(name: np.ndarray, duration_ns: np.ndarray) -> list[dict[str, Any]]:
    """A dict for each name: its index, count, total, avg, med, min, max, stddev; longest first.

    stddev is the sample's; of a single row it is 0, as nsys has it.
    """
    if not len(name):
        return []
    # one sort of packed integers gives the groups and, inside them, the order for the median
    shift = int(duration_ns.max()).bit_length()
    packed = np.sort(name.astype(np.int64) << shift | duration_ns)
    names, durations = packed >> shift, packed & ((1 << shift) - 1)
    first = np.concatenate(([0], np.flatnonzero(np.diff(names)) + 1))
    count = np.diff(np.append(first, len(names)))
    total = np.add.reduceat(durations, first)
    mean = total / count
    squares = np.add.reduceat((durations - np.repeat(mean, count)) ** 2, first)
    stddev = np.sqrt(squares / np.maximum(count - 1, 1))
    low, high = durations[first + (count - 1) // 2], durations[first + count // 2]
    rows = [
        {
            "name": int(names[first[i]]),
            "count": int(count[i]),
            "total_ns": int(total[i]),
            "avg_ns": float(mean[i]),
            "med_ns": (int(low[i]) + int(high[i])) / 2,
            "min_ns": int(durations[first[i]]),
            "max_ns": int(durations[first[i] + count[i] - 1]),
            "stddev_ns": float(stddev[i]),
        }
        for i in range(len(first))
    ]
    return sorted(rows, key=lambda row: -row["total_ns"])


def kernels(trace: Trace, family: np.ndarray) -> list[dict[str, Any]]:
    """`family`: the index in FAMILIES of each of the trace's names."""
    operations = trace.operations
    if operations is None:
        return []
    chosen = operations.kind == KERNEL
    duration_ns = (operations.end_ns - operations.start_ns)[chosen]
    rows = statistics_by_name(operations.name[chosen], duration_ns)
    whole = sum(row["total_ns"] for row in rows) or 1
    for row in rows:
        row["family"] = FAMILIES[family[row["name"]]]
        row["name"] = trace.names[row["name"]]
        row["percent"] = 100 * row["total_ns"] / whole
    return rows


def by_family(kernel_rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in kernel_rows:
        of = {"family": row["family"], "count": 0, "total_ns": 0, "percent": 0.0}
        of = found.setdefault(row["family"], of)
        for key in ("count", "total_ns", "percent"):
            of[key] += row[key]
    return sorted(found.values(), key=lambda row: -row["total_ns"])


def api(trace: Trace) -> list[dict[str, Any]]:
    calls = trace.calls
    if calls is None:
        return []
    rows = statistics_by_name(calls.name, calls.end_ns - calls.start_ns)
    return [{**row, "name": trace.names[row["name"]]} for row in rows]


def memops(trace: Trace) -> list[dict[str, Any]]:
    """Copies and memsets; `pageable`: how many of them used pageable host memory."""
    operations = trace.operations
    if operations is None:
        return []
    chosen = (operations.kind == COPY) | (operations.kind == MEMSET)
    name = operations.name[chosen]
    rows = statistics_by_name(name, (operations.end_ns - operations.start_ns)[chosen])
    found = []
    for row in rows:
        of = name == row.pop("name")
        sizes = operations.bytes[chosen][of]
        row = {"operation": trace.names[int(name[of][0])], **row}
        row["total_bytes"] = int(sizes.sum()) if np.all(sizes >= 0) else None
        row["pageable"] = int(operations.pageable[chosen][of].sum())
        found.append(row)
    return found


def allocations(
    trace: Trace, process: int | None, device: int | None, start_ns: int, end_ns: int
) -> dict[str, int] | None:
    """Device memory taken in [start, end]; the peak is above what was held at its beginning."""
    table = trace.allocations
    if table is None:
        return None
    chosen = (table.time_ns >= start_ns) & (table.time_ns <= end_ns)
    for column, value in ((table.process, process), (table.device, device)):
        if value is not None:
            chosen &= column == value
    sizes = table.bytes[chosen]
    return {
        "count": int((sizes > 0).sum()),
        "allocated_bytes": int(sizes[sizes > 0].sum()),
        "freed_bytes": int(-sizes[sizes < 0].sum()),
        "peak_bytes": max(0, int(np.cumsum(sizes).max())) if len(sizes) else 0,
    }


def operators(
    table: Ranges | None, names: list[str], process: int | None, start_ns: int, end_ns: int
) -> list[dict[str, Any]] | None:
    """PyTorch's operators begun in [start, end); self time is without the operators inside."""
    if table is None:
        return None
    chosen = (table.start_ns >= start_ns) & (table.start_ns < end_ns)
    if process is not None:
        chosen &= table.process == process
    rows = np.flatnonzero(chosen)
    total_ns = table.end_ns[rows] - table.start_ns[rows]
    self_ns = total_ns.copy()
    for thread in distinct(table.thread[rows]).tolist():
        of = np.flatnonzero(table.thread[rows] == thread)
        parent = parents(table.start_ns[rows][of], table.end_ns[rows][of])
        nested = parent >= 0
        np.subtract.at(self_ns, of[parent[nested]], total_ns[of[nested]])
    unique, inverse, count = np.unique(table.name[rows], return_inverse=True, return_counts=True)
    totals, selves = (np.zeros(len(unique), np.int64) for _ in range(2))
    np.add.at(totals, inverse, total_ns)
    np.add.at(selves, inverse, self_ns)
    found = [
        {"name": names[name], "count": int(n), "total_ns": int(total), "self_ns": int(own)}
        for name, n, total, own in zip(unique, count, totals, selves, strict=True)
    ]
    return sorted(found, key=lambda row: -row["self_ns"])


def operations_of(operations: Operations, process: int | None, device: int | None) -> np.ndarray:
    """Rows of one process on one device."""
    return np.flatnonzero((operations.process == process) & (operations.device == device))
