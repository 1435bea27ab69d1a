"""Files written whole or not at all. Called by the verbs that write reports and traces."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cli.interrupts import unwind_on_signal


def write_text(path: Path, content: str) -> None:
    """Write the whole file in UTF-8, or leave it as it was. Raises ValueError if it cannot be."""
    with replacement_for(path) as temporary:
        temporary.write_text(content, encoding="utf-8")


def check_place(path: Path) -> None:
    """Raise ValueError if no file can be written at `path`. Call it before long work, too."""
    with name_path_in_errors(path):
        if path.is_dir():
            raise ValueError(f"{path}: is a folder; name a file in this folder")
        refuse_pipe(path)  # a link may lead there
        if not path.parent.is_dir():
            raise ValueError(f"{path}: the folder {path.parent} does not exist; create it first")
        check_writable(path.parent)


def not_a_folder(path: Path) -> str:
    """Words for what stands at `path` instead of a folder: a file, or nothing."""
    return "is a file, not a folder" if path.exists() else "no such folder"


def is_still_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one that is at `path` now."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def refuse_pipe(path: Path) -> None:
    """Raise ValueError for a pipe or a device: reading one may never end, or never begin."""
    if is_pipe(path):
        raise ValueError(f"{path}: is a device or a pipe; name a regular file")


def is_pipe(path: Path) -> bool:
    """Whether `path` exists and is neither a file nor a folder: a pipe, a device, a socket."""
    return path.exists() and not (path.is_file() or path.is_dir())


def resolve_link(path: Path) -> Path:
    """Place to write to when the user names `path`: the target if it is a link.

    Raises ValueError if the link leads to itself. Not for a run's own files: a link there belongs
    to a copied folder, and is replaced.
    """
    real = Path(os.path.realpath(path)) if path.is_symlink() else path
    if real.is_symlink():
        raise ValueError(f"{path}: is a link that points to itself; name another place")
    return real


def leads_nowhere(path: Path) -> bool:
    """Whether `path` is a link whose target does not exist: no folder can be made there."""
    return path.is_symlink() and not path.exists()


def make_folder(folder: Path) -> None:
    """Make the folder unless it exists, and check that it can be written. Raises ValueError."""
    with name_path_in_errors(folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            if leads_nowhere(folder):
                raise ValueError(
                    f"{folder}: is a link to a place that does not exist; name a folder"
                ) from None
            raise ValueError(
                f"{folder}: is a file or has a file as parent; name a folder"
            ) from None
        check_writable(folder)


def check_writable(folder: Path) -> None:
    """Raise OSError if no file can be made in `folder`, as on a read-only file system."""
    with tempfile.TemporaryFile(dir=folder):
        pass


def sync_folder(folder: Path) -> None:
    """Wait until the names of the files in `folder` are on the disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def name_path_in_errors(path: Path) -> Iterator[None]:
    """Turn an OSError within the block into a ValueError that names `path`."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{path}: cannot be written: {error.strerror or error}") from error


def short_path(path: Path) -> str:
    """Spell `path` relative to the working directory if it lies below it, else as it is."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def empty_folder(folder: Path) -> None:
    """Make an empty folder for a tool to write to; what is in it is deleted. Raises ValueError."""
    shutil.rmtree(folder, ignore_errors=True)
    with name_path_in_errors(folder.parent):
        folder.mkdir(parents=True)


@contextmanager
def replacement_for(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; what is written there replaces `path` on success.

    Raises ValueError if it cannot be written.
    """
    check_place(path)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with name_path_in_errors(path), unwind_on_signal():
            yield temporary
            os.replace(temporary, path)
    finally:
        with suppress(OSError):  # a read-only file system refuses this, too
            temporary.unlink(missing_ok=True)
