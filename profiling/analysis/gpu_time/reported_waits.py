"""Find waits that end when the GPU reports its work done, without a call of CUDA that waits.

Called by host_activity. XLA has CUDA call a function of the host behind each program, and that
function wakes the threads that wait for the results, as in jax.block_until_ready.
"""

import re

import numpy as np

from profiling.analysis.columns import Intervals, name_mask
from profiling.timeline.trace import Calls

REPORTS = re.compile(r"(cuda|cu|hip)LaunchHostFunc(_ptsz)?(_v\d+)?")
MOST_WAKE_NS = 2_000_000  # from the GPU's end to the waiting thread; up to 1.1 ms under nsys


def reported(
    names: list[str],
    waits: Intervals,
    calls: Calls,
    busy_start_ns: np.ndarray,
    busy_end_ns: np.ndarray,
) -> Intervals:
    """The waits of a thread that begin behind such a launch and end soon after the GPU's work.

    `calls` are those of the thread, in their order; `busy_start_ns` and `busy_end_ns` are of the
    GPU's operations. The GPU's work takes most of the wait: a longer one is for something else.
    """
    none = Intervals(waits.start_ns[:0], waits.end_ns[:0])
    if not (len(calls.name) and len(busy_end_ns)):
        return none
    last = np.searchsorted(calls.start_ns, waits.start_ns) - 1
    asked = (last >= 0) & name_mask(names, calls.name[last], REPORTS.fullmatch)
    if not asked.any():  # the rest sorts all operations
        return none
    ends_ns = np.sort(busy_end_ns)
    ended = np.searchsorted(ends_ns, waits.end_ns, side="right")
    begun = np.searchsorted(np.sort(busy_start_ns), waits.end_ns)
    done_ns = ends_ns[np.maximum(ended - 1, 0)]  # all of it, if as many have begun
    wake_ns = waits.end_ns - done_ns
    mostly = (wake_ns <= MOST_WAKE_NS) & (wake_ns <= done_ns - waits.start_ns)
    found = asked & (ended > 0) & (begun == ended) & mostly
    return Intervals(waits.start_ns[found], waits.end_ns[found])
