"""Files written whole or not at all. Called by the verbs that write reports and traces."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.interrupts import unwinding


def write_text(path: Path, content: str) -> None:
    """Raises ValueError where it cannot be written."""
    with replacing(path) as temporary:
        temporary.write_text(content, encoding="utf-8")


def check_place(path: Path) -> None:
    """For a file that is written after long work, too, before it. Raises ValueError."""
    if path.is_dir():
        raise ValueError(f"{path}: is a folder; name a file in it")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.parent}; make it first")


def empty_folder(folder: Path) -> None:
    """Makes it, for a tool to write to; what an interrupted one left there goes. ValueError."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    except OSError as error:
        raise ValueError(f"{folder.parent}: cannot be written to: {error.strerror}") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; it takes that place at the end, if all went well."""
    check_place(path)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with unwinding():
            yield temporary
            os.replace(temporary, path)
    except OSError as error:
        raise ValueError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
