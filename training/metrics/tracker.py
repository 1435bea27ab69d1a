"""Hands the rows of a run to all that keep them: files, TensorBoard, W&B, Trackio, MLflow.

training.metrics.record opens one tracker, logs rows to it, and calls finish() at the end, which
bounds the time that W&B can take there.
"""

import logging
import math
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from configs.training import TrainingConfig, WandbConfig
from profiling.shared.run_files import METRICS
from training.metrics.mlflow import MlflowRun
from training.metrics.sinks import Alert, JsonFiles, Row, RunFacts, Sink, Value
from training.metrics.tensorboard import TensorBoard
from training.metrics.threaded_sink import ThreadedSink
from training.metrics.trackio import TrackioRun
from training.metrics.wandb_mirror import WandbMirror
from training.metrics.wandb_settings import check_wandb

log = logging.getLogger(__name__)


def open_tracker(
    out_dir: Path,
    facts: RunFacts,
    wandb: WandbConfig,
    others: TrainingConfig | None = None,
) -> "Tracker":
    """The tracker of rank 0; it first appends a line with the run's facts to metrics.jsonl.

    `others` has a key for each place besides the files and W&B.

    Earlier lines with a larger `iter` than that of this line belong to work that was lost with the
    old process. Raises ValueError where check_wandb does, and if out_dir cannot be written.
    """
    mode = check_wandb(wandb)
    if mode == "offline" and wandb.mode == "auto":
        log.info("W&B: this run is recorded offline (no API key, or WANDB_MODE says so)")
    if mode == "disabled":
        why = "the environment" if wandb.mode == "auto" else "wandb.mode=disabled"
        log.info("W&B: off, as %s says; the rows are in %s", why, out_dir / METRICS)
    files = JsonFiles(out_dir / METRICS, str(facts.in_force["data"]))
    files.append({"run": facts.in_force, "iter": facts.iteration})
    sinks: list[Sink] = [files]
    if others and others.tensorboard:
        sinks.append(TensorBoard(out_dir / "tensorboard", facts))
    if others and others.trackio:
        make = partial(TrackioRun, facts, wandb.project, wandb.group)
        sinks.append(ThreadedSink("Trackio", make))
    if others and others.mlflow:
        sinks.append(ThreadedSink("MLflow", partial(MlflowRun, facts, wandb.project)))
    if mode != "disabled":
        sinks.append(WandbMirror(files, mode, wandb, facts))
    return Tracker(sinks)


@dataclass
class Tracker:
    """Hands rows to its sinks; on ranks that record nothing it has none."""

    sinks: list[Sink]

    def wait_until_quiet(self) -> None:
        """Waits until W&B has started, which takes the interpreter from training for a second."""
        for sink in self.sinks:
            sink.wait_until_started()

    def log(self, metrics: Row) -> None:
        """Records a row; `metrics` has "iter". Takes microseconds, and outlives the disk and W&B.

        NaN and infinities become null, as JSON has no number for them.
        """
        row = without_nan(metrics)
        for sink in self.sinks:
            sink.log(row)

    def alert(self, alert: Alert) -> None:
        """Sends a message to whoever follows the run from elsewhere; W&B alone can."""
        for sink in self.sinks:
            sink.alert(alert)

    def summary(self, results: Row) -> None:
        """Adds the run's results, with "iterations", to summary.json and the other summaries."""
        values = without_nan(results)
        for sink in self.sinks:
            sink.summary(values)

    def finish(self, exit_code: int = 0) -> None:
        """Closes all sinks; W&B gets a minute to upload, or half of one if it does not answer."""
        # The last sink comes first; the stack closes the others even after a Ctrl-C in it.
        with ExitStack() as endings:
            for sink in self.sinks:
                endings.callback(sink.finish, exit_code)

    def missing(self) -> list[str]:
        """Names of files that somebody deleted while the run was under way."""
        return [name for sink in self.sinks for name in sink.missing()]

    def make_again(self) -> None:
        """Writes the missing files again, with all that was in them. Raises OSError."""
        for sink in self.sinks:
            if sink.missing():
                sink.make_again()

    def unsaved_parts(self) -> list[str]:
        """Names of what is not on the disk; to be called after finish()."""
        return [what for sink in self.sinks for what in sink.unsaved_parts()]

    @property
    def sync_command(self) -> str | None:
        """Command that uploads what a server has not got, or None; to be read after finish()."""
        return next(filter(None, (sink.sync_command for sink in self.sinks)), None)


def without_nan(values: Row) -> dict[str, Value]:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in values.items()
    }
