"""Collect the launch geometry of each kernel, and how many of its warps fit on an SM.

Called by summary. The theoretical occupancy is what registers, shared memory and the size of a
block leave room for; a grid that is too small for the GPU does not reach it.
"""

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.sum_records import Launch
from profiling.shared.hardware import MULTIPROCESSORS, WARP, resident_blocks
from profiling.timeline.trace import KERNEL, Device

MOST_LAUNCHES = 100
MOST_KEYS = 2**60  # distinct keys that fit into 64 bits


def launches(analysis: Analysis, gpu: Device | None) -> list[Launch] | None:
    """The kernels and geometries with the most time, or None if no grid was captured."""
    operations = analysis.summed.operations
    if operations is None:
        return None
    rows = analysis.steps.rows_of(operations)
    rows = rows[(operations.kind[rows] == KERNEL) & (operations.blocks[rows] > 0)]
    if not len(rows):
        return None
    geometry = (
        *(operations.name, operations.blocks, operations.threads),
        *(operations.registers, operations.shared_bytes),
    )
    group = group_numbers([column[rows] for column in geometry])
    took_ns = np.zeros(int(group.max()) + 1, np.int64)
    np.add.at(took_ns, group, (operations.end_ns - operations.start_ns)[rows])
    count, example = np.bincount(group), np.zeros(len(took_ns), np.int64)
    example[group[::-1]] = rows[::-1]
    table = []
    for number in np.argsort(-took_ns, kind="stable")[:MOST_LAUNCHES].tolist():
        name, *sizes = (int(column[example[number]]) for column in geometry)
        blocks, threads, registers, shared_bytes = sizes
        table.append(
            Launch(
                analysis.trace.names[name],
                int(count[number]),
                int(took_ns[number]),
                blocks,
                threads,
                registers if registers >= 0 else None,
                shared_bytes if shared_bytes >= 0 else None,
                *occupancy(gpu, threads, registers, shared_bytes),
            )
        )
    return table


def group_numbers(columns: list[np.ndarray]) -> np.ndarray:
    """(rows,) numbers from 0 up, the same for rows that are equal in all columns."""
    key, keys = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        values = int(column.max()) + 2  # values begin at -1
        if keys * values > MOST_KEYS:
            (key, keys), (column, values) = number_values(key), number_values(column)
        key, keys = key * values + column, keys * values
    return number_values(key)[0]


def number_values(column: np.ndarray) -> tuple[np.ndarray, int]:
    """(place of each value among the sorted distinct values, number of distinct values)."""
    values = np.unique(column)
    return np.searchsorted(values, column), len(values)


def occupancy(
    gpu: Device | None, threads: int, registers: int, shared_bytes: int
) -> tuple[float | None, str | None]:
    """(theoretical occupancy in per cent, what an SM runs out of first); None where not known."""
    capability = gpu.compute_capability if gpu else None
    if capability not in MULTIPROCESSORS or threads < 1 or min(registers, shared_bytes) < 0:
        return None, None
    fits = resident_blocks(capability, threads, registers, shared_bytes)
    least = min(fits, key=fits.__getitem__)
    warps = fits[least] * -(-threads // WARP)
    return 100 * warps / MULTIPROCESSORS[capability].warps, least
