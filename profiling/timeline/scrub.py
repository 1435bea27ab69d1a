"""Takes the environment, folders and tokens out of a capture, so that it can be passed on.

nsys stores the environment of the traced program, and of every process above it: the shell's too,
secrets and all, whatever the program itself was given. It also lists every process and thread of
the machine; those without any recorded event are removed too. Called by profiling.verbs.scrub, and
by profiling.verbs.log for what is uploaded.
"""

import gzip
import mmap
import os
import re
import shutil
import sqlite3
import zlib
from collections.abc import Iterable, Sequence
from contextlib import closing
from io import BufferedReader
from pathlib import Path
from tempfile import TemporaryDirectory

from cli.files import check_place, resolve_link
from profiling.shared.secrets import hide_tokens, without_secret_values
from profiling.timeline.chrome_events import begin_of_events
from profiling.timeline.nsys_export import NVTX, Export
from profiling.timeline.nsys_stacks import MARK, Layout, layouts_of, numbers_alone
from profiling.timeline.opening import EVENTS, GZIP, SQLITE
from profiling.timeline.personal import NAMES, source_name, without_folders, working_folder

BLOCK_BYTES = 1 << 20
THREAD = 0xFFFFFF  # the bits of a globalTid that are not the process's
# columns that point into StringIds, where equal strings are stored once
STRING_COLUMNS = {"nameId", "textId", "jsonTextId", "demangledName", "shortName", "mangledName"}
STRING_COLUMNS |= {"contentId", "filenameId", "symbol", "module", "name"}
# parts of the names in MEMBER, in small letters: most blocks have none, and searching is slow
HINTS = ("environment", "host", '"user"', "username", "user_name", "working_dir", "display", "uuid")
# "name": "value" in JSON, where the name says that the value is who or where
MEMBER = re.compile(
    rf'("(?:[^"\\]*(?:{NAMES.pattern})[^"\\]*|(?i:host_?name|user_?name|user|host))"\s*:\s*)'
    r'"(?:[^"\\]|\\.)*"'
)


def scrub(path: Path, out: Path | None = None) -> None:
    """Writes the scrubbed capture to `out`, by default over `path`.

    Raises ValueError, with all files unchanged, where `path` is no capture or `out` cannot be
    written.
    """
    check_kind(path)
    out = resolve_link(out or path)
    check_place(out)
    try:
        with TemporaryDirectory(prefix=".scrubbed-", dir=out.parent) as folder:
            plain, packed = Path(folder) / "plain", Path(folder) / "packed"
            copy_plain(path, plain)
            scrub_plain(plain, path)
            if out.suffix == ".gz":
                with open(plain, "rb") as file, gzip.open(packed, "wb", compresslevel=6) as copy:
                    shutil.copyfileobj(file, copy, BLOCK_BYTES)
            os.replace(packed if out.suffix == ".gz" else plain, out)
    except (OSError, EOFError, zlib.error, sqlite3.Error, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise ValueError(f"{path}: cannot be scrubbed: {reason}") from error


def check_kind(path: Path) -> None:
    """Raise ValueError for a file that is neither an nsys export nor a trace, each also as .gz."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    try:
        with open_plain(path) as file:
            begin = file.read(4096)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"{path}: cannot be scrubbed: {reason}") from error
    if not begin.startswith(SQLITE) and not EVENTS.match(begin):
        raise ValueError(
            f"{path}: cannot be scrubbed: it is neither an nsys export nor a trace; give a "
            ".sqlite, or a trace (.json), each also as .gz"
        )


def open_plain(path: Path) -> gzip.GzipFile | BufferedReader:
    """Open a capture for reading, unpacked where it is a .gz."""
    with open(path, "rb") as file:
        packed = file.read(2) == GZIP
    return gzip.open(path, "rb") if packed else open(path, "rb")


def copy_plain(path: Path, plain: Path) -> None:
    with open_plain(path) as file, open(plain, "wb") as copy:
        shutil.copyfileobj(file, copy, BLOCK_BYTES)


def scrub_plain(plain: Path, capture: Path) -> None:
    """Scrubs a file in place. Raises ValueError, which names `capture`, where it is no capture."""
    with open(plain, "rb") as file:
        begin = file.read(4096)
    if begin.startswith(SQLITE):
        layouts = stack_layouts(plain)
        with closing(sqlite3.connect(plain)) as database:
            tables = columns_by_table(database)
            if "StringIds" not in tables:
                raise ValueError(
                    f"{capture}: is SQLite, but not an nsys export; the table StringIds is missing"
                )
            scrub_tables(database, tables, layouts)
            database.commit()
            database.execute("VACUUM")  # overwritten text would stay in free pages
    else:
        with (
            open(plain, "rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text,
        ):
            begin_of_events(text, capture)
        clean = plain.with_suffix(".json")
        scrub_json(plain, clean)
        os.replace(clean, plain)


def stack_layouts(plain: Path) -> dict[int, Layout]:
    """The layouts of Python's stacks in an export; none in one that cannot be read."""
    try:
        return layouts_of(Export(plain))
    except ValueError:
        return {}


def columns_by_table(database: sqlite3.Connection) -> dict[str, list[str]]:
    names = database.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall()
    return {
        table: [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
        for (table,) in names
    }


def scrub_tables(
    database: sqlite3.Connection, tables: dict[str, list[str]], layouts: dict[int, Layout]
) -> None:
    forget_bystanders(database, tables)
    hide_typed_secrets(database, tables)
    forget_payloads(database, tables, layouts)
    facts: Iterable[Sequence[object]] = ()
    if {"name", "value"} <= set(tables.get("META_DATA_CAPTURE", ())):
        facts = database.execute("SELECT name, value FROM META_DATA_CAPTURE")
    folder = working_folder(facts)
    printed = set()  # what the program and nsys wrote to the terminal
    if "ProcessStreams" in tables:
        printed = {text for (text,) in database.execute("SELECT contentId FROM ProcessStreams")}
    for table, columns in tables.items():
        if {"name", "value"} <= set(columns):
            rows = database.execute(f'SELECT rowid, name FROM "{table}"').fetchall()
            gone = [(rowid,) for rowid, name in rows if NAMES.search(str(name))]
            database.executemany(f'DELETE FROM "{table}" WHERE rowid = ?', gone)
        for column in columns:
            changed = []
            query = f'SELECT rowid, "{column}" FROM "{table}" WHERE typeof("{column}") = \'text\''
            for rowid, text in database.execute(query):
                is_output = table == "StringIds" and rowid in printed
                inside = source_name(text, folder) if text.endswith(".py") else text
                clean = "" if is_output else hide_tokens(without_folders(inside))
                if clean != text:
                    changed.append((clean, rowid))
            database.executemany(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', changed)


def forget_payloads(
    database: sqlite3.Connection, tables: dict[str, list[str]], layouts: dict[int, Layout]
) -> None:
    """Removes what programs added to events of NVTX, but for the numbers of Python's stacks."""
    columns = set(tables.get(NVTX, ()))
    if "binaryData" not in columns:
        return
    kept = "NULL"
    if layouts and {"eventType", "text", "textId"} <= columns:
        database.create_function("alone", 1, lambda payload: numbers_alone(payload, layouts))
        mark = f"eventType IS {MARK} AND text IS NULL AND textId IS NULL"
        kept = f"CASE WHEN {mark} THEN alone(binaryData) END"
    database.execute(f"UPDATE {NVTX} SET binaryData = {kept} WHERE binaryData IS NOT NULL")


def hide_typed_secrets(database: sqlite3.Connection, tables: dict[str, list[str]]) -> None:
    """Hides secrets in the command that was traced, whose words nsys stores as a row each."""
    if {"name", "value"} <= set(tables.get("META_DATA_CAPTURE", ())):
        arguments = "name GLOB '*:ARGUMENT_*' AND typeof(value) = 'text'"
        query = f"SELECT rowid, value FROM META_DATA_CAPTURE WHERE {arguments} ORDER BY rowid"
        rows = database.execute(query).fetchall()
        kept = without_secret_values([value for _, value in rows])
        update = "UPDATE META_DATA_CAPTURE SET value = ? WHERE rowid = ?"
        database.executemany(update, zip(kept, (rowid for rowid, _ in rows), strict=True))


def forget_bystanders(database: sqlite3.Connection, tables: dict[str, list[str]]) -> None:
    """Removes the machine's processes and threads that have no recorded event.

    `tables` maps each table to its columns.
    """
    traced = set()  # a globalPid is a globalTid without its last 24 bits
    for table, columns in tables.items():
        if table.startswith(("CUPTI_ACTIVITY", "NVTX_EVENTS", "OSRT_API")):
            for column in {"globalPid", "globalTid"} & set(columns):
                traced |= distinct(database, table, f'"{column}" & ~{THREAD}')
    kept = ",".join(str(process) for process in traced if process is not None)
    if "globalPid" in tables.get("PROCESSES", ()):
        database.execute(f"DELETE FROM PROCESSES WHERE globalPid NOT IN ({kept})")
    if {"globalTid", "nameId"} <= set(tables.get("ThreadNames", ())):
        gone = f"FROM ThreadNames WHERE (globalTid & ~{THREAD}) NOT IN ({kept})"
        names = {name for (name,) in database.execute(f"SELECT nameId {gone}")}
        database.execute(f"DELETE {gone}")
        for table, columns in tables.items():
            for column in STRING_COLUMNS & set(columns):
                names -= distinct(database, table, f'"{column}"')
        rows = [(name,) for name in names]
        database.executemany("UPDATE StringIds SET value = '' WHERE id = ?", rows)


def distinct(database: sqlite3.Connection, table: str, term: str) -> set[object]:
    return {value for (value,) in database.execute(f'SELECT DISTINCT {term} FROM "{table}"')}


def scrub_json(path: Path, out: Path) -> None:
    """Writes the JSON at `path` to `out` scrubbed, a piece at a time.

    The pieces are not parsed: numbers have no slashes, so only strings change.
    """
    with open(path, "rb") as file, open(out, "wb") as written:
        left = b""
        while block := file.read(BLOCK_BYTES):
            left += block
            cut = left.rfind(b"},") + 1  # between two events
            written.write(scrubbed_json(left[:cut]))
            left = left[cut:]
        written.write(scrubbed_json(left))


def scrubbed_json(text: bytes) -> bytes:
    decoded = text.decode("utf-8")
    small = decoded.lower()
    if "USER" in decoded or any(hint in small for hint in HINTS):
        decoded = MEMBER.sub(r'\1""', decoded)
    return hide_tokens(without_folders(decoded)).encode("utf-8")
