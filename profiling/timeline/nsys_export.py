"""Tables of an nsys export as columns, for the modules that read one.

Called by profiling.timeline.nsys_sqlite and nsys_facts.
"""

from collections import defaultdict
from functools import cached_property
from itertools import count
from pathlib import Path

import numpy as np

from profiling.timeline.personal import working_folder
from profiling.timeline.reading import (
    Names,
    drop_impossible_times,
    outlasting_warning,
    within_session,
)
from profiling.timeline.share_read import RowsRead
from profiling.timeline.sqlite_columns import (
    FIRST_ROW,
    MISSING,
    Row,
    connect,
    numbers,
    row_count,
    tables,
    texts,
)
from profiling.timeline.trace import Columns

NVTX = "NVTX_EVENTS"
ACTIVITY = "CUPTI_ACTIVITY_KIND_"
LONG_TABLES = {NVTX, "OSRT_API", "GPU_METRICS"}  # those that take time to read
LONG_TABLES |= {f"{ACTIVITY}{kind}" for kind in ("RUNTIME", "KERNEL", "MEMCPY", "MEMSET")}
OPEN = 2**63 - 1  # stands for the end of a range that was not closed
PROCESS_BITS = 24  # width of the pid in a globalPid, and of the thread's number below it


class Export:
    """An export: its tables, strings and names, and what was found amiss while reading."""

    def __init__(self, path: Path):
        self.path, self.tables = path, tables(path)
        if not {"id", "value"} <= self.tables.get("StringIds", set()):
            raise ValueError(
                f"{path}: is SQLite, but not an nsys export; the table StringIds is missing"
            )
        strings = texts(path, "SELECT id, value FROM StringIds")
        self.strings = {key: value for key, value in strings}
        self.names = Names()
        self.rows_read = RowsRead(row_count(path, LONG_TABLES & self.tables.keys()))
        self.warnings: list[str] = []

    @cached_property
    def working_folder(self) -> str:
        """The folder in which the traced program ran; no text if that is not known."""
        return working_folder(self.rows("META_DATA_CAPTURE", "name", "value"))

    def string(self, key: int) -> str:
        return str(self.strings.get(key, "(no name)"))

    def read(self, table: str, columns: dict[str, str]) -> Columns | None:
        """Start, end and other `columns` of a table of events, or None if it was not captured.

        The NVTX table also gets `name` and `closed`; an event that is not closed ends at its start.
        """
        if table not in self.tables:
            return None
        columns = {"start_ns": "start", "end_ns": "end"} | columns
        nulls = {"start_ns": FIRST_ROW, "end_ns": OPEN}
        rows = self.numbers(table, columns, nulls)
        if table == NVTX:
            rows["name"], rows["closed"] = self.range_names(), rows["end_ns"] != OPEN
            rows["end_ns"] = np.where(rows["closed"], rows["end_ns"], rows["start_ns"])
        rows, left_out = drop_impossible_times(rows)
        if left_out:
            self.warnings.append(f"{table}: left out {left_out} rows with impossible times")
        return rows

    def numbers(
        self, table: str, columns: dict[str, str], nulls: dict[str, int], real: tuple[str, ...] = ()
    ) -> Columns:
        """The columns as `sqlite_columns.numbers` reads them; their rows are counted."""
        present, count = self.tables[table], self.rows_read.add
        return numbers(self.path, table, columns, present, nulls, real, count)

    def within_session(self, *tables: Columns | None) -> list[Columns | None]:
        """The tables without events that last longer than the duration that nsys recorded."""
        durations = [row[0] for row in self.rows("ANALYSIS_DETAILS", "duration")]
        session_ns = max((ns for ns in durations if isinstance(ns, int)), default=None)
        kept, left_out = within_session(tables, session_ns)
        if left_out:
            self.warnings.append(outlasting_warning(left_out))
        return kept

    def range_names(self) -> np.ndarray:
        """Name of each row of NVTX_EVENTS: its own text, or the string registered for it."""
        columns = [name for name in ("text", "textId") if name in self.tables[NVTX]]
        query = f"SELECT COALESCE({', '.join(columns)}, {MISSING}, 0) FROM {NVTX} ORDER BY rowid"
        keys: dict[bytes | int, int] = defaultdict(count().__next__)
        with connect(self.path) as database:
            rows = np.fromiter((keys[key] for (key,) in database.execute(query)), np.int64)
        names = (
            key.decode(errors="replace") if isinstance(key, bytes) else self.string(key)
            for key in keys
        )
        return self.names.numbers_of(names)[rows]

    def rows(self, table: str, *columns: str) -> list[Row]:
        """Rows of a small table; none where the table or one of the columns is missing."""
        if not set(columns) <= self.tables.get(table, set()):
            return []
        terms = ", ".join(f'"{column}"' for column in columns)
        return texts(self.path, f'SELECT {terms} FROM "{table}"')


def process_of(global_id: np.ndarray) -> np.ndarray:
    """The system's pid in a globalPid or globalTid; -1 where there is none."""
    pid = (global_id >> PROCESS_BITS) & ((1 << PROCESS_BITS) - 1)
    return np.where(global_id == MISSING, -1, pid)
