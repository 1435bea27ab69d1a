"""Measure how much longer kernels take because they run beside collectives.

Called by overlap, ranks.reduce and ranks.lending.

A collective's kernel holds multiprocessors, even while it only waits for other ranks. So a kernel
whose blocks just fill the GPU needs a second wave of blocks beside it. A kernel is compared with
launches of the same kernel, on the same grid and in the same phase, that ran beside no collective.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profiling.analysis.columns import first_to_end
from profiling.analysis.gpu_time.attribution import OwnedOperations
from profiling.analysis.gpu_work.launches import group_numbers

ENOUGH = 3  # launches beside no collective that it takes to know how long one is


@dataclass(frozen=True)
class Launches:
    """Kernels, and the collectives that run beside them.

    `kind` and `duration_ns` have an entry for each kernel. `launch`, `collective` and `both_ns`
    have one for each pair of a kernel and a collective that run at the same time.
    """

    kind: np.ndarray  # numbers from 0 up; kernels of one kind should take equally long
    duration_ns: np.ndarray
    launch: np.ndarray  # row of the kernel
    collective: np.ndarray  # number of the collective
    both_ns: np.ndarray  # how long the two run at the same time
    collectives: int  # number of collectives

    @cached_property
    def beside_ns(self) -> np.ndarray:
        return np.bincount(self.launch, self.both_ns, len(self.kind))

    def select(self, chosen: np.ndarray) -> "Launches":
        """The kernels chosen by a mask, in columns of half the size (32 bits)."""
        pair, place = chosen[self.launch], np.cumsum(chosen) - 1
        return Launches(
            self.kind[chosen].astype(np.int32),
            self.duration_ns[chosen].astype(np.float32),
            place[self.launch[pair]].astype(np.int32),
            self.collective[pair].astype(np.int32),
            self.both_ns[pair].astype(np.float32),
            self.collectives,
        )


@dataclass(frozen=True)
class KernelSlowdown:
    """Extra time of kernels that ran beside collectives, in float64 nanoseconds."""

    kernel_ns: np.ndarray  # for each kernel; below 0 where one of a slowed kind was faster
    collective_ns: np.ndarray  # for each collective: how much it slowed all kernels beside it


def measure_slowdown(launches: Launches, alone_ns: np.ndarray) -> KernelSlowdown:
    """The slowdown of the kernels, from what each kind takes alone.

    `alone_ns` is the duration of a launch of each kind beside no collective; a kind with nan counts
    as not slowed.

    Noise has both signs: it cancels within a kind of kernels and within a collective, and only
    what is left counts.
    """
    kind, launch, beside_ns = launches.kind, launches.launch, launches.beside_ns
    longer_ns = np.nan_to_num(launches.duration_ns - alone_ns[kind])
    longer_ns = np.clip(longer_ns, -beside_ns, beside_ns)
    longer_ns[np.bincount(kind, longer_ns, len(alone_ns))[kind] <= 0] = 0.0
    shares = longer_ns[launch] * launches.both_ns / np.maximum(beside_ns[launch], 1)
    of_collectives = np.bincount(launches.collective, shares, launches.collectives)
    return KernelSlowdown(longer_ns, np.maximum(of_collectives, 0.0))


def launches_of(
    owned: OwnedOperations, rows: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray
) -> Launches:
    """The kernels at `rows` of `owned`, and the collectives that run from start to end."""
    beside = pairs(owned.start_ns[rows], owned.end_ns[rows], start_ns, end_ns)
    return Launches(kinds(owned, rows), owned.duration_ns[rows], *beside, len(start_ns))


def pairs(
    kernel_start_ns: np.ndarray,
    kernel_end_ns: np.ndarray,
    start_ns: np.ndarray,
    end_ns: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(kernel, collective, ns that both run) for all that run at the same time.

    Where collectives run at the same time, the first to end counts.
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


def kinds(owned: OwnedOperations, rows: np.ndarray) -> np.ndarray:
    """(launches,) numbers from 0 up, equal for launches that should take equally long."""
    if not len(rows):
        return np.empty(0, np.int64)
    geometry = (owned.operations.blocks, owned.operations.threads)
    phase = np.append(owned.steps.phases.name, -1)[owned.phase[rows]]
    return group_numbers(
        [owned.name[rows], phase, *(column[owned.row[rows]] for column in geometry)]
    )


def alone_ns(launches: Launches) -> np.ndarray:
    """(kinds,) median duration of the launches beside no collective; nan where they are too few."""
    alone = launches.beside_ns == 0
    count = int(launches.kind.max(initial=-1)) + 1
    return medians(launches.duration_ns[alone], launches.kind[alone], count, ENOUGH)


def medians(values: np.ndarray, group: np.ndarray, groups: int, least: int) -> np.ndarray:
    """(groups,) medians as float64; nan where a group has fewer values than `least`."""
    ordered = np.append(values[np.lexsort((values, group))], 0)
    count = np.bincount(group, minlength=groups)
    first = np.cumsum(count) - count
    low, high = (
        ordered[np.minimum(first + at, len(values))] for at in ((count - 1) // 2, count // 2)
    )
    return np.where(count >= least, (low + high) / 2, np.nan)
