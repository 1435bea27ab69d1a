"""Which files are captures of the ranks of one training. Called by the verbs and by files."""

import re
from collections.abc import Sequence
from pathlib import Path

from profiling.timeline import opening

NUMBER = re.compile(r"(?:rank|worker|(?<![a-z])r)[-_ .]?(\d{1,6})(?!\d)", re.I)
EVENTS = (".json", ".json.gz")


class TooFewRanks(ValueError):
    """Of the captures fewer than two hold GPU activity."""


def named_rank(path: Path) -> int | None:
    """The rank that the file's name says; None: it says none."""
    found = NUMBER.findall(path.name)
    return int(found[-1]) if found else None


def captures_in(folder: Path) -> list[Path]:
    """Of the ranks of one training: in a run's folder, its profile/, or one folder for each host.

    [] where no two files there are named after ranks. Raises OSError.
    """
    for places in ((folder, folder / "profile"), sorted(folder.iterdir())):
        found = [file for place in places if place.is_dir() for file in files_of_ranks(place)]
        newest = max(found, key=lambda file: file.stat().st_mtime_ns, default=None)
        if newest is None:
            continue
        of_window = [file for file in found if window_of(file) == window_of(newest)]
        for chosen in (of_window, found):
            if len({named_rank(file) for file in chosen}) > 1:
                return sorted(chosen, key=lambda file: (named_rank(file) or 0, file.name))
    return []


def files_of_ranks(folder: Path) -> list[Path]:
    """Captures whose names say a rank; of a report and its export the export."""
    found = [
        file
        for file in folder.iterdir()
        if named_rank(file) is not None
        and file.name.endswith((*opening.ENDINGS, *EVENTS))
        and not opening.MANIFEST.fullmatch(file.name)
        and file.is_file()
    ]
    exports = {file.with_suffix(opening.REPORT) for file in found if file.suffix == ".sqlite"}
    return [file for file in found if file not in exports]


def window_of(path: Path) -> tuple[Path, str]:
    """The same for files of one window of one run: the folder and the name without the rank."""
    return path.parent, NUMBER.sub("", path.name)


def rank_captures(
    paths: Sequence[Path], ranks: bool, device: int | None = None, process: int | None = None
) -> list[Path]:
    """Those to be taken together; [] where one process of one capture is meant.

    Several are meant by several paths, by a folder that holds the captures of several ranks, unless
    a process is chosen, and by `ranks` of one file.
    """
    if len(paths) == 1 and paths[0].is_dir():
        return [] if (device, process) != (None, None) else captures_in(paths[0])
    return list(paths) if ranks or len(paths) > 1 else []
