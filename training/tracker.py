"""The rows of a training run: metrics.jsonl is the truth, W&B and TensorBoard have the same names.

training.record opens one tracker, logs rows to it, and calls finish() in the end: that call is what
bounds the time that W&B can take there. Beside metrics.jsonl it writes summary.json.
"""

import contextlib
import json
import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cli.files import write_text
from configs.training import WandbConfig
from profiling.records import JsonObject
from training.tensorboard import TensorBoard
from training.wandb_mirror import WandbMirror, check_wandb

log = logging.getLogger(__name__)

Value = float | int | str | None
Row = Mapping[str, Value]  # by the metrics' names; "iter" is the iteration


class Sink(Protocol):
    """Where rows go besides metrics.jsonl. One that fails says so once, and takes no more."""

    def wait_until_started(self) -> None: ...
    def log(self, row: Row) -> None: ...
    def summary(self, values: Row) -> None: ...
    def finish(self, exit_code: int, disk_refused: bool) -> JsonObject: ...  # for summary.json
    @property
    def sync_command(self) -> str | None: ...  # what uploads the rest, after finish()


@dataclass(frozen=True)
class RunFacts:
    """What a tracker is told of a run at its beginning."""

    name: str  # in W&B, unless wandb.name says another
    config: JsonObject  # keys and values, nested or not; W&B gets them flat (`section.key`)
    in_force: JsonObject  # what the keys came to, with "data": the first line of metrics.jsonl
    iteration: int  # the first to be trained; above 0 on resume
    tags: tuple[str, ...] = ()  # in W&B, besides wandb.tags


def open_tracker(
    out_dir: Path, facts: RunFacts, wandb: WandbConfig, tensorboard: bool = False
) -> "Tracker":
    """The tracker of rank 0.

    Lines of metrics.jsonl that come before this opening and have a larger `iter` than its first
    iteration belong to work that was lost with the old process. Raises ValueError where check_wandb
    does, and where out_dir cannot be written.
    """
    mode = check_wandb(wandb)
    if mode == "offline" and wandb.mode == "auto":
        log.info("W&B: this run is recorded offline (no API key, or WANDB_MODE says so)")
    lines = JsonLines(out_dir / "metrics.jsonl")
    lines.append({"run": facts.in_force, "iter": facts.iteration})
    sinks: list[Sink] = []
    if tensorboard:
        sinks.append(TensorBoard(out_dir / "tensorboard"))
    if mode != "disabled":
        mirror = WandbMirror(
            out_dir,
            mode,
            project=wandb.project,
            name=wandb.name or facts.name,
            group=wandb.group,
            tags=list(dict.fromkeys([*wandb.tags, *facts.tags])),
            config=_flat({**facts.config, "run": facts.in_force}),
        )
        sinks.append(mirror)
    return Tracker(out_dir, lines, sinks, str(facts.in_force["data"]))


class Tracker:
    """Writes rows to metrics.jsonl and hands them to the sinks."""

    def __init__(self, out_dir: Path, lines: "JsonLines", sinks: list[Sink], data: str) -> None:
        self._out_dir = out_dir
        self._lines = lines
        self._sinks = sinks
        self._data = data
        self._summary: JsonObject = {}
        self._finished = False

    def wait_until_quiet(self) -> None:
        """Until W&B has started, which takes the interpreter away from training for a second."""
        for sink in self._sinks:
            sink.wait_until_started()

    def log(self, metrics: Row) -> None:
        """Record a row; `metrics` has "iter". Costs microseconds, and survives the disk and W&B.

        NaN and infinities become null, which is all that JSON has for them. Each line names the
        data, so that a loss on a stand-in text is never mistaken.
        """
        row = _without_nan(metrics)
        self._lines.append({**row, "data": self._data})
        for sink in self._sinks:
            sink.log(row)

    def summary(self, results: Row) -> None:
        """Add the run's results, with "iterations", to summary.json and the sinks' summaries."""
        values = _without_nan(results)
        self._summary.update(values)
        self._write_summary()
        for sink in self._sinks:
            sink.summary(values)

    def finish(self, exit_code: int = 0) -> None:
        """Close all; W&B gets a minute to upload, and half of one if it does not answer."""
        if self._finished:
            return
        self._finished = True
        try:
            for sink in self._sinks:
                if said := sink.finish(exit_code, self._lines.refused):
                    self._summary.update(said)
                    self._write_summary()
        finally:
            self._lines.close()

    @property
    def sync_command(self) -> str | None:
        """After finish(): how to upload what a server has not got; None if it has all."""
        return next(filter(None, (sink.sync_command for sink in self._sinks)), None)

    def _write_summary(self) -> None:
        try:
            text = json.dumps(self._summary, indent=1, allow_nan=False) + "\n"
            write_text(self._out_dir / "summary.json", text)
        except ValueError as error:
            log.warning("%s", error)


class NullTracker:
    """A tracker for the ranks that record nothing."""

    sync_command = None

    def nothing(self, *_: object) -> None:
        pass

    wait_until_quiet = log = summary = finish = nothing


class JsonLines:
    """A file to which JSON objects are appended, a line each, whatever happened to it before.

    A line is one write of the operating system, so a killed process leaves whole lines but for the
    last. What a full disk refuses is kept in memory and written, in order, once there is room.
    """

    def __init__(self, path: Path) -> None:
        """Open or create `path`; raises ValueError where that cannot be done."""
        self._path = path
        self._unwritten = bytearray()
        self.refused = False  # whether the disk ever refused a line
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _mend_last_line(path)
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        except OSError as error:
            raise ValueError(
                f"out_dir: cannot write {path} ({error.strerror}); choose another folder"
            ) from None

    def append(self, line: JsonObject) -> None:
        self._unwritten += json.dumps(line, allow_nan=False).encode() + b"\n"
        try:
            self._write()
        except OSError as error:
            if not self.refused:
                log.warning("cannot write %s (%s); its lines wait in memory", self._path, error)
                self.refused = True

    def close(self) -> None:
        try:
            self._write()
            os.close(self._file)
        except OSError as error:
            lost = self._unwritten.count(b"\n")
            log.warning("%s lacks its last %d lines: %s", self._path, lost, error)
            with contextlib.suppress(OSError):
                _mend_last_line(self._path)

    def _write(self) -> None:
        while self._unwritten:  # a disk that is almost full takes a part of a line
            del self._unwritten[: os.write(self._file, self._unwritten)]


def last_value(path: Path, name: str) -> float | None:
    """The last number called `name` in a metrics.jsonl; None where there is none, or no file."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    for line in reversed(lines):
        with contextlib.suppress(ValueError, AttributeError):  # half-written, or not ours
            value = json.loads(line).get(name)
            if isinstance(value, (int, float)) and math.isfinite(value):
                return float(value)
    return None


def _mend_last_line(path: Path) -> None:
    """End the last line, which a killed process may have left half-written, or cut it off."""
    content = path.read_bytes() if path.exists() else b""
    start = content.rfind(b"\n") + 1
    if start == len(content):
        return
    try:
        json.loads(content[start:])
        with open(path, "ab") as file:
            file.write(b"\n")
    except ValueError:
        log.warning("%s: cut off a half-written last line", path)
        os.truncate(path, start)


def _without_nan(values: Row) -> dict[str, Value]:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in values.items()
    }


def _flat(values: JsonObject, prefix: str = "") -> JsonObject:
    """{"a": {"b": 1}} as {"a.b": 1}: W&B's comparison panels want flat keys."""
    flat: JsonObject = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        flat |= _flat(value, name + ".") if isinstance(value, dict) else {name: value}
    return flat
