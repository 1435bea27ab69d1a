"""Records that a server has opened, by their ids, and which files it may read."""

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.plain import plain
from profiling.agent.names import names_of
from profiling.agent.rows import Record, tables
from profiling.analysis.memory.memory_records import MemoryReport
from profiling.analysis.ranks.rank_records import RanksReport
from profiling.analysis.records import Report
from profiling.analysis.runs.folder import RunFolder
from profiling.analysis.runs.listing import LISTED, leads_out

Opened = Report | RanksReport | MemoryReport | RunFolder
# files and folders of a run that are read with a capture in it
READ_TOO = re.compile(r"window-.*\.json|step_times.*\.json|summary\.json|.*\.jsonl|.*\.yaml|facts")
END_BYTES = 65_536  # of each end of a file, by which its content is known


@dataclass(frozen=True)
class Kept:
    record: Record
    words: list[str]  # of the paths, for a command
    command: list[str]  # words behind `profiling` that make its page
    names: frozenset[str]  # that no sentence may have


class Library:
    """Records of what lies below the working directory; nothing outside of it is read."""

    def __init__(self, read: Callable[[Path], Opened]) -> None:
        self.root = os.path.realpath(".")
        self.read = read
        self.kept: dict[str, Kept] = {}

    def inside(self, place: str) -> Path:
        """The path, relative to the root. Raises ValueError if what it leads to lies outside."""
        real = os.path.realpath(place)
        if os.path.commonpath([self.root, real]) != self.root:
            raise ValueError(
                f"{plain(place)}: lies outside of the server's root; start it with another --root"
            )
        named = os.path.relpath(os.path.join(self.root, place), self.root)
        return Path(os.path.relpath(real, self.root) if named.startswith("..") else named)

    def path_of(self, place: str) -> Path:
        """Path of a capture or a run, given by path or id. Raises ValueError."""
        if kept := self.kept.get(place):
            place = kept.words[0]
        path = self.inside(place)
        if not path.exists():
            raise ValueError(f"{plain(place)}: no such file or folder below the server's root")
        for other in read_with(path):
            if leads_out(other, self.root):
                raise ValueError(f"{plain(other)}: is a link that leads out of the server's root")
        return path

    def key_of(self, place: str) -> str:
        """The id of a capture or a run, which is opened. Raises ValueError."""
        if place in self.kept:
            return place
        path = self.path_of(place)
        key = digest([path], "")
        if key not in self.kept:
            record, place = self.read(path), str(path)
            page = ["report", place, "--html", "report.html"]
            if isinstance(record, RunFolder):
                page = ["dashboard", place, "-o", "runs.html"]
            self.keep(record, [path], "", page)
        return key

    def keep(self, record: Record, paths: Sequence[Path], question: str, command: list[str]) -> str:
        """Keep a record, made of `paths` to answer a question; return its id. The command, words
        behind `profiling`, makes its page."""
        key = digest(paths, question)
        names = frozenset() if isinstance(record, RunFolder) else names_of(record)
        self.kept[key] = Kept(record, [str(path) for path in paths], command, names)
        return key

    def record_of(self, key: str) -> Record:
        if key not in self.kept:
            raise ValueError(f"{plain(key)}: nothing with this id is open; call open with its path")
        return self.kept[key].record

    def opened(self, key: str) -> Opened:
        """The record of a capture or a run. Raises ValueError for that of a comparison."""
        record = self.record_of(key)
        if not isinstance(record, Opened):
            raise ValueError(f"{key}: is no capture; evidence has its rows")
        return record

    def resolves(self, name: str) -> bool:
        """Whether there are rows with this id."""
        key, _, kind = name.partition("/")
        return key in self.kept and (not kind or kind in tables(self.kept[key].record))

    def command_of(self, key: str) -> list[str]:
        return self.kept[key].command

    def names_in(self, key: str) -> frozenset[str]:
        return self.kept[key].names if key else frozenset()


def read_with(path: Path) -> list[Path]:
    """The files that are read with the one at `path`: in its folder, in its run's, or below it."""
    if path.is_dir():
        below = [Path(at, name) for at, *both in os.walk(path) for name in sum(both, [])]
        return [other for other in below if other.name.endswith(LISTED) or other.is_dir()]
    folders = [path.parent, path.parent.parent] if path.parent.name == "profile" else [path.parent]
    beside = [other for folder in folders for other in folder.iterdir()]
    stem = path.name.split(".")[0]  # a .nsys-rep is read from the .sqlite beside it
    return [
        other
        for other in beside
        if READ_TOO.fullmatch(other.name) or other.name.split(".")[0] == stem
    ]


def digest(paths: Sequence[Path], question: str) -> str:
    """Eight letters that change with the files, their names and the question."""
    known = hashlib.blake2b(question.encode(), digest_size=4)
    for path in paths:
        within = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in within:
            if file.is_file() and (file == path or file.name.endswith(LISTED)):
                known.update(f"{file.name}\0{file.stat().st_size}\0".encode(errors="replace"))
                with open(file, "rb") as content:
                    known.update(content.read(END_BYTES))
                    content.seek(max(0, file.stat().st_size - END_BYTES))
                    known.update(content.read(END_BYTES))
    return known.hexdigest()
