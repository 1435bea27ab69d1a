"""Reads the rows that runs have logged since a page was made. Called by the dashboard's server.

A `Mark` says how far the runs' files were read. It is the id of an event, so that a browser which
was away asks for what it missed, and the server keeps no state of its readers.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from cli.plain import without_controls
from profiling.analysis.runs.folder import Numbers, is_run_folder, read_row, run_names
from profiling.shared.run_files import METRICS

DESCRIBED_BY = ("summary.json", "config.yaml")  # a change of these changes the page's words
USUAL_BYTES = 65_536  # end of a file that is searched for a line's end first, before all of it
MOST_BYTES = 4_000_000  # most new rows; beyond that the page is made anew


@dataclass(frozen=True)
class Mark:
    """Place up to which the files of the runs were read.

    Its text is the state, then the number of bytes for each run, as in 1f0c.120,4096.
    """

    state: str  # changes with the set of runs, with their files, and when one ends
    offsets: tuple[int, ...]  # bytes of each metrics.jsonl, up to the end of a line

    def __str__(self) -> str:
        return f"{self.state}.{','.join(map(str, self.offsets))}"

    @classmethod
    def parse(cls, text: str) -> "Mark":
        """The mark in a text that a browser sent. Raises ValueError where it is no mark."""
        state, _, offsets = text.partition(".")
        return cls(state, tuple(int(number) for number in offsets.split(",") if number))


def current_mark(folders: list[Path]) -> Mark:
    """The mark of the files as they are now."""
    offsets = [end_of_lines(folder / METRICS) for folder in folders]
    return Mark(state_of(folders), tuple(offsets))


def state_of(folders: list[Path]) -> str:
    known = hashlib.blake2b(digest_size=8)
    for folder in folders:
        known.update(f"{folder}\0".encode(errors="surrogateescape"))
        if is_run_folder(folder):
            known.update(b"%d;" % (folder / METRICS).stat().st_ino)  # a replaced file is another
        for path in (folder / name for name in DESCRIBED_BY):
            if path.exists():
                known.update(b"%d;" % path.stat().st_mtime_ns)
    return known.hexdigest()


def end_of_lines(path: Path) -> int:
    """Size of a file in bytes, without a last line that is still being written."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            for begin in (max(0, size - USUAL_BYTES), 0):
                file.seek(begin)
                newline = file.read().rfind(b"\n")
                if newline >= 0:
                    return begin + newline + 1
    except OSError:
        pass
    return 0


def rows_since(folders: list[Path], mark: Mark) -> tuple[Mark, dict[str, list[Numbers]]] | None:
    """(a newer mark, the rows of each run between the two), or None to have the page made anew.

    A run that starts again also gives None, since that takes rows back, and so does a damaged line:
    the page says what is wrong with it.
    """
    if mark.state != state_of(folders) or len(mark.offsets) != len(folders):
        return None
    offsets, rows = list(mark.offsets), {}
    for number, (folder, name) in enumerate(zip(folders, run_names(folders), strict=True)):
        path, begin = folder / METRICS, offsets[number]
        lines = new_lines(path, begin)
        if lines is None:
            return None
        new_rows = [row_of(line) for line in lines.splitlines()]
        if any(row is None for row in new_rows):
            return None
        offsets[number] += len(lines)
        if new_rows:
            shown = without_controls(name)  # as the page names it
            rows[shown] = [row for row in new_rows if row is not None]
    return Mark(mark.state, tuple(offsets)), rows


def new_lines(path: Path, begin: int) -> bytes | None:
    """The whole lines from byte `begin` on; None where the file is now shorter, or much longer."""
    try:
        with open(path, "rb") as file:
            if not begin <= file.seek(0, 2) <= begin + MOST_BYTES:
                return None
            file.seek(begin)
            content = file.read()
    except OSError:
        return None
    return content[: content.rfind(b"\n") + 1]


def row_of(line: bytes) -> Numbers | None:
    """The row in a line, with its iteration; None for the line of a start or a damaged one."""
    try:
        (iteration, _), numbers = read_row(line)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    return None if numbers is None else numbers | {"iter": iteration}
