"""What the readers of an nsys export share: its tables by columns.

Called by profiling.timeline.nsys_sqlite and nsys_facts.
"""

from collections import defaultdict
from itertools import count
from pathlib import Path

import numpy as np

from profiling.timeline.sqlite_columns import (
    FIRST_ROW,
    MISSING,
    Columns,
    numbers,
    opened,
    tables,
    texts,
)
from profiling.timeline.trace import LATEST_NS, Names, possible

NVTX = "NVTX_EVENTS"
OPEN = 2**63 - 1  # the end of a range that has none
PROCESS_BITS = 24  # of a globalPid, and of the thread below them in a globalTid


class Export:
    """An export: its tables, strings and names, and what was found amiss while reading."""

    def __init__(self, path: Path):
        self.path, self.tables = path, tables(path)
        if not {"id", "value"} <= self.tables.get("StringIds", set()):
            raise ValueError(f"{path}: is SQLite, but no nsys export; StringIds is missing")
        self.strings: dict[int, str] = dict(texts(path, "SELECT id, value FROM StringIds"))
        self.names = Names()
        self.warnings: list[str] = []

    def string(self, key: int) -> str:
        return str(self.strings.get(key, "(no name)"))

    def read(self, table: str, columns: dict[str, str]) -> Columns | None:
        """Start, end and other columns of the events; None where the table was not captured."""
        if table not in self.tables:
            return None
        columns = {"start": "start", "end": "end"} | columns
        nulls = {"start": FIRST_ROW, "end": OPEN}
        rows = numbers(self.path, table, columns, self.tables[table], nulls)
        if table == NVTX:
            rows["name"] = self.range_names()
        return self.sensible(table, rows)

    def sensible(self, table: str, rows: Columns) -> Columns:
        """The rows whose times make sense."""
        start, end = rows["start"], rows["end"]
        good = possible(start, end)
        if table == NVTX:
            good |= (end == OPEN) & (abs(start) < LATEST_NS)
        if bad := len(good) - int(np.count_nonzero(good)):
            self.warnings.append(f"{table}: left out {bad} rows, their times are impossible")
            rows = {name: values[good] for name, values in rows.items()}
        return rows

    def range_names(self) -> np.ndarray:
        """Of each row of NVTX_EVENTS: its text, or that of the string registered for it."""
        columns = [name for name in ("text", "textId") if name in self.tables[NVTX]]
        query = f"SELECT COALESCE({', '.join(columns)}, {MISSING}, 0) FROM {NVTX} ORDER BY rowid"
        found: dict[bytes | int, int] = defaultdict(count().__next__)
        with opened(self.path) as database:
            rows = np.fromiter((found[key] for (key,) in database.execute(query)), np.int64)
        names = (
            key.decode(errors="replace") if isinstance(key, bytes) else self.string(key)
            for key in found
        )
        return self.names.numbered(names)[rows]

    def rows(self, table: str, *columns: str) -> list[tuple]:
        """Rows of a small table; nothing where it or one of the columns is missing."""
        if not set(columns) <= self.tables.get(table, set()):
            return []
        listed = ", ".join(f'"{column}"' for column in columns)
        return texts(self.path, f'SELECT {listed} FROM "{table}"')


def process_of(global_id: np.ndarray) -> np.ndarray:
    """The system's pid in a globalPid or globalTid; -1 where there is none."""
    pid = (global_id >> PROCESS_BITS) & ((1 << PROCESS_BITS) - 1)
    return np.where(global_id == MISSING, -1, pid)


def narrow(values: np.ndarray, what: str, path: Path) -> np.ndarray:
    """As int32. Raises ValueError where a number does not fit."""
    narrowed = values.astype(np.int32)
    if not np.array_equal(narrowed, values):
        raise ValueError(f"{path}: is damaged (impossible {what}); export it again")
    return narrowed
