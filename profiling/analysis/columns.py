"""Operations on columns of numbers: distinct values, nested ranges, sets of time intervals."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from profiling.timeline.reading import in_order


def distinct(column: np.ndarray) -> np.ndarray:
    """The sorted distinct values of a column that has long runs of equal ones."""
    if not len(column):
        return column
    return np.unique(column[np.concatenate(([True], column[1:] != column[:-1]))])


def used_names(name: np.ndarray) -> list[int]:
    """The indices of names that occur in the column, ascending."""
    return np.flatnonzero(np.bincount(name)).tolist()


def name_mask(
    names: list[str], name: np.ndarray, wanted: Callable[[str], object]
) -> NDArray[np.bool_]:
    """Mask of the rows whose name is wanted; `name` is a column of indices in `names`.

    `wanted` is called once for each distinct name, not for each row.
    """
    is_wanted = np.zeros(len(names) + 1, bool)
    is_wanted[[row for row in used_names(name) if wanted(names[row])]] = True
    return np.take(is_wanted, name)


def is_one_of(column: np.ndarray, few: Iterable[int]) -> NDArray[np.bool_]:
    """Mask of the rows with one of a few values; np.isin makes several passes over all rows."""
    mask = np.zeros(len(column), bool)
    for value in few:
        mask |= column == value
    return mask


def ascending(column: np.ndarray) -> np.ndarray:
    """The column sorted; most columns of times are, which takes less time to see."""
    return column if in_order(column) else np.sort(column)


def concatenate_columns(columns: list[np.ndarray]) -> np.ndarray:
    """The columns one after the other, or an empty int64 column without any."""
    return np.concatenate(columns) if columns else np.empty(0, np.int64)


def depths(start_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
    """Number of other intervals that are open when each one begins.

    The intervals are nested and sorted by start.
    """
    end_ns = np.maximum(end_ns, start_ns + 1)
    ended = np.searchsorted(ascending(end_ns), start_ns, side="right")
    return np.arange(len(start_ns)) - ended


def are_outermost(start_ns: np.ndarray, end_ns: np.ndarray) -> NDArray[np.bool_]:
    """Mask of the intervals that no other one contains.

    The intervals are nested and sorted by start.
    """
    reach = np.maximum.accumulate(np.maximum(end_ns, start_ns + 1))
    return np.append(True, start_ns[1:] >= reach[:-1])[: len(start_ns)]


def parents(start_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
    """Row of the innermost interval that contains each one, -1 at the top level.

    The intervals are nested, in any order.
    """
    order = np.lexsort((-end_ns, start_ns))
    depth = depths(start_ns[order], end_ns[order])
    parent = np.full(len(order), -1)
    for level in range(1, int(depth.max(initial=0)) + 1):
        above, here = np.flatnonzero(depth == level - 1), np.flatnonzero(depth == level)
        parent[order[here]] = order[above[np.searchsorted(above, here) - 1]]
    return parent


@dataclass(frozen=True)
class Intervals:
    """Half-open intervals in nanoseconds, sorted, none of them empty, none touching another."""

    start_ns: np.ndarray
    end_ns: np.ndarray

    @cached_property
    def until_ns(self) -> np.ndarray:
        """(n + 1,): total length of the intervals before each one; the last entry is of all."""
        return np.concatenate(([0], np.cumsum(self.end_ns - self.start_ns)))

    def ns_before(self, time_ns: np.ndarray) -> NDArray[np.int64]:
        """Nanoseconds of the set that lie before each time."""
        time_ns = np.asarray(time_ns, np.int64)
        if not len(self.start_ns):
            return np.zeros(time_ns.shape, np.int64)
        last = np.searchsorted(self.start_ns, time_ns, side="right") - 1
        inside = np.minimum(time_ns, self.end_ns[last]) - self.start_ns[last]
        return np.where(last < 0, 0, self.until_ns[last] + inside)

    def ns_within(self, start_ns: np.ndarray, end_ns: np.ndarray) -> NDArray[np.int64]:
        """Nanoseconds of the set that lie in each [start, end)."""
        return self.ns_before(end_ns) - self.ns_before(start_ns)

    def clip(self, start_ns: int, end_ns: int) -> "Intervals":
        """The part of the set in [start, end); only the two outer intervals change."""
        if start_ns >= end_ns:
            return Intervals(self.start_ns[:0], self.end_ns[:0])
        first = np.searchsorted(self.end_ns, start_ns, side="right")
        behind = np.searchsorted(self.start_ns, end_ns, side="left")
        starts, ends = self.start_ns[first:behind].copy(), self.end_ns[first:behind].copy()
        starts[:1], ends[-1:] = np.maximum(starts[:1], start_ns), np.minimum(ends[-1:], end_ns)
        return Intervals(starts, ends)

    def gaps(self, start_ns: int, end_ns: int, longer_than_ns: int = 0) -> "Intervals":
        """The parts of [start, end) that are not in the set, and longer than `longer_than_ns`."""
        inside = self.clip(start_ns, end_ns)
        starts = np.concatenate(([start_ns], inside.end_ns), dtype=np.int64)
        ends = np.concatenate((inside.start_ns, [end_ns]), dtype=np.int64)
        real = ends - starts > longer_than_ns
        return Intervals(starts[real], ends[real])

    def union(self, other: "Intervals") -> "Intervals":
        if not len(self.start_ns) or not len(other.start_ns):  # most often: nothing to merge
            return self if len(self.start_ns) else other
        return union(
            np.concatenate((self.start_ns, other.start_ns)),
            np.concatenate((self.end_ns, other.end_ns)),
        )

    def intersection(self, other: "Intervals", start_ns: int, end_ns: int) -> "Intervals":
        """The part of [start, end) that is in both sets."""
        neither = self.gaps(start_ns, end_ns).union(other.gaps(start_ns, end_ns))
        return neither.gaps(start_ns, end_ns)

    def total_ns(self) -> int:
        return int((self.end_ns - self.start_ns).sum())


def union(start_ns: np.ndarray, end_ns: np.ndarray, apart_ns: int = 0) -> Intervals:
    """The union of any intervals, in any order; empty ones (end <= start) are dropped.

    Those that are no more than `apart_ns` apart become one.
    """
    start_ns, end_ns = np.asarray(start_ns, np.int64), np.asarray(end_ns, np.int64)
    kept = end_ns > start_ns
    if not np.all(kept):
        start_ns, end_ns = start_ns[kept], end_ns[kept]
    if not len(start_ns):
        return Intervals(start_ns, end_ns)
    if not in_order(start_ns):
        order = np.argsort(start_ns, kind="stable")
        start_ns, end_ns = start_ns[order], end_ns[order]
    reach = np.maximum.accumulate(end_ns)
    fresh = start_ns[1:] - reach[:-1] > apart_ns
    first, last = np.concatenate(([True], fresh)), np.concatenate((fresh, [True]))
    return Intervals(start_ns[first], reach[last])


def first_to_end(start_ns: np.ndarray, end_ns: np.ndarray, time_ns: np.ndarray) -> np.ndarray:
    """Row of the interval that ends first among those open at each time, or -1 if none is open."""
    by_end, first = np.argsort(end_ns, kind="stable"), np.full(len(time_ns), -1)
    place = np.searchsorted(end_ns[by_end], time_ns, side="right")
    begun = np.searchsorted(np.sort(start_ns), time_ns, side="right")
    rows = np.flatnonzero(begun > place)
    while len(rows):
        interval = by_end[place[rows]]
        is_open = start_ns[interval] <= time_ns[rows]
        first[rows[is_open]] = interval[is_open]
        rows = rows[~is_open]
        place[rows] += 1
    return first
