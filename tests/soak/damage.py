"""Damage files at random, from a seed: what people bring may be cut off, foreign or hostile.

Used by `python -m tests.soak fuzz` and by the tests of damaged captures. `chance` is a
random.Random whose state decides what is done; nothing here touches the disk.
"""

import csv
import io
import json
import random
import sqlite3
from collections.abc import Callable
from typing import Any

Json = Any  # whatever json.loads returns
HOSTILE_NUMBERS = (-1, 0, 2**31, 2**62, 2**63 - 1, -(2**63), 1.5, 1e300, 1e308, 5e-324, -0.0)
# a name that would retitle a terminal, turn its reading direction, be an element or an attribute
NAME = "<zz>\x1b]0;owned\x07\u202e\x9b31m`|*[x](y)\r\n</script>\" zz='{{7*7}}'"
HOSTILE_CELLS = (
    *(*HOSTILE_NUMBERS, None, "", "text", "1,2", "nan", "\0\n", b"\xff\xfe", b"", "x" * 9999),
    NAME,
)
HOSTILE_VALUES: tuple[Json, ...] = (
    *(*HOSTILE_NUMBERS, 2**70, None, True, "", "text", "1", "\ud800", "x" * 9999, [], {}, [[[]]]),
    *({"a": {}}, float("nan"), float("inf"), NAME),
)
DEEP = b"[" * 100_000
BOMB = b"a0: &a0 [x]\n" + b"".join(
    b"a%d: &a%d [%b]\n" % (i, i, b", ".join([b"*a%d" % (i - 1)] * 9)) for i in range(1, 12)
)  # YAML
# prefixes of the names of tables that the reader of exports reads
READ: tuple[str, ...] = ("CUPTI", "NVTX", "GPU_METRICS", "ENUM_CUDA_MEMCPY", "META_DATA")
READ += (
    "StringIds",
    "DIAGNOSTIC_EVENT",
    "TARGET_INFO_GPU",
    "PROFILER_OVERHEAD",
    "ProcessStreams",
)
LEAVES = 0.1  # the chance that a whole branch of JSON is replaced, and that one is deleted


def flip_bytes(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice((1, 2, 8, 64))):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def cut_off(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def alter_export(content: bytes, change: Callable[[sqlite3.Connection], object]) -> bytes:
    """Bytes of an export after `change`, which works in memory because a disk would be slower."""
    database = sqlite3.connect(":memory:")
    database.deserialize(content)
    change(database)
    database.commit()
    return database.serialize()


def without_constraints(content: bytes, rows: int) -> bytes:
    """Copy of an export with the first `rows` of each table that is read, and no constraints.

    Any value can then be stored in any column.
    """

    def change(database: sqlite3.Connection) -> None:
        for table in tables(database):
            if table.startswith(READ):
                limit = -1 if table == "StringIds" else rows
                database.execute(f"CREATE TABLE part AS SELECT * FROM {table} LIMIT {limit}")
            database.execute(f"DROP TABLE {table}")
            if table.startswith(READ):
                database.execute(f"ALTER TABLE part RENAME TO {table}")
        database.commit()
        database.execute("VACUUM")

    return alter_export(content, change)


def tables(database: sqlite3.Connection) -> list[str]:
    rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return [name for (name,) in rows.fetchall()]


def column_of(database: sqlite3.Connection, table: str, chance: random.Random) -> str:
    name: str = chance.choice(database.execute(f"PRAGMA table_info({table})").fetchall())[1]
    return name


def change_cells(database: sqlite3.Connection, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 1, 3))):
        table = chance.choice(tables(database))
        column = column_of(database, table, chance)
        which = chance.choice(("", "WHERE rowid % 7 = 0", "WHERE rowid = 1"))
        value = chance.choice(HOSTILE_CELLS)
        database.execute(f'UPDATE {table} SET "{column}" = ? {which}', (value,))


def change_tables(database: sqlite3.Connection, chance: random.Random) -> None:
    table = chance.choice(tables(database))
    column = column_of(database, table, chance)
    queries = (
        f"DROP TABLE {table}",
        f"DELETE FROM {table}",
        f'ALTER TABLE {table} DROP COLUMN "{column}"',
        f'ALTER TABLE {table} RENAME COLUMN "{column}" TO "a ""b"',
        f'ALTER TABLE {table} RENAME TO "a \'b"',
        f"INSERT INTO {table} SELECT * FROM {table}",
        f"UPDATE {table} SET rowid = 9223372036854775807 - rowid",
        f"DELETE FROM {table} WHERE rowid > 1",
        f'UPDATE {table} SET "{column}" = random()',
        f'UPDATE {table} SET "{column}" = (SELECT "{column}" FROM {table} LIMIT 1)',
    )
    database.execute(chance.choice(queries))


def change_times(database: sqlite3.Connection, chance: random.Random) -> None:
    """Change the times in some tables, so that nothing is left, in a step, or longer than 0 ms."""
    timed = [t for t in tables(database) if t.startswith(("CUPTI", "NVTX"))]
    queries = (
        "DELETE FROM {}",
        'UPDATE {} SET "end" = start',
        'UPDATE {} SET start = 0, "end" = 0',
        'UPDATE {} SET start = start + 1000000000000, "end" = "end" + 1000000000000',
        'UPDATE {} SET "end" = start + abs(random()) / 1000000',
        "UPDATE {} SET start = abs(random()) / 4",
    )
    query = chance.choice(queries)
    for table in chance.sample(timed, chance.randint(1, len(timed))):
        try:
            database.execute(query.format(table))
        except sqlite3.OperationalError:  # it has no such columns
            continue


def change_names(database: sqlite3.Connection, chance: random.Random) -> None:
    share = chance.choice((1, 2, 5))
    database.execute(f"UPDATE StringIds SET value = ? || value WHERE id % {share} = 0", (NAME,))


def damaged_export(content: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.2:
        return chance.choice((flip_bytes, cut_off))(content, chance)
    change = chance.choice((change_cells, change_tables, change_times, change_names))
    return alter_export(content, lambda database: change(database, chance))


def damaged_value(value: Json, chance: random.Random) -> Json:
    """Replace one to three values, usually deep inside, by hostile ones, or delete them.

    Changes `value`, a dictionary or a list, in place and returns it.
    """
    for _ in range(chance.choice((1, 1, 3))):
        place = value
        if not place:
            break
        while True:
            key = chance.choice(list(place) if isinstance(place, dict) else range(len(place)))
            inner = place[key]
            if not (isinstance(inner, (dict, list)) and inner) or chance.random() < LEAVES:
                break
            place = inner
        if chance.random() < LEAVES:
            del place[key]
        else:
            place[key] = json.loads(json.dumps(hostile_value(inner, chance)))
    return value


def hostile_value(value: Json, chance: random.Random) -> Json:
    """A hostile value; half of the time one of `value`'s own type, which gets further."""
    alike = [other for other in HOSTILE_VALUES if type(other) is type(value)]
    return chance.choice(alike if alike and chance.random() < 0.5 else HOSTILE_VALUES)


def damaged_json(content: bytes, chance: random.Random) -> bytes:
    """Damage JSON, mostly in its values, else in its bytes."""
    how = chance.random()
    if how < 0.03:
        return chance.choice(
            (b"", DEEP, b'{"a":' * 50_000, content + content, b"[]", b"{}", b"null")
        )
    if how < 0.15:
        return chance.choice((flip_bytes, cut_off))(content, chance)
    return json.dumps(damaged_value(json.loads(content), chance)).encode(errors="surrogatepass")


def damaged_page(content: bytes, chance: random.Random) -> bytes:
    """Damage a CSV page of ncu: flip bytes, delete a column, or replace its header or cells."""
    how = chance.random()
    if how < 0.15:
        return chance.choice((flip_bytes, cut_off))(content, chance)
    rows = list(csv.reader(io.StringIO(content.decode())))
    column = chance.randrange(min(map(len, rows)))
    if how < 0.4:
        rows = [row[:column] + row[column + 1 :] for row in rows]
    elif how < 0.5:
        rows[0][column] = chance.choice(("", NAME, rows[0][0]))
    else:
        for row in chance.sample(rows[1:], chance.choice((1, len(rows) - 1))):
            row[column] = str(chance.choice(HOSTILE_CELLS))
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
    return text.getvalue().encode()


def damaged_run(files: dict[str, bytes], chance: random.Random) -> dict[str, bytes]:
    name = chance.choice(list(files))
    if name != "metrics.jsonl":
        return files | {name: damaged_json(files[name], chance)}
    lines = files[name].splitlines()
    for place in chance.sample(range(len(lines)), chance.choice((1, 1, 5, len(lines)))):
        lines[place] = damaged_json(lines[place], chance)
    return files | {name: b"\n".join(lines) + chance.choice((b"\n", b""))}
