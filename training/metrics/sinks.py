"""Sinks for the rows of a run, and the first of them: metrics.jsonl and summary.json.

These files are the truth about a run, whatever happens to its disk.
"""

import contextlib
import json
import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from cli.files import is_still_at, write_text
from profiling.shared.json_records import JsonObject, to_json

log = logging.getLogger(__name__)

SILENT_S = 2.0  # a wait at the end of a run that lasts longer is announced

Value = float | int | str | None
Row = Mapping[str, Value]  # by the metrics' names; "iter" is the iteration


@dataclass(frozen=True)
class RunFacts:
    """Facts about a run that a tracker needs at its beginning."""

    name: str  # in W&B, unless wandb.name gives another
    config: JsonObject  # keys and values, sections nested
    in_force: JsonObject  # what follows from the keys, with "data": first line of metrics.jsonl
    iteration: int  # the first one to be trained; above 0 on resume
    tags: tuple[str, ...] = ()  # in W&B, besides wandb.tags
    environment: JsonObject = field(default_factory=dict)  # as in environment.json
    job_type: str = "train"  # in W&B: train or profile


@dataclass(frozen=True)
class Alert:
    """Message for a person who does not watch the run; it names no folder of this machine."""

    title: str  # the same for each alert of one cause; below 64 characters, as W&B wants it
    text: str
    level: Literal["WARN", "ERROR"] = "WARN"


class Sink(Protocol):
    """A place for rows. One that fails logs a warning once, and takes no more rows."""

    def log(self, row: Row) -> None: ...
    def summary(self, values: Row) -> None: ...
    def finish(self, exit_code: int = 0) -> None: ...

    def wait_until_started(self) -> None:
        return None  # most have nothing to start

    def alert(self, alert: Alert) -> None:
        return None  # most can send none

    def missing(self) -> list[str]:
        """Names of files that somebody deleted, and that make_again() can write anew."""
        return []

    def make_again(self) -> None:
        """Writes the missing files anew. Raises OSError."""
        return None

    def unsaved_parts(self) -> list[str]:
        """Names of what is not on the disk; to be called after finish()."""
        return []

    @property
    def sync_command(self) -> str | None:
        """Command that uploads what a server has not got, or None; to be read after finish()."""
        return None


def announce_wait(tracker: str, limit_s: float) -> None:
    log.info("waiting for %s, at most %.0f s; Ctrl-C skips", tracker, limit_s)


@dataclass
class JsonFiles(Sink):
    """Writes rows as lines of metrics.jsonl, and results as summary.json.

    Each line names the data, so that a loss on a stand-in text is never mistaken. A line is one
    write of the operating system: a killed process leaves complete lines, except perhaps the last.
    Lines that a full disk refuses are written, in order, once there is room. The whole content is
    also kept in memory, in case somebody deletes the file. Raises ValueError if the file cannot be
    written.
    """

    path: Path  # of metrics.jsonl
    data: str  # source of the text
    content: bytearray = field(default_factory=bytearray)  # of the file, as it should be
    written: int = 0  # bytes of `content` that are on the disk
    refused: bool = False  # whether the disk ever refused a line
    results: JsonObject = field(default_factory=dict)
    unsaved: dict[str, str] = field(default_factory=dict)  # reasons, by what is not on the disk

    def __post_init__(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            mend_last_line(self.path)
            self.open()
            self.content += self.path.read_bytes()  # lines of the run that is resumed
            self.written = len(self.content)
        except OSError as error:
            raise ValueError(
                f"out_dir: cannot write {self.path} ({error.strerror}); choose another folder"
            ) from None

    def open(self) -> None:
        self.file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def missing(self) -> list[str]:
        return [] if is_still_at(self.file, self.path) else [self.path.name]

    def make_again(self) -> None:
        self.path.unlink(missing_ok=True)  # a file that took its place, such as an editor's copy
        deleted = self.file
        self.open()
        os.close(deleted)
        self.written = 0
        self.write()

    def log(self, row: Row) -> None:
        self.append({**row, "data": self.data})

    def append(self, line: JsonObject) -> None:
        self.content += json.dumps(line, allow_nan=False).encode() + b"\n"
        try:
            self.write()
        except OSError as error:
            if not self.refused:
                log.warning("cannot write %s (%s); its lines are kept in memory", self.path, error)
                self.refused = True

    def write(self) -> None:
        while self.written < len(self.content):  # an almost full disk takes only part of a line
            self.written += os.write(self.file, self.content[self.written :])

    def summary(self, values: Mapping[str, object]) -> None:
        self.results.update(values)
        path = self.path.with_name("summary.json")
        try:
            if self.missing():  # the folder was deleted, and may belong to another run by now
                raise ValueError(f"{path}: its folder was deleted")
            write_text(path, to_json(self.results, indent=1))
            self.unsaved.pop(path.name, None)
        except ValueError as error:
            self.unsaved[path.name] = str(error)

    def finish(self, exit_code: int = 0) -> None:
        try:
            self.write()
        except OSError as error:
            lost = self.content.count(b"\n", self.written)
            log.warning("%s is missing its last %d lines: %s", self.path, lost, error)
            self.unsaved[f"the last {lost} lines of {self.path.name}"] = str(error)
            with contextlib.suppress(OSError):
                mend_last_line(self.path)
        if "summary.json" in self.unsaved:  # there may be room by now
            self.summary({})
        os.close(self.file)

    def unsaved_parts(self) -> list[str]:
        return list(self.unsaved)


def mend_last_line(path: Path) -> None:
    """Ends the last line if it lacks its newline, or cuts it off if it is half-written."""
    content = path.read_bytes() if path.exists() else b""
    start = content.rfind(b"\n") + 1
    if start == len(content):
        return
    try:
        json.loads(content[start:])
        with open(path, "ab") as file:
            file.write(b"\n")
    except ValueError:
        log.warning("%s: removed an incomplete last line", path)
        os.truncate(path, start)


def last_value(path: Path, name: str) -> float | None:
    """Last finite number called `name` in a metrics.jsonl, or None if there is none, or no file."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    for line in reversed(lines):
        with contextlib.suppress(ValueError, AttributeError):  # half-written, or not ours
            value = json.loads(line).get(name)
            if isinstance(value, (int, float)) and math.isfinite(value):
                return float(value)
    return None
