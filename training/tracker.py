"""The rows of a training run, handed to all that keeps them: files, TensorBoard, W&B.

training.record opens one tracker, logs rows to it, and calls finish() in the end: that call is what
bounds the time that W&B can take there.
"""

import logging
import math
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from configs.training import WandbConfig
from profiling.run_files import METRICS
from training.sinks import JsonFiles, Row, RunFacts, Sink, Value
from training.tensorboard import TensorBoard
from training.wandb_mirror import WandbMirror, check_wandb

log = logging.getLogger(__name__)


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
    files = JsonFiles(out_dir / METRICS, str(facts.in_force["data"]))
    files.append({"run": facts.in_force, "iter": facts.iteration})
    sinks: list[Sink] = [files]
    if tensorboard:
        sinks.append(TensorBoard(out_dir / "tensorboard", facts))
    if mode != "disabled":
        sinks.append(WandbMirror(files, mode, wandb, facts))
    return Tracker(sinks)


@dataclass
class Tracker:
    """Hands rows to its sinks; on the ranks that record nothing it has none."""

    sinks: list[Sink]

    def wait_until_quiet(self) -> None:
        """Until W&B has started, which takes the interpreter away from training for a second."""
        for sink in self.sinks:
            sink.wait_until_started()

    def log(self, metrics: Row) -> None:
        """Record a row; `metrics` has "iter". Costs microseconds, and survives the disk and W&B.

        NaN and infinities become null, which is all that JSON has for them.
        """
        row = without_nan(metrics)
        for sink in self.sinks:
            sink.log(row)

    def summary(self, results: Row) -> None:
        """Add the run's results, with "iterations", to summary.json and the other summaries."""
        values = without_nan(results)
        for sink in self.sinks:
            sink.summary(values)

    def finish(self, exit_code: int = 0) -> None:
        """Close all; W&B gets a minute to upload, and half of one if it does not answer."""
        with ExitStack() as endings:  # the last sink first; the files, too, after a Ctrl-C in it
            for sink in self.sinks:
                endings.callback(sink.finish, exit_code)

    def missing(self) -> list[str]:
        """The names of files that somebody deleted in the midst of the run."""
        return [name for sink in self.sinks for name in sink.missing()]

    def make_again(self) -> None:
        """The missing files, with all that was in them. Raises OSError."""
        for sink in self.sinks:
            if sink.missing():
                sink.make_again()

    def lacking(self) -> list[str]:
        """After finish(): what of this run is not on the disk."""
        return [what for sink in self.sinks for what in sink.lacking()]

    @property
    def sync_command(self) -> str | None:
        """After finish(): how to upload what a server has not got; None if it has all."""
        return next(filter(None, (sink.sync_command for sink in self.sinks)), None)


def without_nan(values: Row) -> dict[str, Value]:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in values.items()
    }
