"""Takes the environment and the folders out of an exported report, so that it can be passed on.

nsys stores the environment of the traced program, and that of every process above it: the shell's
too, secrets and all, whatever the program itself was given. A .nsys-rep cannot be edited; its
.sqlite can. Called by profiling.launch.reports after each export, and by hand:

    python -m profiling scrub FILE.sqlite ...
"""

import os
import re
import sqlite3
from pathlib import Path

# /a/b/name becomes name; a lone /name, and the slashes inside a word, stay
FOLDERS = re.compile(r"(?<![\w./])(?:/[\w.+@-]+)+/(?=[\w.+@-])")
# rows of (name, value) tables that tell who and where, not what
PERSONAL = re.compile(r"ENVIRONMENT|Environment|HOST|Hostname|USER|WORKING_DIR|DISPLAY_NAME|Uuid")


def scrub(path: Path) -> None:
    """Scrubs the file in place, by way of a copy. Raises ValueError where it is no such file."""
    temporary = path.with_name(path.name + ".scrubbed")
    temporary.unlink(missing_ok=True)
    try:
        with open(path, "rb") as file, open(temporary, "wb") as copy:
            while block := file.read(1 << 20):
                copy.write(block)
        database = sqlite3.connect(temporary)
        try:
            scrub_tables(database)
            database.commit()
            database.execute("VACUUM")  # what was overwritten would stay in free pages
        finally:
            database.close()
        os.replace(temporary, path)
    except (OSError, sqlite3.DatabaseError) as error:
        raise ValueError(f"{path}: cannot be scrubbed: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def scrub_tables(database: sqlite3.Connection) -> None:
    tables = [
        name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type='table'")
    ]
    printed = set()  # what the program and nsys wrote to the terminal
    if "ProcessStreams" in tables:
        printed = {text for (text,) in database.execute("SELECT contentId FROM ProcessStreams")}
    for table in tables:
        columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
        if "name" in columns and "value" in columns:
            rows = database.execute(f'SELECT rowid, name FROM "{table}"').fetchall()
            gone = [(rowid,) for rowid, name in rows if PERSONAL.search(str(name))]
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


def without_folders(text: str) -> str:
    """The text with the last part of each path alone; nothing of a process's environment block."""
    if "\0" in text:  # NAME=value, separated by NULs
        return ""
    return FOLDERS.sub("", text)


def main(words: list[str]) -> int:
    if not words or {"-h", "--help"} & set(words):
        print(__doc__)
        return 0
    for word in words:
        scrub(Path(word))
        print(f"{word}: scrubbed")
    return 0
