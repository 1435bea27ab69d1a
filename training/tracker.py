"""The record of a training run: metrics.jsonl is the truth, W&B a mirror under the same names.

train.py opens one tracker, logs rows to it, and calls finish() in a `finally`: that call is what
bounds the time W&B can take at the end. Beside metrics.jsonl it writes summary.json.
"""

import contextlib
import json
import logging
import math
import os
from pathlib import Path

from configs.training import WandbConfig
from training.tensorboard import TensorBoard
from training.wandb_mirror import WandbMirror, check_wandb

log = logging.getLogger(__name__)

Value = float | int | None | str


def open_tracker(
    out_dir: Path,
    wandb: WandbConfig,
    *,
    rank: int,
    config: dict,
    run_record: dict,
    tags: list[str],
    iteration: int,
    name: str,
    tensorboard: bool = False,
) -> "Tracker | NullTracker":
    """The tracker of rank 0; any other rank gets one that does nothing.

    config: keys and values, nested or not; W&B gets them flat (`section.key`).
    run_record: JSON values that tell what ran: "data" (required), attention backend, device,
        versions, start time; the first line of metrics.jsonl, and `run.*` in W&B's config.
    tags, name: for W&B; `wandb.tags` are added to the first, `wandb.name` goes before the second.
    iteration: the first to be trained; above 0 on resume. Lines of metrics.jsonl that come before
        this opening and have a larger `iter` belong to work that was lost with the old process.

    Raises ValueError where check_wandb does, and where out_dir cannot be written.
    """
    if rank != 0:
        return NullTracker()
    mode = check_wandb(wandb)
    if mode == "offline" and wandb.mode == "auto":
        log.info("W&B: this run is recorded offline (no API key, or WANDB_MODE says so)")
    lines = JsonLines(out_dir / "metrics.jsonl")
    lines.append({"run": run_record, "iter": iteration})
    mirror = None
    if mode != "disabled":
        mirror = WandbMirror(
            out_dir,
            mode,
            project=wandb.project,
            name=wandb.name or name,
            group=wandb.group,
            tags=list(dict.fromkeys([*wandb.tags, *tags])),
            config=_flat({**config, "run": run_record}),
        )
    board = TensorBoard(out_dir / "tensorboard") if tensorboard else None
    return Tracker(out_dir, lines, mirror, board, data=run_record["data"])


class Tracker:
    """Writes rows to metrics.jsonl and, where wanted, to W&B and TensorBoard."""

    def __init__(
        self,
        out_dir: Path,
        lines: "JsonLines",
        mirror: WandbMirror | None,
        board: TensorBoard | None,
        *,
        data: str,
    ) -> None:
        self._out_dir = out_dir
        self._lines = lines
        self._mirror = mirror
        self._board = board
        self._data = data
        self._summary: dict = {}
        self._finished = False

    def wait_until_quiet(self) -> None:
        """Until W&B has started, which takes the interpreter away from training for a second."""
        if self._mirror:
            self._mirror.wait_until_started()

    def log(self, metrics: dict[str, Value]) -> None:
        """Record a row; `metrics` has "iter". Costs microseconds, and survives the disk and W&B.

        NaN and infinities become null, which is all that JSON has for them; nulls are not sent to
        W&B. Each line names the data, so that a loss on a stand-in text is never mistaken.
        """
        row = _without_nan(metrics)
        self._lines.append({**row, "data": self._data})
        if self._mirror:
            self._mirror.log(_without_none(row))
        if self._board:
            self._board.log(row)

    def summary(self, values: dict[str, Value]) -> None:
        """Add the run's results to summary.json and to W&B's summary."""
        values = _without_nan(values)
        self._summary.update(values)
        self._write_summary()
        if self._mirror:
            self._mirror.summary(_without_none(values))

    def finish(self, exit_code: int = 0) -> None:
        """Close the record; W&B gets a minute to upload, and half of one if it does not answer."""
        if self._finished:
            return
        self._finished = True
        try:
            if self._board:
                self._board.close()
            if self._mirror:
                self._mirror.finish(exit_code)
                failure = self._mirror.failure
                if self._lines.refused and self._mirror.mode == "offline" and not failure:
                    failure = "its offline file may lack rows, too: the disk refused some"
                    log.warning("W&B: %s", failure)  # wandb itself is silent about that
                self._summary["wandb"] = {
                    "mode": self._mirror.mode,
                    "failure": failure,
                    "rows_dropped": self._mirror.rows_dropped,
                }
                self._write_summary()
        finally:
            self._lines.close()

    @property
    def sync_command(self) -> str | None:
        """After finish(): how to upload what W&B's server has not got; None if it has all."""
        return self._mirror.sync_command if self._mirror else None

    def _write_summary(self) -> None:
        path = self._out_dir / "summary.json"
        temporary = path.with_suffix(".json.tmp")
        try:
            temporary.write_text(json.dumps(self._summary, indent=1, allow_nan=False) + "\n")
            os.replace(temporary, path)
        except OSError as error:
            log.warning("cannot write %s: %s", path, error)


class NullTracker:
    """A tracker for the ranks that record nothing."""

    sync_command = None

    def wait_until_quiet(self) -> None:
        pass

    def log(self, metrics: dict[str, Value]) -> None:
        pass

    def summary(self, values: dict[str, Value]) -> None:
        pass

    def finish(self, exit_code: int = 0) -> None:
        pass


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

    def append(self, record: dict) -> None:
        self._unwritten += json.dumps(record, allow_nan=False).encode() + b"\n"
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


def _without_nan(values: dict) -> dict:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in values.items()
    }


def _without_none(values: dict) -> dict:
    return {key: value for key, value in values.items() if value is not None}


def _flat(values: dict, prefix: str = "") -> dict:
    """{"a": {"b": 1}} as {"a.b": 1}: W&B's comparison panels want flat keys."""
    flat: dict = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        flat |= _flat(value, name + ".") if isinstance(value, dict) else {name: value}
    return flat
