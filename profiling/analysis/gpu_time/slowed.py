"""How much longer kernels take because they run beside collectives.

Called by overlap and ranks.reduce.

A collective's kernel holds multiprocessors, also while it does nothing but wait for other ranks. So
a kernel whose blocks just fill the GPU takes a second round beside it. A kernel is compared with
launches of the same kernel, on the same grid and in the same phase, that ran beside no collective.
"""

from dataclasses import dataclass

import numpy as np

from profiling.analysis.columns import first_to_end
from profiling.analysis.gpu_time.attribution import Owned
from profiling.analysis.kernels.launches import alike

ENOUGH = 3  # launches beside no collective, to know how long one takes


@dataclass(frozen=True)
class Slowed:
    """float64 nanoseconds."""

    kernel_ns: np.ndarray  # of each kernel; less than 0 where one of a slowed kind was faster
    collective_ns: np.ndarray  # of each collective: by how much it slowed all kernels beside it


def slowed(owned: Owned, rows: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray) -> Slowed:
    """Of the kernels at `rows` of `owned` by collectives of these times.

    A kernel of which too few launches ran beside none counts as not slowed. Noise has both signs:
    it cancels within a kind of kernels and within a collective, and only what is left counts.
    """
    kernel, collective, both_ns = pairs(owned.start_ns[rows], owned.end_ns[rows], start_ns, end_ns)
    beside_ns = np.bincount(kernel, both_ns, len(rows))
    kind = kinds(owned, rows)
    longer_ns = owned.duration_ns[rows] - alone_ns(owned.duration_ns[rows], kind, beside_ns == 0)
    longer_ns = np.clip(np.nan_to_num(longer_ns), -beside_ns, beside_ns)
    longer_ns[np.bincount(kind, longer_ns, len(rows))[kind] <= 0] = 0.0
    shares = longer_ns[kernel] * both_ns / np.maximum(beside_ns[kernel], 1)
    return Slowed(longer_ns, np.maximum(np.bincount(collective, shares, len(start_ns)), 0.0))


def pairs(
    kernel_start_ns: np.ndarray,
    kernel_end_ns: np.ndarray,
    start_ns: np.ndarray,
    end_ns: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(kernel, collective, for how long they run beside each other) of all that do.

    Of collectives that run at one time the first to end counts.
    """
    edges = np.unique(np.concatenate((start_ns, end_ns)))
    begin, until = edges[:-1], edges[1:]
    owner = first_to_end(start_ns, end_ns, begin)
    begin, until, owner = (column[owner >= 0] for column in (begin, until, owner))
    first = np.searchsorted(until, kernel_start_ns, side="right")
    behind = np.searchsorted(begin, kernel_end_ns, side="left")
    count = np.maximum(behind - first, 0)
    kernel = np.repeat(np.arange(len(count)), count)
    part = np.arange(len(kernel)) - np.repeat(np.cumsum(count) - count - first, count)
    both_ns = np.minimum(kernel_end_ns[kernel], until[part])
    both_ns -= np.maximum(kernel_start_ns[kernel], begin[part])
    return kernel, owner[part], both_ns


def kinds(owned: Owned, rows: np.ndarray) -> np.ndarray:
    """Numbers from 0 up, the same for launches that should take equally long."""
    if not len(rows):
        return np.empty(0, np.int64)
    geometry = (owned.operations.blocks, owned.operations.threads)
    phase = np.append(owned.steps.phases.name, -1)[owned.phase[rows]]
    return alike([owned.name[rows], phase, *(column[owned.row[rows]] for column in geometry)])


def alone_ns(duration_ns: np.ndarray, kind: np.ndarray, alone: np.ndarray) -> np.ndarray:
    """Of each row the median of its kind, of the rows that are `alone`; nan: too few of them."""
    order = np.flatnonzero(alone)
    order = order[np.lexsort((duration_ns[order], kind[order]))]
    count = np.bincount(kind[order], minlength=int(kind.max(initial=-1)) + 1)
    first = np.cumsum(count) - count
    sorted_ns = np.append(duration_ns[order], 0)
    low, high = (
        sorted_ns[np.minimum(first + at, len(order))] for at in ((count - 1) // 2, count // 2)
    )
    return np.where(count >= ENOUGH, (low + high) / 2, np.nan)[kind]
