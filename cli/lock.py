"""One owner of a folder: a lock that the kernel releases however its process ends.

It is flock(2) on the file run.lock in the folder, which says who holds it. No child keeps it: one
that is executed loses the descriptor by O_CLOEXEC, one that is only forked closes it here.
"""

import contextlib
import errno
import fcntl
import logging
import os
import re
import socket
import time
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path

from cli.files import is_still_at, leads_nowhere
from cli.process import last_acts

log = logging.getLogger(__name__)

NAME = "run.lock"
TAKEN = (errno.EWOULDBLOCK, errno.EACCES)
WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
ATTEMPTS = 100  # a process that ends may remove the folder between two of our calls
HOLDER = re.compile(r"process (\d+) on host (\S+) since [\d:+ -]+\d")

held_descriptors: set[int] = set()  # descriptors of the locks that this process holds


class InUse(ValueError):
    """Another process owns the folder."""


def let_go_in_child() -> None:
    """Close the descriptors in a forked child: a lock lives as long as any copy of one does."""
    for descriptor in held_descriptors:
        os.close(descriptor)
    held_descriptors.clear()


os.register_at_fork(after_in_child=let_go_in_child)


def refuse_files_of_others(
    folder: Path, key: str, record: str, of_unended: set[str], writer: str
) -> None:
    """Raise ValueError, which begins with `key`, if the folder has files but no `record`.

    `of_unended` are the names of what the writer of the record makes before it.
    """
    if not folder.is_dir() or (folder / record).exists():
        return
    if others := sorted({path.name for path in folder.iterdir()} - of_unended - {NAME}):
        raise ValueError(
            f"{key}: contains {others[0]}, which no {writer} has written; give another folder"
        )


@dataclass
class Lock:
    """Make and own a folder for the block: `with Lock(folder, "out_dir=FOLDER"):`.

    `key` begins each message. At the end the file is deleted, and with it a folder that was made
    for it and stayed empty. Raises ValueError if the folder cannot be written, InUse if another
    process owns it.
    """

    folder: Path
    key: str
    file: int | None = None
    made_folders: list[Path] = field(
        default_factory=list
    )  # folders that it made, the innermost first

    def __enter__(self) -> "Lock":
        self.made_folders = [
            path for path in (self.folder, *self.folder.parents) if not path.exists()
        ]
        try:
            self.take()
        except BaseException:
            self.remove_empty_folders()
            raise
        last_acts.append(self.release)
        return self

    def take(self) -> None:
        """Take the lock, or take it again if its file was deleted. Raises as the class does."""
        try:
            while not self.is_held():
                self.close()
                self.file = self.open_file()
                held_descriptors.add(self.file)
                self.own(self.file)
        except OSError as error:
            self.close()
            reason = "this path is a file" if self.folder.is_file() else error.strerror
            if leads_nowhere(self.folder):
                reason = "this path is a link to a place that does not exist"
            raise ValueError(f"{self.key}: cannot write to this folder: {reason}") from error
        except InUse:
            self.close()
            raise

    def open_file(self) -> int:
        for _ in range(ATTEMPTS):
            self.folder.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                return os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    def own(self, file: int) -> None:
        """Lock the file and write this process's name into it.

        Raises InUse if another process has it, OSError if the disk is full.
        """
        before = read(file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            warn_of_other_host(self.key, before)
        except OSError as error:
            if error.errno in TAKEN:
                raise InUse(in_use_message(self.key, file)) from None
            if error.errno not in WITHOUT_LOCKS:
                raise
            warn_without_locks(error.strerror)
        try:
            os.ftruncate(file, 0)
            os.pwrite(file, f"{holder()}\n".encode(), 0)
        except OSError:
            self.path.unlink()
            raise

    @property
    def path(self) -> Path:
        return self.folder / NAME

    def is_held(self) -> bool:
        """Whether the file that we locked is still the one at `path`."""
        return self.file is not None and is_still_at(self.file, self.path)

    def __exit__(self, *_: object) -> None:
        if self.release in last_acts:
            last_acts.remove(self.release)
        self.release()

    def release(self) -> None:
        if self.is_held():
            with contextlib.suppress(OSError):
                self.path.unlink()
        self.close()
        self.remove_empty_folders()

    def close(self) -> None:
        if self.file in held_descriptors:  # not so in a child
            held_descriptors.remove(self.file)
            os.close(self.file)
        self.file = None

    def remove_empty_folders(self) -> None:
        with contextlib.suppress(OSError):
            for folder in self.made_folders:
                folder.rmdir()


def check_free(folder: Path, key: str) -> None:
    """Raise InUse if another process owns the folder. Leaves no trace."""
    try:
        file = os.open(folder / NAME, os.O_RDONLY)
    except OSError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in TAKEN:
            raise InUse(in_use_message(key, file)) from None
    finally:
        os.close(file)


def holder() -> str:
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    return f"process {os.getpid()} on host {socket.gethostname()} since {since}"


def read(file: int) -> str:
    return os.pread(file, 200, 0).decode(errors="replace")


def in_use_message(key: str, file: int) -> str:
    """Message that says who has the lock.

    The owner writes its name a moment after it takes the lock, over that of a killed one: a name
    that is missing or dead is read again, for 0.2 seconds.
    """
    for _ in range(20):
        known = HOLDER.search(read(file))
        if known and is_alive(int(known[1]), known[2]):
            break
        time.sleep(0.01)
    else:
        known = None
    who = known[0] if known else "another process"
    return f"{key}: in use by {who}; give another folder, or end that process first"


def is_alive(pid: int, host: str) -> bool:
    """Whether process `pid` runs; one on another host is assumed to."""
    if host != socket.gethostname():
        return True
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True  # another user's
    except (ProcessLookupError, OverflowError):
        return False
    return True


def warn_of_other_host(key: str, before: str) -> None:
    """Warn if the file names a process on another host.

    The name of a killed process stays in the file; whether one on another host was killed is not
    known here.
    """
    known = HOLDER.search(before)
    if known and known[2] != socket.gethostname():
        log.warning(
            "%s: %s names %s; if that process is still running (on some file systems locks do "
            "not work between hosts), end one of the two",
            key,
            NAME,
            known[0],
        )


@cache  # once for all jobs of a sweep
def warn_without_locks(reason: str) -> None:
    log.warning(
        "%s: this file system has no locks (%s), so nothing prevents a second run in this folder",
        NAME,
        reason,
    )
