"""Which files are captures of the ranks of one training. Called by the verbs and by files."""

import gzip
import os
import re
import zlib
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from profiling.analysis.report import Finding
from profiling.timeline import nsys_facts, opening

# what names say, the surest first: `rank` may be of a host alone where it is `local`
NUMBERS = tuple(
    re.compile(rf"{word}[-_ .=\[]*(\d{{1,6}})(?!\d)", re.I)
    for word in (
        r"(?<!local)(?<!local[-_ .])rank",
        r"worker",
        r"(?<![a-z])r",
        r"local[-_ .]?rank",
        r"(?<![a-z])(?:gpu|tp)",
    )
)
NUMBER = re.compile(r"\d+")
PREVIOUS = re.compile(r"previous-\d+")  # an older run of the folder
EVENTS = (".json", ".json.gz")
TOLD = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d{1,6})\b')
HEAD_BYTES = 1 << 20  # of a Chrome trace, before its events


class TooFewRanks(ValueError):
    """Of the captures fewer than two hold GPU activity."""


def named_rank(path: Path) -> int | None:
    """The rank that the file's name says; None: it says none."""
    place = place_of_rank(path.name)
    return int(place[1]) if place else None


def place_of_rank(name: str) -> re.Match[str] | None:
    """Of the surest word the last."""
    found = (list(word.finditer(name)) for word in NUMBERS)
    return next((places[-1] for places in found if places), None)


def captures_in(folder: Path) -> list[Path]:
    """Of the ranks of one training: in a run's folder, its profile/, or one folder for each host.

    One file a rank is one window, whatever the files are called. Of several windows the newest, if
    it has several ranks. Where no two files are named after ranks, Chrome traces that say in their
    head which they are; else an nsys export that holds the processes of several, or one of each
    host: from a folder of each host its newest capture; from one folder the newest, and what ran at
    the same time on other hosts, if the exports tell both. [] where there is none of these. What
    went meanwhile stays among them, for whoever reads it to say so. Raises OSError.
    """
    for places in ((folder, folder / "profile"), folders_of_hosts(folder)):
        found = [file for place in places if place.is_dir() for file in files_of_ranks(place)]
        newest = max(found, key=opening.modified_ns, default=None)
        if newest is None:
            continue
        window = [file for file in found if window_of(file) == window_of(newest)]
        beside = [file for file in found if file.parent == newest.parent]
        both = [file for file in window if file in beside]
        # hosts do not share a rank; two runs do, and two windows
        for chosen in (found, window, both):
            if len(ranks_of(chosen)) == len(chosen) > 1:
                return by_rank(chosen)
        if len(ranks_of(beside)) > 1:
            return by_rank(beside)
    captures = captures_of_run(folder)
    told = {rank: file for file in captures if (rank := told_rank(file)) is not None}
    if len(told) > 1:
        return [*(told[rank] for rank in sorted(told)), *gone(captures)]
    if captures:
        return sessions(captures)
    hosts = [host for host in sorted(folder.iterdir()) if not PREVIOUS.fullmatch(host.name)]
    of_hosts = [file for host in hosts for file in newest_first(captures_of_run(host))[:1]]
    return [file for file in of_hosts if session_of(file)]


def is_one_of_ranks(path: Path) -> bool:
    """Whether the captures of other ranks lie beside it."""
    try:
        files = captures_in(path.parent) if path.is_file() else []
    except OSError:
        return False
    return len(files) > 1 and path in files


def sessions(captures: Sequence[Path]) -> list[Path]:
    """By name: the newest, if it is an export of several processes, and those of other hosts."""
    taken = dict[Path, nsys_facts.Session]()
    for file in newest_first(captures):
        session = session_of(file)
        if session and all(session.is_beside(other) for other in taken.values()):
            taken[file] = session
        if not taken and file.exists():
            return []
    return sorted([*taken, *gone(captures)]) if taken else []


def newest_first(files: Sequence[Path]) -> list[Path]:
    """Without other JSON, such as a report."""
    captures = [file for file in files if file.name.endswith(opening.ENDINGS)]
    return sorted(captures, key=opening.modified_ns, reverse=True)


def gone(files: Sequence[Path]) -> list[Path]:
    return [file for file in files if not file.exists()]


def captures_of_run(folder: Path) -> list[Path]:
    return [file for place in (folder, folder / "profile") for file in captures_of(place)]


def not_taken(paths: Sequence[Path], folders: Sequence[Path]) -> Finding | None:
    """What lies beside the captures of these folders that were chosen, or on another host."""
    places = {path.parent for path in paths}
    for folder in folders:
        if places.isdisjoint((folder, folder / "profile")):
            places.update(folders_of_hosts(folder))
    beside = {file for place in places for file in captures_of(place)}
    others = [
        file
        for file in sorted(beside.difference(paths))
        if named_rank(file) is not None or not file.name.endswith(EVENTS)
    ]
    if not others:
        return None
    count = f"{len(others)} captures" if len(others) > 1 else "1 capture"
    said = f"left out: {count} beside these, as {others[0].name}, of another window or run"
    cure = "Name the files, to have them read together."
    other_window = {NUMBER.sub("", window_of(file)) for file in others} <= {
        NUMBER.sub("", window_of(file)) for file in paths
    }
    return Finding("note" if other_window else "warning", said, cure)


def told_rank(path: Path) -> int | None:
    """The rank in the head of a Chrome trace; None: it says none."""
    if not path.name.endswith(EVENTS):
        return None
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            found = TOLD.search(file.read(HEAD_BYTES))
    except (OSError, EOFError, zlib.error):
        return None  # who reads all of it says so
    return int(found[1]) if found else None


def session_of(path: Path) -> nsys_facts.Session | None:
    """Of an nsys export that has collectives and the kernels of several processes."""
    try:
        if path.name.endswith(".sqlite.gz"):
            with opening.unpack(path) as plain:
                return nsys_facts.session_of_ranks(plain)
        return nsys_facts.session_of_ranks(path) if path.suffix == ".sqlite" else None
    except (ValueError, OSError):
        return None  # who reads all of it says so


def folders_of_hosts(folder: Path) -> list[Path]:
    hosts = [host for host in sorted(folder.iterdir()) if not PREVIOUS.fullmatch(host.name)]
    return [place for host in hosts for place in (host, host / "profile")]


def ranks_of(files: Sequence[Path]) -> set[int | None]:
    return {named_rank(file) for file in files}


def by_rank(files: Sequence[Path]) -> list[Path]:
    return sorted(files, key=lambda file: (named_rank(file) or 0, file.name))


def files_of_ranks(folder: Path) -> list[Path]:
    """Captures whose names say a rank."""
    return [file for file in captures_of(folder) if named_rank(file) is not None]


def captures_of(folder: Path) -> list[Path]:
    """What looks like a capture. Raises OSError.

    Of a report and its export the export; of a file and its .gz the newer.
    """
    found = [
        file
        for file in opening.entries(folder)
        if file.name.endswith((*opening.ENDINGS, *EVENTS))
        and not opening.MANIFEST.fullmatch(file.name)
        and file.is_file()
    ]
    again = {file.with_suffix(opening.REPORT) for file in found if file.suffix == ".sqlite"}
    for file in found:
        if (packed := file.with_name(f"{file.name}.gz")) in found:
            again.add(min(packed, file, key=opening.modified_ns))
    return [file for file in found if file not in again]


def window_of(path: Path) -> str:
    """The same for files of one window of one run, packed or not: the name without the rank."""
    name = path.name.removesuffix(".gz")
    place = place_of_rank(name)
    return name[: place.start()] + name[place.end() :] if place else name


def rank_captures(
    paths: Sequence[Path], ranks: bool, device: int | None = None, process: int | None = None
) -> list[Path]:
    """Those to be taken together; [] where one process of one capture is meant.

    Several are meant by several paths, of files or of hosts' folders, by a folder that holds the
    captures of several ranks, unless a process is chosen, and by `ranks` of one file. Raises
    ValueError where one of several folders holds no capture, and where a file is given twice.
    """
    if len(paths) == 1 and paths[0].is_dir():
        return [] if (device, process) != (None, None) else captures_in(paths[0])
    if not ranks and len(paths) == 1:
        return []
    of_paths = [(captures_in(p) or [opening.newest(p)]) if p.is_dir() else [p] for p in paths]
    found: dict[Path, Path] = {}
    for file in chain.from_iterable(of_paths):
        real = Path(os.path.realpath(file))  # Path.resolve raises at a link to itself
        if real in found:
            raise ValueError(f"{file}: given twice")
        found[real] = file
    return list(found.values())
