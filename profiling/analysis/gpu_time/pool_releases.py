"""Find waits for the GPU that give memory back to the system. Called by host_activity and whatif.

CUDA's pools give back what was freed asynchronously, beyond their threshold, at the next
synchronisation of a stream, an event or the device (CUDA C++ Programming Guide, stream-ordered
memory allocator). The threshold is 0 unless a program sets it. Such a wait lasts long after the
GPU has done all its work.
"""

import re

import numpy as np

from profiling.analysis.columns import name_mask

FREES = re.compile(r"((cuda|hip)FreeAsync|cuMemFreeAsync)(_ptsz)?(_v\d+)?")
SYNCHRONIZES = re.compile(
    r"((cuda|hip)(Stream|Device|Event)|cu(Stream|Ctx|Event))Synchronize(_ptsz)?(_v\d+)?"
)
LEAST_RELEASE_NS = 200_000  # a host wakes within 50 us of the GPU's end


def release_begins_ns(
    names: list[str],
    name: np.ndarray,
    start_ns: np.ndarray,
    end_ns: np.ndarray,
    busy_start_ns: np.ndarray,
    busy_end_ns: np.ndarray,
) -> np.ndarray:
    """(calls,) when each call began to give memory back; its end if it gave none.

    The calls are in the order of their begin; `busy_start_ns` and `busy_end_ns` are of the GPU's
    operations, in any order.
    """
    frees = name_mask(names, name, FREES.fullmatch)
    if not frees.any():  # the rest sorts all operations
        return end_ns
    waits = np.flatnonzero(name_mask(names, name, SYNCHRONIZES.fullmatch))
    freed = np.cumsum(frees)[waits]
    begun = np.searchsorted(np.sort(busy_start_ns), end_ns[waits])
    ends_ns = np.sort(busy_end_ns)
    ended = np.searchsorted(ends_ns, end_ns[waits], side="right")
    idle = (ended > 0) & (begun == ended) & (np.diff(freed, prepend=0) > 0)
    waits, ended = waits[idle], ended[idle]
    done_ns = np.maximum(start_ns[waits], ends_ns[ended - 1])
    late = end_ns[waits] - done_ns > LEAST_RELEASE_NS
    begins_ns = end_ns.copy()
    begins_ns[waits[late]] = done_ns[late]
    return begins_ns
