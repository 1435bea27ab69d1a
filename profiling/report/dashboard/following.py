"""What runs have logged since a page was made. Called by profiling.report.dashboard.server.

A `Mark` says up to where their files were read: it is the id of an event, so a browser that was
away asks for what it missed, and the server keeps nothing of its readers.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from cli.plain import without_controls
from profiling.analysis.runs.folder import Numbers, is_run_folder, read_row
from profiling.run_files import METRICS

DESCRIBED_BY = ("summary.json", "config.yaml")  # a change of these changes the page's words
USUAL_BYTES = 65_536  # a line that is longer is found all the same
MOST_BYTES = 4_000_000  # of new rows; after more than that the page is made anew


@dataclass(frozen=True)
class Mark:
    """As text: the state's name, then a number of bytes for each run: 1f0c.120,4096."""

    state: str  # changes with the runs that are there, with their files, and when one ends
    offsets: tuple[int, ...]  # bytes of each metrics.jsonl, up to the end of a line

    def __str__(self) -> str:
        return f"{self.state}.{','.join(map(str, self.offsets))}"

    @classmethod
    def of(cls, text: str) -> "Mark":
        """What a browser sends: raises ValueError where it is no mark."""
        state, _, offsets = text.partition(".")
        return cls(state, tuple(int(number) for number in offsets.split(",") if number))


def mark_of(folders: list[Path]) -> Mark:
    """As the files are now."""
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
    """Bytes of a file, without a last line that is half-written."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            for begin in (max(0, size - USUAL_BYTES), 0):
                file.seek(begin)
                found = file.read().rfind(b"\n")
                if found >= 0:
                    return begin + found + 1
    except OSError:
        pass
    return 0


def rows_since(folders: list[Path], mark: Mark) -> tuple[Mark, dict[str, list[Numbers]]] | None:
    """(a newer mark, the rows of each run between the two); None: the page is to be made anew.

    That is so after a start, which takes rows back. Raises ValueError for a damaged line.
    """
    if mark.state != state_of(folders) or len(mark.offsets) != len(folders):
        return None
    offsets, rows = list(mark.offsets), {}
    for number, folder in enumerate(folders):
        path, begin = folder / METRICS, offsets[number]
        lines = new_lines(path, begin)
        if lines is None:
            return None
        found = [row_of(path, line) for line in lines.splitlines()]
        if any(row is None for row in found):
            return None
        offsets[number] += len(lines)
        if found:
            name = without_controls(str(folder))  # as the page has it
            rows[name] = [row for row in found if row is not None]
    return Mark(mark.state, tuple(offsets)), rows


def new_lines(path: Path, begin: int) -> bytes | None:
    """Whole lines behind `begin`; None where the file is shorter by now, or much longer."""
    try:
        with open(path, "rb") as file:
            if not begin <= file.seek(0, 2) <= begin + MOST_BYTES:
                return None
            file.seek(begin)
            found = file.read()
    except OSError:
        return None
    return found[: found.rfind(b"\n") + 1]


def row_of(path: Path, line: bytes) -> Numbers | None:
    """None of a start."""
    try:
        (iteration, _), numbers = read_row(line)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        said = line[:60].decode(errors="replace")
        raise ValueError(f"{path}: not a row that training wrote: {said}") from error
    return None if numbers is None else numbers | {"iter": iteration}
