"""Files written whole or not at all. Called by the verbs that write reports and traces."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cli.interrupts import unwinding


def write_text(path: Path, content: str) -> None:
    """Raises ValueError where it cannot be written."""
    with replacing(path) as temporary:
        temporary.write_text(content, encoding="utf-8")


def check_place(path: Path) -> None:
    """For a file that is written after long work, too, before it. Raises ValueError."""
    with told(path):
        if path.is_dir():
            raise ValueError(f"{path}: is a folder; name a file in it")
        refuse_pipe(path)  # a link may lead there
        if not path.parent.is_dir():
            raise ValueError(f"{path}: there is no folder {path.parent}; make it first")
        check_writable(path.parent)


def refuse_pipe(path: Path) -> None:
    """Raises ValueError for a pipe or a device, which is read without end, or waited for."""
    if is_pipe(path):
        raise ValueError(f"{path}: is a device or a pipe; name a file")


def is_pipe(path: Path) -> bool:
    """Returns whether it is there, and neither a file nor a folder: a pipe, a device, a socket."""
    return path.exists() and not (path.is_file() or path.is_dir())


def behind_link(path: Path) -> Path:
    """Where what the user names is written: of a link the place that it names. Raises ValueError.

    A run's own files are written as they are named, for a link there is of a copied folder.
    """
    real = Path(os.path.realpath(path)) if path.is_symlink() else path
    if real.is_symlink():
        raise ValueError(f"{path}: a link that leads to itself; name another place")
    return real


def leads_nowhere(path: Path) -> bool:
    """Whether it is a link to what is not there, of which no folder can be made."""
    return path.is_symlink() and not path.exists()


def make_folder(folder: Path) -> None:
    """Makes it where it is not there yet, for long work to write to. Raises ValueError."""
    with told(folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            if leads_nowhere(folder):
                raise ValueError(f"{folder}: is a link that leads nowhere; name a folder") from None
            raise ValueError(f"{folder}: is a file, or lies below one; name a folder") from None
        check_writable(folder)


def check_writable(folder: Path) -> None:
    """Raises OSError where no file can be made, as on a read-only file system."""
    with tempfile.TemporaryFile(dir=folder):
        pass


def sync_folder(folder: Path) -> None:
    """The names in it are on the disk then. Raises OSError."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def told(path: Path) -> Iterator[None]:
    """An OSError as a ValueError that names `path`."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{path}: cannot be written: {error.strerror or error}") from error


def from_here(path: Path) -> str:
    """As short as the working directory lets it be."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def empty_folder(folder: Path) -> None:
    """Makes it, for a tool to write to; what an interrupted one left there goes. ValueError."""
    shutil.rmtree(folder, ignore_errors=True)
    with told(folder.parent):
        folder.mkdir(parents=True)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; it takes that place at the end, if all went well."""
    check_place(path)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with told(path), unwinding():
            yield temporary
            os.replace(temporary, path)
    finally:
        with suppress(OSError):  # a read-only file system refuses this, too
            temporary.unlink(missing_ok=True)
