"""What the readers of an nsys export share: its tables by columns.

Called by profiling.timeline.nsys_sqlite and nsys_facts.
"""

from collections import defaultdict
from itertools import count
from pathlib import Path

import numpy as np

from profiling.timeline.reading import Names, sensible, told_of_outlasting, within_session
from profiling.timeline.sqlite_columns import FIRST_ROW, MISSING, numbers, opened, tables, texts
from profiling.timeline.trace import Columns

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
        """Start, end and other columns of the events; None where the table was not captured.

        Of NVTX's also whether each is closed; the end of one that is not is its start.
        """
        if table not in self.tables:
            return None
        columns = {"start_ns": "start", "end_ns": "end"} | columns
        nulls = {"start_ns": FIRST_ROW, "end_ns": OPEN}
        rows = numbers(self.path, table, columns, self.tables[table], nulls)
        if table == NVTX:
            rows["name"], rows["closed"] = self.range_names(), rows["end_ns"] != OPEN
            rows["end_ns"] = np.where(rows["closed"], rows["end_ns"], rows["start_ns"])
        rows, left_out = sensible(rows)
        if left_out:
            self.warnings.append(f"{table}: left out {left_out} rows, their times are impossible")
        return rows

    def within_session(self, *tables: Columns | None) -> list[Columns | None]:
        """The tables without events that last longer than nsys says that it captured."""
        told = [row[0] for row in self.rows("ANALYSIS_DETAILS", "duration")]
        session_ns = max((ns for ns in told if isinstance(ns, int)), default=None)
        kept, left_out = within_session(tables, session_ns)
        if left_out:
            self.warnings.append(told_of_outlasting(left_out))
        return kept

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
