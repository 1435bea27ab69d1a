"""How ranges lie in one another. Called by steps, phases and sums."""

import numpy as np


def depths(start_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
    """How many of the intervals are open when each begins, for nested ones sorted by start."""
    end_ns = np.maximum(end_ns, start_ns + 1)
    ended = np.searchsorted(np.sort(end_ns), start_ns, side="right")
    return np.arange(len(start_ns)) - ended


def parents(start_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
    """The row of the interval right around each, -1 at the top; nested, in any order."""
    order = np.lexsort((-end_ns, start_ns))
    depth = depths(start_ns[order], end_ns[order])
    found = np.full(len(order), -1)
    for level in range(1, int(depth.max(initial=0)) + 1):
        above, here = np.flatnonzero(depth == level - 1), np.flatnonzero(depth == level)
        found[order[here]] = order[above[np.searchsorted(above, here) - 1]]
    return found
