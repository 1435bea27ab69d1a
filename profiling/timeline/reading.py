"""Tools of all readers of captures: numbering names, sorting and filtering rows, matching ids."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import count

import numpy as np

from profiling.timeline.trace import Columns

LATEST_NS = 4 * 10**18  # beyond, the difference of two times would not fit into 64 bits
# In a capture that does not say how long it took, the starts of its events span nearly all of it.
# An event that lasts so many times that span, and more than a minute, is not of this session.
TIMES_ALL_STARTS, A_MINUTE_NS = 10, 60 * 10**9
MOST_KEYS = 1 << 22  # widest range of keys that is looked up in a table
ID_BITS = 40  # room for a correlation id, which has 32; the rest of a key is for the process


class Names:
    """Numbers the distinct names of a capture while it is read, by first occurrence."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = defaultdict(count().__next__)

    def of_keys(self, keys: np.ndarray, name: Callable[[int], str]) -> np.ndarray:
        """The number of each key's name, which `name` returns for a key."""
        if not len(keys):
            return np.empty(0, np.int32)
        least = int(keys.min())
        width = int(keys.max()) - least + 1
        if width > MOST_KEYS:
            distinct, where = np.unique(keys, return_inverse=True)
            return self.numbers_of(map(name, distinct.tolist()))[where]
        # the keys of an export are small: a table of them takes less time than sorting
        where = keys - least
        number = np.full(width, -1, np.int32)
        number[where] = 0
        present = np.flatnonzero(number == 0)
        number[present] = self.numbers_of(map(name, (present + least).tolist()))
        return number[where]

    def numbers_of(self, names: Iterable[str]) -> np.ndarray:
        return np.fromiter(map(self.numbers.__getitem__, names), np.int32)


def capability(major: object, minor: object) -> str | None:
    """The compute capability of an NVIDIA GPU, as in "9.0"; None where the capture lacks it."""
    known = isinstance(major, int) and isinstance(minor, int) and major > 0
    return f"{major}.{minor}" if known else None


def rows_of(columns: Columns, chosen: np.ndarray) -> Columns:
    return {name: values[chosen] for name, values in columns.items()}


def drop_impossible_times(columns: Columns) -> tuple[Columns, int]:
    """(the rows whose times are possible, the number of rows left out)."""
    start_ns, end_ns = columns["start_ns"], columns["end_ns"]
    good = (start_ns <= end_ns) & (start_ns > -LATEST_NS) & (end_ns < LATEST_NS)
    left_out = len(good) - int(np.count_nonzero(good))
    return rows_of(columns, good) if left_out else columns, left_out


def within_session(
    tables: Sequence[Columns | None], session_ns: int | None
) -> tuple[list[Columns | None], int]:
    """(the tables without events that last longer than the session, the number of those events).

    `session_ns` is the duration that the capture records, or None.
    """
    filled = [table for table in tables if table is not None and len(table["start_ns"])]
    if not filled:
        return list(tables), 0
    first_ns = min(int(table["start_ns"].min()) for table in filled)
    starts_ns = max(int(table["start_ns"].max()) for table in filled) - first_ns
    if session_ns:
        most_ns = max(session_ns, starts_ns)
    else:
        most_ns = max(TIMES_ALL_STARTS * starts_ns, A_MINUTE_NS)
    kept, left_out = list[Columns | None](), 0
    for table in tables:
        if table is not None:
            good = table["end_ns"] - table["start_ns"] <= most_ns
            outlast = len(good) - int(np.count_nonzero(good))
            left_out, table = left_out + outlast, rows_of(table, good) if outlast else table
        kept.append(table)
    return kept, left_out


def outlasting_warning(left_out: int) -> str:
    what = "1 event that lasts" if left_out == 1 else f"{left_out} events that last"
    return f"left out {what} longer than the whole capture"


def sort_by_start(columns: Columns) -> Columns:
    start_ns = columns["start_ns"]
    return columns if in_order(start_ns) else rows_of(columns, np.argsort(start_ns, kind="stable"))


def in_order(values: np.ndarray) -> bool:
    return bool(np.all(values[1:] >= values[:-1]))


def join_tables(parts: list[Columns]) -> Columns:
    """One table of all the parts' rows, sorted by start.

    Takes the columns out of the parts, so that a long table is not held twice.
    """
    start_ns = np.concatenate([part["start_ns"] for part in parts])
    order = None if in_order(start_ns) else np.argsort(start_ns, kind="stable")
    table = {}
    for name in list(parts[0]):
        column = np.concatenate([part.pop(name) for part in parts])
        table[name] = column if order is None else column[order]
    return table


def first_matching(
    process: np.ndarray, number: np.ndarray, of_process: np.ndarray, of_number: np.ndarray
) -> np.ndarray:
    """First row of (of_process, of_number) that equals each (process, number); -1 without one."""
    if not len(of_number):
        return np.full(len(number), -1)
    # Rows of one process mostly follow each other: one row of each such run is enough to sort.
    runs = np.append(True, of_process[1:] != of_process[:-1])
    processes = np.array(sorted(set(of_process[runs].tolist())))
    numbers = range(max(int(of_number.min()), 0), min(int(of_number.max()) + 1, 1 << ID_BITS))
    others = joint_keys(of_process, of_number, processes, numbers)
    wanted = joint_keys(process, number, processes, numbers)
    if len(processes) * len(numbers) <= MOST_KEYS + 2 * len(others):
        # the ids of a capture follow each other: a table of them takes less time than sorting
        first = np.full(len(processes) * len(numbers) + 1, -1)
        first[others[::-1]] = np.arange(len(others))[::-1]  # so that the first row is written last
        first[-1] = -1
        return np.take(first, wanted)
    order = np.argsort(others, kind="stable")
    others = others[order]
    at = np.minimum(np.searchsorted(others, wanted), len(order) - 1)
    return np.where((wanted >= 0) & (others[at] == wanted), order[at], -1)


def joint_keys(
    process: np.ndarray, number: np.ndarray, processes: np.ndarray, numbers: range
) -> np.ndarray:
    """A key for each of the `processes` and `numbers`, from 0 up; -1 for others."""
    index = np.minimum(np.searchsorted(processes, process), len(processes) - 1)
    known = (processes[index] == process) & (number >= numbers.start) & (number < numbers.stop)
    return np.where(known, index * len(numbers) + number - numbers.start, -1)
