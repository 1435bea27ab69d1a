"""Whole columns of a SQLite file as numpy arrays, whatever the file. Called by nsys_sqlite.

Rows are not fetched one by one: SQLite joins some thousand values of a column into one text, which
numpy reads. That is three times as fast as rows, and SQLite works on it without Python's lock, so
that two tables are read at once.
"""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path

import numpy as np

from profiling.timeline.trace import Columns

ROWS = 20_000  # joined at once: some hundred kilobytes of text for each column
STEPS, MOST_STEPS = 10**7, 10  # of SQLite's program, between two looks; looks at one query
LONGEST_BYTES = 64 << 20  # of one value; a file cannot make SQLite build a longer one
MISSING = -1  # where a number is NULL, or its column is not there
FIRST_ROW, LAST_ROW = -(2**63), 2**63 - 1
COLUMN = re.compile(r"\w+")  # in a term


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that only reads, for any one thread; texts come as bytes.

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
    said = " ".join(str(error).split())
    if "locked" in said or "busy" in said:
        return "another program is writing it; wait for it to end, or read a copy"
    if "unable to open" in said:
        return f"cannot be opened as SQLite ({said}); is it readable, and not being written?"
    return f"is damaged ({said}); export it again with nsys export --type sqlite"


def tables(path: Path) -> dict[str, set[str]]:
    """table -> its columns. No views and virtual or generated things: they can run for ever."""
    found = {}
    with opened(path) as database:
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE%'"
        for (name,) in database.execute(query).fetchall():
            name = name.decode(errors="replace")
            quoted = name.replace('"', '""')
            rows = database.execute(f'PRAGMA table_info("{quoted}")').fetchall()
            found[name] = {row[1].decode(errors="replace") for row in rows}
    return found


def numbers(
    path: Path,
    table: str,
    wanted: dict[str, str],
    present: set[str],
    nulls: dict[str, int] | None = None,
    real: tuple[str, ...] = (),
) -> Columns:
    """The columns `wanted` of a table (name -> column, product or sum of columns), row by row.

    int64, but float64 for those in `real`. A NULL is what `nulls` has for it, else MISSING, and so
    is a column that is not among those `present`.
    """
    nulls = nulls or {}
    terms = {name: term for name, term in wanted.items() if set(COLUMN.findall(term)) <= present}
    joined = ", ".join(
        f"group_concat(COALESCE({quoted(term)}, {nulls.get(name, MISSING)}))"
        for name, term in terms.items()
    )
    types = [np.float64 if name in real else np.int64 for name in terms]
    pieces: list[list[np.ndarray]] = [[np.empty(0, dtype)] for dtype in types]
    with opened(path) as database:
        for rows, texts in pages(database, table, joined) if terms else ():
            for text, dtype, column in zip(texts, types, pieces, strict=True):
                column.append(parsed(text, dtype, rows))
    found = {}
    for name, column in zip(terms, pieces, strict=True):
        found[name] = np.concatenate(column)
        column.clear()  # a million rows are not held twice
    length = len(next(iter(found.values()), ()))
    for name in wanted.keys() - found.keys():
        found[name] = np.full(length, nulls.get(name, MISSING), np.int64)
    return found


def quoted(term: str) -> str:
    return COLUMN.sub(r'"\g<0>"', term)


def pages(
    database: sqlite3.Connection, table: str, joined: str
) -> Iterator[tuple[int, list[bytes]]]:
    """(number of rows, a text for each column), ROWS numbers of rows at a time.

    A subquery with LIMIT would say the same, but SQLite copies each row out of that. So that
    pages that point at one another come to an end, no query takes more than MOST_STEPS looks.
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
        rows, *found = database.execute(query, (first, end)).fetchone()
        if first <= last or rows > ROWS:
            raise sqlite3.DatabaseError("its rows have no order")
        last = end
        yield rows, found


def parsed(text: bytes, dtype: type[np.number], rows: int) -> np.ndarray:
    with suppress(ValueError, DeprecationWarning):  # the one is to become the other
        values: np.ndarray = np.fromstring(text, dtype, sep=",")
        if len(values) == rows:
            return values
    raise sqlite3.DatabaseError("text where numbers belong")


def texts(path: Path, query: str) -> list[tuple]:
    """The rows of a small table, their texts decoded as well as it goes."""
    with opened(path) as database:
        return [
            tuple(v.decode(errors="replace") if isinstance(v, bytes) else v for v in row)
            for row in database.execute(query)
        ]
