"""Search for the captures of the ranks of one training. Called by the verbs and by files."""

import gzip
import os
import re
import zlib
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from profiling.analysis.records import Finding
from profiling.shared.run_files import FACTS
from profiling.timeline import nsys_facts, opening

# words before a rank's number in file names, the most reliable first: a `local` rank counts within
# one host only
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
RANK_IN_HEAD = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d{1,6})\b')
MOST_NAMED = 5  # captures, and folders, in a message
HEAD_BYTES = 1 << 20  # size of a Chrome trace's head, before its events


class TooFewRanks(ValueError):
    """Fewer than two of the captures hold GPU activity."""


def rank_in_name(path: Path) -> int | None:
    """Rank that the file's name gives, or None without one."""
    place = place_of_rank(path.name)
    return int(place[1]) if place else None


def place_of_rank(name: str) -> re.Match[str] | None:
    """Last match in `name` of the most reliable word that it contains, or None."""
    matches = (list(word.finditer(name)) for word in NUMBERS)
    return next((places[-1] for places in matches if places), None)


def captures_in(folder: Path) -> list[Path]:
    """Captures of the ranks of one training in a run's folder; [] if there are none.

    They are looked for in the folder, its profile/, and in a folder for each host. The rules, in
    this order:

    1. Files named after ranks. One file per rank makes one window, whatever the files are called;
       among several windows the newest is taken, if it has several ranks.
    2. Chrome traces whose heads say which ranks they are.
    3. An nsys export that holds the processes of several ranks, or one such export for each host.
       Each host's folder contributes its newest capture. In a single folder it is the newest export
       and those that ran at the same time on other hosts, if the exports tell both.

    A file that is deleted meanwhile stays in the list, so that whoever reads it reports that.
    Raises OSError.
    """
    for places in ((folder, folder / "profile"), folders_of_hosts(folder)):
        named = [file for place in places if place.is_dir() for file in files_of_ranks(place)]
        newest = max(named, key=opening.modified_ns, default=None)
        if newest is None:
            continue
        window = [file for file in named if window_of(file) == window_of(newest)]
        beside = [file for file in named if file.parent == newest.parent]
        both = [file for file in window if file in beside]
        # two hosts never share a rank, whereas two runs do, and so do two windows
        for chosen in (named, window, both):
            if len(ranks_of(chosen)) == len(chosen) > 1:
                return by_rank(chosen)
        if len(ranks_of(beside)) > 1:
            return by_rank(beside)
    captures = captures_of_run(folder)
    by_head = {rank: file for file in captures if (rank := rank_in_head(file)) is not None}
    if len(by_head) > 1:
        return [*(by_head[rank] for rank in sorted(by_head)), *deleted_files(captures)]
    if captures:
        return session_files(captures)
    of_hosts = [
        file for host in hosts_in(folder) for file in newest_first(captures_of_run(host))[:1]
    ]
    return [file for file in of_hosts if session_of(file)]


def refuse_other_programs(folder: Path, ranks: Sequence[Path]) -> None:
    """Raise ValueError if `ranks` lie in folders of hosts, and other captures in `folder` itself.

    Nothing tells then which of them is meant.
    """
    places = (folder, folder / "profile")
    if not ranks or any(file.parent in places for file in ranks):
        return
    if captures := sorted(map(str, opening.captures_at(folder))):
        hosts = sorted({str(file.parent) for file in ranks})
        words = [*captures[:MOST_NAMED], *hosts[:MOST_NAMED]]
        more = len(captures) + len(hosts) - len(words)
        raise ValueError(
            f"{folder}: holds captures of several programs; name the one that you mean: "
            f"{', '.join(words)}{f' and {more} more' if more else ''}"
        )


def is_one_of_ranks(path: Path) -> bool:
    """Whether captures of other ranks lie beside this one."""
    try:
        files = captures_in(path.parent) if path.is_file() else []
    except OSError:
        return False
    return len(files) > 1 and path in files


def session_files(captures: Sequence[Path]) -> list[Path]:
    """The newest capture and those of other hosts from the same time, sorted by name.

    [] if the newest is not an export of several processes. Deleted files stay in the list.
    """
    taken = dict[Path, nsys_facts.Session]()
    for file in newest_first(captures):
        session = session_of(file)
        if session and all(session.is_beside(other) for other in taken.values()):
            taken[file] = session
        if not taken and file.exists():
            return []
    return sorted([*taken, *deleted_files(captures)]) if taken else []


def newest_first(files: Sequence[Path]) -> list[Path]:
    """Captures among `files`, the newest first; other JSON, such as a report, is left out."""
    captures = [file for file in files if file.name.endswith(opening.ENDINGS)]
    return sorted(captures, key=opening.modified_ns, reverse=True)


def deleted_files(files: Sequence[Path]) -> list[Path]:
    return [file for file in files if not file.exists()]


def captures_of_run(folder: Path) -> list[Path]:
    return [file for place in (folder, folder / "profile") for file in captures_of(place)]


def left_out_finding(paths: Sequence[Path], folders: Sequence[Path]) -> Finding | None:
    """Finding on captures that were not chosen, beside `paths` or on another host; None: none.

    `folders` are those that were searched. It is a note where the names differ only in numbers, as
    those of another window do, else a warning.
    """
    places = {path.parent for path in paths}
    for folder in folders:
        if places.isdisjoint((folder, folder / "profile")):
            places.update(folders_of_hosts(folder))
    beside = {file for place in places for file in captures_of(place)}
    others = [
        file
        for file in sorted(beside.difference(paths))
        if rank_in_name(file) is not None or not file.name.endswith(EVENTS)
    ]
    if not others:
        return None
    count = f"{len(others)} captures" if len(others) > 1 else "1 capture"
    what = (
        f"left out: {count} in the same folders, such as {others[0].name}, of another window or run"
    )
    cure = "To read them together, name the files."
    other_window = {NUMBER.sub("", window_of(file)) for file in others} <= {
        NUMBER.sub("", window_of(file)) for file in paths
    }
    return Finding("note" if other_window else "warning", what, cure)


def rank_in_head(path: Path) -> int | None:
    """Rank in the head of a Chrome trace, or None without one."""
    if not path.name.endswith(EVENTS):
        return None
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            match = RANK_IN_HEAD.search(file.read(HEAD_BYTES))
    except (OSError, EOFError, zlib.error):
        return None  # who reads all of it says so
    return int(match[1]) if match else None


def session_of(path: Path) -> nsys_facts.Session | None:
    """Session of an nsys export with collectives and kernels of several processes; else None."""
    try:
        if path.name.endswith(".sqlite.gz"):
            with opening.unpack(path) as plain:
                return nsys_facts.session_of_ranks(plain)
        return nsys_facts.session_of_ranks(path) if path.suffix == ".sqlite" else None
    except (ValueError, OSError):
        return None  # who reads all of it says so


def hosts_in(folder: Path) -> list[Path]:
    """Entries that may be folders of hosts."""
    return [
        entry
        for entry in sorted(folder.iterdir())
        if entry.name != FACTS and not PREVIOUS.fullmatch(entry.name)
    ]


def folders_of_hosts(folder: Path) -> list[Path]:
    return [place for host in hosts_in(folder) for place in (host, host / "profile")]


def ranks_of(files: Sequence[Path]) -> set[int | None]:
    return {rank_in_name(file) for file in files}


def by_rank(files: Sequence[Path]) -> list[Path]:
    return sorted(files, key=lambda file: (rank_in_name(file) or 0, file.name))


def files_of_ranks(folder: Path) -> list[Path]:
    """Captures in `folder` whose names give a rank."""
    return [file for file in captures_of(folder) if rank_in_name(file) is not None]


def captures_of(folder: Path) -> list[Path]:
    """Files in `folder` that look like captures. Raises OSError.

    The export is taken instead of its report, and the newer of a file and its .gz.
    """
    files = [
        file
        for file in opening.entries(folder)
        if file.name.endswith((*opening.ENDINGS, *EVENTS))
        and not opening.MANIFEST.fullmatch(file.name)
        and not opening.RANK_TIMES.fullmatch(file.name)
        and file.is_file()
    ]
    redundant = {file.with_suffix(opening.REPORT) for file in files if file.suffix == ".sqlite"}
    for file in files:
        if (packed := file.with_name(f"{file.name}.gz")) in files:
            redundant.add(min(packed, file, key=opening.modified_ns))
    return [file for file in files if file not in redundant]


def window_of(path: Path) -> str:
    """File name without the rank and .gz: equal for all files of one window of one run."""
    name = path.name.removesuffix(".gz")
    place = place_of_rank(name)
    return name[: place.start()] + name[place.end() :] if place else name


def rank_captures(
    paths: Sequence[Path], ranks: bool, device: int | None = None, process: int | None = None
) -> list[Path]:
    """Captures to be analysed together; [] where one process of one capture is meant.

    Several are meant by several paths (files or hosts' folders), by one folder that holds the
    captures of several ranks unless `device` or `process` is chosen, and by one file with `ranks`.
    Raises ValueError where one of several folders holds no capture, a file is given twice, or one
    folder holds captures of several programs.
    """
    if len(paths) == 1 and paths[0].is_dir():
        if (device, process) != (None, None):
            return []
        chosen = captures_in(paths[0])
        refuse_other_programs(paths[0], chosen)
        return chosen
    if not ranks and len(paths) == 1:
        return []
    of_paths = [(captures_in(p) or [opening.newest(p)]) if p.is_dir() else [p] for p in paths]
    files: dict[Path, Path] = {}
    for file in chain.from_iterable(of_paths):
        real = Path(os.path.realpath(file))  # Path.resolve raises at a link to itself
        if real in files:
            raise ValueError(f"{file}: given twice")
        files[real] = file
    return list(files.values())
