"""Whole columns of any SQLite file as numpy arrays. Called by nsys_export and nsys_facts.

Rows are not fetched one by one: SQLite joins some thousand values of a column into one text, which
numpy parses. That is three times as fast as rows, and SQLite works on it without Python's lock, so
that two tables are read at once.
"""

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path

import numpy as np

from profiling.timeline.trace import Columns

ROWS = 20_000  # joined at once: some hundred kilobytes of text for each column
# instructions of SQLite between two calls of the progress handler; most such calls in a query
STEPS, MOST_STEPS = 10**7, 10
LONGEST_BYTES = 64 << 20  # most of one value; a file cannot make SQLite build a longer one
MISSING = -1  # stands for a number that is NULL, or whose column is not there
FIRST_ROW, LAST_ROW = -(2**63), 2**63 - 1
Row = tuple[object, ...]  # SQLite stores a value of any type in any column
COLUMN = re.compile(r"\w+")  # in a term


@contextmanager
def connect(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a read-only connection for use by one thread; it returns texts as bytes.

    Raises ValueError with one line for whatever is wrong with the file.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=0)) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_BYTES)
            database.text_factory = bytes
            yield database
    except (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeError) as error:
        raise ValueError(f"{path}: {explain(error)}") from error


def explain(error: Exception) -> str:
    reason = " ".join(str(error).split())
    if "locked" in reason or "busy" in reason:
        return "another program is writing this file; wait until that program ends, or read a copy"
    if "unable to open" in reason:
        return (
            f"cannot be opened as SQLite ({reason}); check that the file is readable and not being "
            "written"
        )
    return f"is damaged ({reason}); export it again with nsys export --type sqlite"


def tables(path: Path) -> dict[str, set[str]]:
    """The columns of each table, by its name.

    Views, virtual tables and generated columns are left out: a query of one can run for ever.
    """
    columns = {}
    with connect(path) as database:
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE%'"
        for (name,) in database.execute(query).fetchall():
            name = name.decode(errors="replace")
            quoted = name.replace('"', '""')
            rows = database.execute(f'PRAGMA table_info("{quoted}")').fetchall()
            columns[name] = {row[1].decode(errors="replace") for row in rows}
    return columns


def numbers(
    path: Path,
    table: str,
    wanted: dict[str, str],
    present: set[str],
    nulls: dict[str, int] | None = None,
    real: tuple[str, ...] = (),
    count_rows: Callable[[int], None] = lambda rows: None,
) -> Columns:
    """The columns `wanted` of a table (name -> column, product or sum of columns), in row order.

    Columns are int64, those in `real` float64. A NULL becomes the column's value in `nulls`, or
    MISSING; so does every row of a column that is not `present` in the table. `count_rows` is
    called with the number of rows of each piece that is read.
    """
    nulls = nulls or {}
    terms = {name: term for name, term in wanted.items() if set(COLUMN.findall(term)) <= present}
    joined = ", ".join(
        f"group_concat(COALESCE({quote_columns(term)}, {nulls.get(name, MISSING)}))"
        for name, term in terms.items()
    )
    types = [np.float64 if name in real else np.int64 for name in terms]
    pieces: list[list[np.ndarray]] = [[np.empty(0, dtype)] for dtype in types]
    with connect(path) as database:
        for rows, texts in pages(database, table, joined) if terms else ():
            for text, dtype, column in zip(texts, types, pieces, strict=True):
                column.append(parse_numbers(text, dtype, rows))
            count_rows(rows)
    columns = {}
    for name, column in zip(terms, pieces, strict=True):
        columns[name] = np.concatenate(column)
        column.clear()  # so that a million rows are not held twice
    length = len(next(iter(columns.values()), ()))
    for name in wanted.keys() - columns.keys():
        columns[name] = np.full(length, nulls.get(name, MISSING), np.int64)
    return columns


def row_count(path: Path, names: Iterable[str]) -> int:
    """Number of rows in these tables, too high where rows were deleted: it adds up the last row
    number of each."""
    with connect(path) as database:
        last = [database.execute(f'SELECT max(rowid) FROM "{name}"').fetchone() for name in names]
    return sum(max(0, number) for (number,) in last if isinstance(number, int))


def quote_columns(term: str) -> str:
    return COLUMN.sub(r'"\g<0>"', term)


def pages(
    database: sqlite3.Connection, table: str, joined: str
) -> Iterator[tuple[int, list[bytes]]]:
    """Yield (number of rows, one text for each column), for ROWS row numbers at a time.

    A subquery with LIMIT would do the same, but SQLite copies each row out of it. Database pages
    that point at one another would never end, so a query is stopped after MOST_STEPS calls of the
    progress handler.
    """
    following = f'SELECT min(rowid) FROM "{table}" WHERE rowid > ?'
    query = f'SELECT count(*), {joined} FROM "{table}" WHERE rowid BETWEEN ? AND ?'
    looks = count()
    database.set_progress_handler(lambda: next(looks) > MOST_STEPS, STEPS)
    last = FIRST_ROW
    while last < LAST_ROW:
        (first,) = database.execute(following, (last,)).fetchone()
        if first is None:
            return
        looks, end = count(), min(first + ROWS - 1, LAST_ROW)
        rows, *values = database.execute(query, (first, end)).fetchone()
        if first <= last or rows > ROWS:
            raise sqlite3.DatabaseError("its rows have no order")
        last = end
        yield rows, values


def parse_numbers(text: bytes, dtype: type[np.number], rows: int) -> np.ndarray:
    with suppress(ValueError, DeprecationWarning):  # the one is to become the other
        values: np.ndarray = np.fromstring(text, dtype, sep=",")
        if len(values) == rows:
            return values
    raise sqlite3.DatabaseError("text instead of numbers")


def texts(path: Path, query: str) -> list[Row]:
    """The rows of a small table, their texts decoded; undecodable bytes are replaced."""
    with connect(path) as database:
        return [
            tuple(v.decode(errors="replace") if isinstance(v, bytes) else v for v in row)
            for row in database.execute(query)
        ]
