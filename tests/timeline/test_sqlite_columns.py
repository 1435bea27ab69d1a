"""profiling.timeline.sqlite_columns: each row once, in order, whatever the row ids are."""

import sqlite3
from pathlib import Path

import pytest

from profiling.timeline import sqlite_columns
from profiling.timeline.sqlite_columns import LAST_ROW, ROWS, numbers, row_count

PAGE = 512  # bytes, the smallest: few rows make a tree of many levels
INTERIOR = 5  # the type of its pages


def table(path: Path, rows: list[tuple[int, int | None, int | None]]) -> Path:
    """Write a database whose table has `rows`: (number of the row, a, b)."""
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA page_size = {PAGE}")
    database.execute("CREATE TABLE t (a, b)")
    database.executemany("INSERT INTO t (rowid, a, b) VALUES (?, ?, ?)", rows)
    database.commit()
    database.close()
    return path


@pytest.mark.parametrize(
    "numbered",
    [
        range(1, 2 * ROWS + 2),
        range(0, 50 * ROWS, ROWS // 3),
        [-(2**63) + 1, -5, 0, 1, ROWS, ROWS + 1, 2**62, LAST_ROW - 1, LAST_ROW],
        [],
    ],
)
def test_every_row_is_read_once(tmp_path, numbered):
    rows = [(row, i, None if i % 3 else -i) for i, row in enumerate(numbered)]
    wanted = {"a": "a", "sum": "a + b", "not there": "c"}
    found = numbers(table(tmp_path / "x.sqlite", rows), "t", wanted, {"a", "b"}, {"sum": -7})
    assert found["a"].tolist() == list(range(len(rows)))
    assert found["sum"].tolist() == [-7 if i % 3 else 0 for i in range(len(rows))]
    assert found["not there"].tolist() == [-1] * len(rows)


def test_pages_that_point_at_one_another_come_to_an_end(tmp_path, monkeypatch):
    """A file of a few megabytes that would be a table of millions of rows."""
    path = table(tmp_path / "x.sqlite", [(row, row, row) for row in range(1, 200_001)])
    with sqlite3.connect(path) as database:
        (page,) = database.execute("SELECT rootpage FROM sqlite_master").fetchone()
    content, levels = bytearray(path.read_bytes()), 0
    while content[start := (page - 1) * PAGE] == INTERIOR:
        cells = int.from_bytes(content[start + 3 : start + 5], "big")
        places = range(start + 12, start + 12 + 2 * cells, 2)
        pointers = [start + int.from_bytes(content[at : at + 2], "big") for at in places]
        first = content[pointers[0] : pointers[0] + 4]
        for at in [start + 8, *pointers]:
            content[at : at + 4] = first
        page, levels = int.from_bytes(first, "big"), levels + 1
    assert levels >= 3
    path.write_bytes(content)
    monkeypatch.setattr(sqlite_columns, "STEPS", 10**5)
    with pytest.raises(ValueError, match="damaged .interrupted"):
        numbers(path, "t", {"a": "a"}, {"a", "b"})


def test_rows_are_counted_whatever_a_column_called_rowid_holds(tmp_path):
    path = table(tmp_path / "x.sqlite", [(row, row, row) for row in (1, 2, 7)])
    database = sqlite3.connect(path)
    database.executescript("CREATE TABLE own (rowid TEXT); INSERT INTO own VALUES ('a');")
    database.close()
    assert row_count(path, ["t", "own"]) == 7
