"""A file system of a few MB in memory, that can be filled to the last page and made free again."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SIZE = "4m"
PAGE_BYTES = 4096


@dataclass(frozen=True)
class Disk:
    folder: Path

    @property
    def filler(self) -> Path:
        return self.folder / "filler"

    def fill(self, free_pages: int) -> None:
        """Fill the disk with a file of our own, up to `free_pages`; others may write meanwhile."""
        with open(self.filler, "wb", buffering=0) as file:
            with contextlib.suppress(OSError):
                while file.write(bytes(PAGE_BYTES)):
                    pass
            os.ftruncate(file.fileno(), max(0, file.tell() - free_pages * PAGE_BYTES))

    def free(self) -> None:
        self.filler.unlink(missing_ok=True)


@contextmanager
def mount_disk(folder: Path) -> Iterator[Disk]:
    """Mount the disk on a new folder for the block. Raises ValueError where that fails."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    try:
        subprocess.run(command, capture_output=True, text=True, check=True)
    except OSError as error:
        raise ValueError(f"disk_full: mounts a small disk: {error}") from error
    except subprocess.CalledProcessError as error:
        said = " ".join(error.stderr.split())
        raise ValueError(f"disk_full: mounts a small disk, as root: {said}") from error
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
