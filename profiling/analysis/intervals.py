"""Sets of intervals on the time line, as sorted columns. Used by breakdown, idle, gpu_metrics."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Intervals:
    """Disjoint half-open intervals in nanoseconds, sorted, none of them empty."""

    start_ns: np.ndarray
    end_ns: np.ndarray

    def before(self, time_ns: np.ndarray) -> np.ndarray:
        """How many nanoseconds of the set lie before each time."""
        time_ns = np.asarray(time_ns, np.int64)
        if not len(self.start_ns):
            return np.zeros(time_ns.shape, np.int64)
        whole = np.concatenate(([0], np.cumsum(self.end_ns - self.start_ns)))
        last = np.searchsorted(self.start_ns, time_ns, side="right") - 1
        inside = np.minimum(time_ns, self.end_ns[last]) - self.start_ns[last]
        return np.where(last < 0, 0, whole[last] + inside)

    def within(self, start_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
        """How many nanoseconds of the set lie in each [start, end)."""
        return self.before(end_ns) - self.before(start_ns)

    def clipped(self, start_ns: int, end_ns: int) -> "Intervals":
        return union(np.maximum(self.start_ns, start_ns), np.minimum(self.end_ns, end_ns))

    def gaps(self, start_ns: int, end_ns: int) -> "Intervals":
        """What of [start, end) is not in the set."""
        inside = self.clipped(start_ns, end_ns)
        starts = np.concatenate(([start_ns], inside.end_ns)).astype(np.int64)
        ends = np.concatenate((inside.start_ns, [end_ns])).astype(np.int64)
        return Intervals(starts[ends > starts], ends[ends > starts])

    def joined(self, other: "Intervals") -> "Intervals":
        return union(
            np.concatenate((self.start_ns, other.start_ns)),
            np.concatenate((self.end_ns, other.end_ns)),
        )

    def common(self, other: "Intervals", start_ns: int, end_ns: int) -> "Intervals":
        """What is in both sets and in [start, end)."""
        neither = self.gaps(start_ns, end_ns).joined(other.gaps(start_ns, end_ns))
        return neither.gaps(start_ns, end_ns)

    def total_ns(self) -> int:
        return int((self.end_ns - self.start_ns).sum())


def union(start_ns: np.ndarray, end_ns: np.ndarray) -> Intervals:
    """The union of any intervals; empty ones (end <= start) count for nothing."""
    start_ns, end_ns = np.asarray(start_ns, np.int64), np.asarray(end_ns, np.int64)
    kept = end_ns > start_ns
    start_ns, end_ns = start_ns[kept], end_ns[kept]
    if not len(start_ns):
        return Intervals(start_ns, end_ns)
    if np.any(start_ns[1:] < start_ns[:-1]):
        order = np.argsort(start_ns, kind="stable")
        start_ns, end_ns = start_ns[order], end_ns[order]
    reach = np.maximum.accumulate(end_ns)
    fresh = start_ns[1:] > reach[:-1]
    first, last = np.concatenate(([True], fresh)), np.concatenate((fresh, [True]))
    return Intervals(start_ns[first], reach[last])
