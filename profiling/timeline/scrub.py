"""Takes the environment and the folders out of a capture, so that it can be passed on.

nsys stores the environment of the traced program, and that of every process above it: the shell's
too, secrets and all, whatever the program itself was given. It also lists every process and thread
of the machine; those that nothing was recorded of go too. Called by profiling.verbs.scrub, and for
what is uploaded by profiling.verbs.log.
"""

import gzip
import os
import re
import shutil
import sqlite3
import zlib
from pathlib import Path

from profiling.timeline.personal import NAMES, without_folders

SQLITE, GZIP = b"SQLite format 3\0", b"\x1f\x8b"
BLOCK_BYTES = 1 << 20
THREAD = 0xFFFFFF  # the bits of a globalTid that are not the process's
# columns that point into StringIds; a string is shared by all that spell the same
STRING_COLUMNS = {"nameId", "textId", "jsonTextId", "demangledName", "shortName", "mangledName"}
STRING_COLUMNS |= {"contentId", "filenameId", "symbol", "module", "name"}
# parts of the names in MEMBER, in small letters: most blocks have none, and searching is slow
HINTS = ("environment", "host", '"user"', "username", "user_name", "working_dir", "display", "uuid")
# "name": "value" in JSON, where the name tells who or where
MEMBER = re.compile(
    rf'("(?:[^"\\]*(?:{NAMES.pattern})[^"\\]*|(?i:host_?name|user_?name|user|host))"\s*:\s*)'
    r'"(?:[^"\\]|\\.)*"'
)


def scrub(path: Path, out: Path | None = None) -> None:
    """Writes the scrubbed capture to `out`, by default in its place.

    Raises ValueError, and leaves all as it was, where it is no such file.
    """
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    out = out or path
    plain = out.with_name(out.name + ".scrubbed")
    packed = out.with_name(out.name + ".scrubbed.gz")
    journal = plain.with_name(plain.name + "-journal")
    try:
        copy_plain(path, plain)
        scrub_plain(plain, packed)
        if out.suffix == ".gz":
            with open(plain, "rb") as file, gzip.open(packed, "wb", compresslevel=6) as copy:
                shutil.copyfileobj(file, copy, BLOCK_BYTES)
            os.replace(packed, out)
        else:
            os.replace(plain, out)
    except (OSError, EOFError, zlib.error, sqlite3.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be scrubbed: {' '.join(str(error).split())}") from error
    finally:
        for temporary in (plain, packed, journal):
            temporary.unlink(missing_ok=True)


def copy_plain(path: Path, plain: Path) -> None:
    with open(path, "rb") as file:
        opened = gzip.open if file.read(2) == GZIP else open
    with opened(path, "rb") as file, open(plain, "wb") as copy:
        shutil.copyfileobj(file, copy, BLOCK_BYTES)


def scrub_plain(plain: Path, spare: Path) -> None:
    """Scrubs a file in place, with `spare` as a name for a temporary one."""
    with open(plain, "rb") as file:
        begin = file.read(4096)
    if begin.startswith(SQLITE):
        database = sqlite3.connect(plain)
        try:
            scrub_tables(database)
            database.commit()
            database.execute("VACUUM")  # what was overwritten would stay in free pages
        finally:
            database.close()
    elif begin.lstrip()[:1] == b"{":
        scrub_json(plain, spare)
        os.replace(spare, plain)
    else:
        raise OSError("it is neither an nsys export nor JSON")


def scrub_tables(database: sqlite3.Connection) -> None:
    tables = [
        name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type='table'")
    ]
    forget_bystanders(database, tables)
    printed = set()  # what the program and nsys wrote to the terminal
    if "ProcessStreams" in tables:
        printed = {text for (text,) in database.execute("SELECT contentId FROM ProcessStreams")}
    for table in tables:
        columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
        if "name" in columns and "value" in columns:
            rows = database.execute(f'SELECT rowid, name FROM "{table}"').fetchall()
            gone = [(rowid,) for rowid, name in rows if NAMES.search(str(name))]
            database.executemany(f'DELETE FROM "{table}" WHERE rowid = ?', gone)
        for column in columns:
            changed = []
            query = f'SELECT rowid, "{column}" FROM "{table}" WHERE typeof("{column}") = \'text\''
            for rowid, text in database.execute(query):
                clean = without_folders(text)
                if table == "StringIds" and rowid in printed:
                    clean = ""
                if clean != text:
                    changed.append((clean, rowid))
            database.executemany(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', changed)


def forget_bystanders(database: sqlite3.Connection, tables: list[str]) -> None:
    """Removes the processes and threads of the machine that nothing was recorded of."""
    columns = {
        table: {row[1] for row in database.execute(f'PRAGMA table_info("{table}")')}
        for table in tables
    }
    traced = set()  # a globalPid is a globalTid without its last 24 bits
    for table in tables:
        if table.startswith(("CUPTI_ACTIVITY", "NVTX_EVENTS", "OSRT_API")):
            for column in columns[table] & {"globalPid", "globalTid"}:
                query = f'SELECT DISTINCT "{column}" & ~{THREAD} FROM "{table}"'
                traced |= {process for (process,) in database.execute(query)}
    kept = ",".join(str(process) for process in traced if process is not None)
    if columns.get("PROCESSES", set()) >= {"globalPid"}:
        database.execute(f"DELETE FROM PROCESSES WHERE globalPid NOT IN ({kept})")
    if columns.get("ThreadNames", set()) >= {"globalTid", "nameId"}:
        gone = f"(globalTid & ~{THREAD}) NOT IN ({kept})"
        names = {
            name for (name,) in database.execute(f"SELECT nameId FROM ThreadNames WHERE {gone}")
        }
        database.execute(f"DELETE FROM ThreadNames WHERE {gone}")
        for table in tables:
            for column in columns[table] & STRING_COLUMNS:
                query = f'SELECT DISTINCT "{column}" FROM "{table}"'
                names -= {name for (name,) in database.execute(query)}
        rows = [(name,) for name in names]
        database.executemany("UPDATE StringIds SET value = '' WHERE id = ?", rows)


def scrub_json(path: Path, out: Path) -> None:
    """Some megabytes at a time; numbers have no slashes, so that only strings change."""
    with open(path, "rb") as file, open(out, "wb") as written:
        left = b""
        while block := file.read(BLOCK_BYTES):
            left += block
            cut = left.rfind(b"},") + 1  # between two events
            written.write(scrubbed_json(left[:cut]))
            left = left[cut:]
        written.write(scrubbed_json(left))


def scrubbed_json(text: bytes) -> bytes:
    whole = text.decode("utf-8")
    small = whole.lower()
    if "USER" in whole or any(hint in small for hint in HINTS):
        whole = MEMBER.sub(r'\1""', whole)
    return without_folders(whole).encode("utf-8")
