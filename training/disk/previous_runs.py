"""Moves a run that lies in out_dir to out_dir/previous-N when another starts there from scratch.

It is kept because a comparison needs its baseline. Called by training.disk.run_folder, which holds
the folder's lock.
"""

import logging
import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cli.lock import InUse, check_free
from profiling.shared.run_files import DUMP, METRICS, RUN_FILES, is_run, remove_of_run, remove_run
from training.ranks.next_commands import hang_command

log = logging.getLogger(__name__)

FEW_ROWS = 5  # of training, as a run leaves that was stopped soon after its start
EVIDENCE = ("ckpt.pt", "ckpt_best.pt", "profile", "sample")  # such a run has none of these


@dataclass(frozen=True)
class PreviousRun:
    """Files in a folder that have the names of a run's files."""

    folder: Path
    files: list[Path]

    @cached_property
    def rows(self) -> int:
        """Number of training rows that were logged, as far as they can be read."""
        path = self.folder / METRICS
        return path.read_bytes().count(b'"train/loss"') if path.is_file() else 0

    @property
    def matters(self) -> bool:
        """Whether the run is to be kept, as it also is if no run of ours has written it."""
        evidence = any(is_evidence(self.folder / name) for name in EVIDENCE)
        return evidence or self.rows > FEW_ROWS or not is_run(self.folder)

    def __str__(self) -> str:
        """Size and content in brackets, to follow the run's name in a message."""
        checkpoint = "" if (self.folder / "ckpt.pt").exists() else "no checkpoint, "
        rows = "1 row" if self.rows == 1 else f"{self.rows} rows"
        return f"({checkpoint}{rows}, {size_text(sum(map(size, self.files)))})"


def is_evidence(path: Path) -> bool:
    """Whether `path` shows that a run got somewhere.

    An empty folder does not: several ranks make that of captures before there is a capture.
    """
    return any(path.iterdir()) if path.is_dir() else path.exists()


def run_in(folder: Path) -> PreviousRun | None:
    files = [folder / name for name in RUN_FILES if (folder / name).exists()]
    return PreviousRun(folder, files) if files else None


def check_previous(folder: Path, keep: str) -> None:
    """Raises ValueError if a run that matters lies in `folder` and keep_previous is refuse."""
    there = run_in(folder)
    if keep == "refuse" and there and there.matters:
        raise ValueError(
            f"out_dir={folder}: contains a run {there}, and keep_previous=refuse; continue it "
            "with init_from=resume, or give another out_dir"
        )


def make_way(folder: Path, keep: str) -> None:
    """Moves the run that lies in `folder` to previous-N, and leaves `keep` of these folders.

    `keep` is the value of keep_previous. A run of a few rows and nothing else is removed instead.
    Raises ValueError naming out_dir if the disk refuses.
    """
    try:
        move_aside(folder, keep)
    except OSError as error:
        raise ValueError(
            f"out_dir={folder}: cannot write to this folder: {error.strerror}"
        ) from error


def move_aside(folder: Path, keep: str) -> None:
    there = run_in(folder)
    if there is None:
        return
    what = str(there)
    if not there.matters:
        for path in there.files:
            remove_of_run(path)
        log.info("out_dir=%s: the earlier run in this folder %s is replaced", folder, what)
        return
    kept = previous_folders(folder)
    target = folder / f"previous-{max(kept, default=0) + 1}"
    target.mkdir()
    for path in there.files:
        os.rename(path, target / path.name)
    log.info(
        "out_dir=%s: the earlier run in this folder %s is now in %s", folder, what, target.name
    )
    if any((target / "profile").glob(f"*{DUMP}*")):
        log.info("what each of its ranks did last: %s", hang_command(str(target)))
    tidy(folder, keep)


def tidy(folder: Path, keep: str) -> None:
    """Removes the oldest previous runs beyond `keep`, and logs the space that the rest take.

    Only files of the run are removed; a folder previous-N without a run in it is not touched.
    """
    kept = {number: path for number, path in previous_folders(folder).items() if is_run(path)}
    spare = sorted(kept)[: max(0, len(kept) - int(keep))] if keep.isdecimal() else []
    spare = [number for number in spare if is_free(kept[number])]
    for number in spare:
        if left := remove_run(kept.pop(number)):
            names = ", ".join(str(path.relative_to(folder)) for path in left[:3])
            more = f" and {len(left) - 3} more" if len(left) > 3 else ""
            log.info("out_dir=%s: kept, because no run wrote it: %s%s", folder, names, more)
    if spare:
        names = ", ".join(f"previous-{number}" for number in spare)
        log.info("out_dir=%s: removed %s (keep_previous=%s)", folder, names, keep)
    elif len(kept) > 1:
        taken = size_text(sum(map(size, kept.values())))
        log.info(
            "%d earlier runs in this folder take %s; keep_previous=N limits their number",
            len(kept),
            taken,
        )


def is_free(folder: Path) -> bool:
    """Whether nobody trains in `folder`: a previous run may have been resumed where it lies."""
    try:
        check_free(folder, str(folder))
    except InUse as error:
        log.warning("%s, so it is kept", str(error).partition(";")[0])
        return False
    return True


def previous_folders(folder: Path) -> dict[int, Path]:
    """Folders previous-N in `folder`, by N."""
    matches = ((re.fullmatch(r"previous-(\d+)", path.name), path) for path in folder.iterdir())
    return {int(match[1]): path for match, path in matches if match and path.is_dir()}


def size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(file.lstat().st_size for file in files if not file.is_dir())


def size_text(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes < 1e9 else f"{size_bytes / 1e9:.1f} GB"
