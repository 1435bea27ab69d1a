"""What a run leaves behind: rows in metrics.jsonl and W&B, lines on the screen, a summary.

Here, and not in the loop, times become tokens per second and MFU.
"""

import logging
import math
import statistics
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from configs.schema import Config
from data.dataset import STAND_IN, Dataset
from data.prepare import TINY_SHAKESPEARE_SHA256
from model import GPT, attention_in_force
from profiling.capture.gpu_metrics import GpuSampler, NoSampler
from profiling.hardware import mfu
from training.checkpoint import Progress
from training.clock import Laps
from training.console import Display, duration
from training.distributed import Ranks
from training.run_folder import open_run_folder
from training.tracker import NullTracker, Tracker, last_value, open_tracker
from training.warm_up import WarmUp

log = logging.getLogger(__name__)


class Record:
    """`with Record(...) as record:`; on leaving it writes the summary and says what to do next."""

    def __init__(
        self,
        config: Config,
        model: GPT,
        ranks: Ranks,
        tracker: Tracker | NullTracker,
        progress: Progress,
        warm: WarmUp,
        gpu: GpuSampler | NoSampler,
        began_s: float,
    ):
        self.config, self.ranks, self.tracker, self.progress = config, ranks, tracker, progress
        self.gpu = gpu
        self.display = Display(progress.iteration, config.max_iters, ranks.rank)
        self.flops_per_token = model.flops_per_token()
        self.tokens_per_iteration = (
            config.batch_size * config.block_size * config.gradient_accumulation_steps
        )
        self.warm = warm
        self.step_ms: list[float] = []
        self.began_s = began_s

    def __enter__(self) -> "Record":
        self.display.__enter__()
        return self

    def trained(self, iteration: int, lr: float, loss: Tensor, laps: Laps) -> None:
        """A row for the iterations since the last one: `loss` of the last, times of all."""
        self.step_ms += laps.ms
        row = {"iter": iteration, "train/loss": loss.item(), "lr": lr, **self.speed(laps.ms)}
        row["time/elapsed_s"] = self.elapsed_s()
        if laps.captured_ms:
            row["profile/captured_steps"] = len(laps.captured_ms)
            row["profile/step_ms"] = statistics.median(laps.captured_ms)
        # energy per token is of ordinary iterations, as tokens per second are
        row |= self.gpu.read(None if laps.captured_ms else row["perf/tokens_per_s"])
        self.tracker.log(row)
        self.display.trained(row)
        self.check_loss(iteration, "training", row["train/loss"])

    def evaluated(self, iteration: int, losses: dict[str, float]) -> None:
        row = {"iter": iteration, **losses, "time/elapsed_s": self.elapsed_s()}
        self.tracker.log(row)
        self.display.evaluated(row)
        self.check_loss(iteration, "validation", losses["val/loss"])

    def check_loss(self, iteration: int, which: str, loss: float) -> None:
        """Ends the run when the loss is no number: nothing saved after it would be of use."""
        if math.isfinite(loss):
            return
        path = Path(self.config.out_dir) / "ckpt.pt"
        kept = f"{path} is the last good checkpoint" if path.exists() else "nothing was saved yet"
        raise SystemExit(
            f"train.py: {which} loss is {loss} at iteration {iteration}; training stopped, {kept}. "
            "A lower learning_rate, a longer warmup_iters or dtype=bfloat16 may help"
        )

    def elapsed_s(self) -> float:
        """Seconds that the run has taken so far, with all that is not training."""
        return time.perf_counter() - self.began_s

    def speed(self, step_ms: list[float]) -> dict[str, float | None]:
        """Median step time, and what the mean one makes in tokens per second and MFU.

        None where a profiler was on in every step.
        """
        device = self.ranks.device
        on_cuda = device.type == "cuda"
        median_ms = tokens_per_s = utilisation = None
        if step_ms:
            median_ms = statistics.median(step_ms)
            tokens_per_s = self.tokens_per_iteration / statistics.fmean(step_ms) * 1e3
            utilisation = mfu(
                self.flops_per_token,
                tokens_per_s,
                self.ranks.device_name,
                self.config.dtype,
                self.ranks.world_size,
            )
        return {
            "time/step_ms": median_ms,
            "perf/tokens_per_s": tokens_per_s,
            "perf/mfu": utilisation,
            "memory/peak_bytes": torch.cuda.max_memory_allocated(device) if on_cuda else None,
        }

    def __exit__(self, kind: type | None, error: BaseException | None, _: object) -> None:
        self.display.__exit__()
        code = 0 if kind is None else 1
        if isinstance(error, SystemExit) and isinstance(error.code, int):
            code = error.code
        summary = {
            "best_val_loss": self.progress.best_val_loss,
            "best_iteration": self.progress.best_iteration,
            "iterations": self.progress.iteration,
            "wall_s": self.elapsed_s(),
            "time/compile_s": self.warm.compile_s,
            "time/capture_s": self.warm.capture_s,
            "compile/graphs": self.warm.compiled_graphs,
            "compile/graph_breaks": self.warm.graph_breaks,
        }
        if self.step_ms:
            summary |= self.speed(self.step_ms)
        if len(self.step_ms) > 1:
            quarter, _, three_quarters = statistics.quantiles(self.step_ms, n=4)
            summary |= {"time/step_iqr_ms": three_quarters - quarter}
        summary |= self.gpu.summary(summary.get("perf/tokens_per_s"))
        self.tracker.summary(summary)
        self.tracker.finish(code)
        if code == 0:
            self.say_what_next(summary)
        if self.tracker.sync_command:
            log.info("W&B, offline so far: %s", self.tracker.sync_command)

    def say_what_next(self, summary: dict) -> None:
        out_dir = self.config.out_dir
        if "time/step_ms" in summary:
            log.info(
                "%d iterations in %s, median step %.2f ms, best val loss %.4f at iteration %d",
                self.progress.iteration,
                duration(summary["wall_s"]),
                summary["time/step_ms"],
                self.progress.best_val_loss,
                self.progress.best_iteration,
            )
        if summary.get("perf/energy_per_token_j"):
            log.info(
                "energy %.1f kJ, %.3g mJ a token while training",
                summary["perf/energy_j"] / 1e3,
                summary["perf/energy_per_token_j"] * 1e3,
            )
        log.info("the record: %s/metrics.jsonl, summary.json, config.yaml", out_dir)
        if (Path(out_dir) / "ckpt.pt").exists():
            log.info("next: python sample.py out_dir=%s start=ROMEO:", out_dir)
        if any((Path(out_dir) / "profile").glob("*.trace.json.gz")):
            log.info("next: python -m profiling report %s", out_dir)


def open_record(
    config: Config,
    dataset: Dataset,
    model: GPT,
    warm: WarmUp,
    progress: Progress,
    gpu: GpuSampler | NoSampler,
    ranks: Ranks,
    began_s: float,
) -> Record:
    """Says what is about to run, on the screen and in the run's folder, and opens its record.

    began_s: perf_counter() when the run began in this process.
    """
    in_force = facts_in_force(config, dataset, model, warm, gpu, ranks)
    out_dir = ranks.from_first(lambda: open_run_folder(config, in_force))
    announce(config, in_force, warm)
    began_s -= last_value(out_dir / "metrics.jsonl", "time/elapsed_s") or 0.0
    # where it was left to PyTorch, what a chart is grouped by is the backend that runs
    attention = config.attention
    if attention == "auto" and warm.attention.ran:
        attention = warm.attention.ran
    names = {"experiment": config.wandb.group or config.dataset, "attention": attention}
    tracker = open_tracker(
        out_dir,
        config.wandb,
        rank=ranks.rank,
        config=asdict(config) | names,
        run_record={**in_force, "started": datetime.now(UTC).isoformat(timespec="seconds")},
        tags=[STAND_IN] if dataset.is_stand_in else [],
        iteration=progress.iteration,
        name=f"{config.dataset}-{attention}-{'compile' if config.compile else 'eager'}",
        tensorboard=config.tensorboard,
    )
    if config.profile.kind != "none":
        tracker.wait_until_quiet()  # the window may open within the first iterations
    return Record(config, model, ranks, tracker, progress, warm, gpu, began_s)


def facts_in_force(
    config: Config,
    dataset: Dataset,
    model: GPT,
    warm: WarmUp,
    gpu: GpuSampler | NoSampler,
    ranks: Ranks,
) -> dict[str, Any]:
    """What the keys came to on this machine, for config.yaml and the record."""
    return {
        "data": dataset.source,
        "is_tiny_shakespeare": dataset.text_sha256 == TINY_SHAKESPEARE_SHA256,
        "text_sha256": dataset.text_sha256,
        "tokenizer": dataset.tokenizer.to_record()["kind"],
        "vocab_size": dataset.tokenizer.vocab_size,
        "parameters": model.parameter_count(),
        "attention": warm.attention.ran,
        "attention_evidence": warm.attention.evidence,
        "device": ranks.device_name,
        "gpu_metrics": gpu.reason,
        "ranks": ranks.world_size,
        "torch": str(torch.__version__),
    }


def announce(config: Config, in_force: dict[str, Any], warm: WarmUp) -> None:
    log.info(
        "%s: %d tokens in the vocabulary, %.2f million parameters, on %s in %s",
        in_force["data"],
        in_force["vocab_size"],
        in_force["parameters"] / 1e6,
        in_force["device"],
        config.dtype,
    )
    log.info(
        "attention=%s: %s ran (%s)", config.attention, warm.attention.ran, warm.attention.evidence
    )
    if attention_in_force(config.attention, config.device, config.dropout) != config.attention:
        log.warning(
            "attention=%s: PyTorch's fused CPU kernel has no dropout, so training uses the math "
            "kernel of the same function; evaluation and dropout=0 use the fused one",
            config.attention,
        )
    if config.compile:
        log.info(
            "compiled in %.1f s: %d graphs, %d breaks",
            warm.compile_s,
            warm.compiled_graphs,
            warm.graph_breaks,
        )
