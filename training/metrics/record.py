"""Writes what a run leaves behind: rows in metrics.jsonl and W&B, lines on the screen, a summary.

Times become tokens per second and MFU here, not in the loop.
"""

import logging
import math
import os
import statistics
import time
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import torch

from cli.files import write_text
from cli.keys import spell
from configs.schema import Config
from data.dataset import STAND_IN
from data.source_text import TINY_SHAKESPEARE_SHA256
from model import attention_in_force
from profiling.recording.sampler import GpuSampler, NoSampler
from profiling.shared.artifact_names import how_it_runs
from profiling.shared.gpu_clock import gpu_clock
from profiling.shared.hardware import mfu
from profiling.shared.json_records import to_json
from profiling.shared.metric_names import CPU_PERCENT, DATA_MS
from profiling.shared.run_files import METRICS, STEP_TIMES, StepTimes
from profiling.shared.units import spell_duration
from training.disk import checkpoint
from training.disk.run_folder import environment, open_run_folder
from training.disk.run_parts import Run
from training.machine.parallel import OPEN, averages_line, chosen_averages
from training.metrics.clock_limits import ClockLimits
from training.metrics.console import Display
from training.metrics.folder_watch import FolderWatch
from training.metrics.rank_waits import Waits
from training.metrics.run_verdict import RunVerdict, Steps, run_verdict
from training.metrics.sinks import Alert, RunFacts, Value, last_value
from training.metrics.slow_ranks import SlowRanks
from training.metrics.slowdown import ON_CPU, Slowdown
from training.metrics.tracker import Tracker, open_tracker
from training.ranks import flight_recorder
from training.ranks.next_commands import report_command, sample_command
from training.step.clock import Laps, Speed
from training.step.evaluate import evaluation_batch_size
from training.step.warm_up import WarmUp

log = logging.getLogger(__name__)

NO_CHECKPOINT = (
    "no checkpoint: the validation loss was never better than at the start; train longer, or "
    "save anyway with always_save_checkpoint=true"
)


@dataclass(frozen=True)
class InForce:
    """Facts that follow from the keys on this machine; for config.yaml, metrics.jsonl and W&B."""

    data: str
    is_tiny_shakespeare: bool
    text_sha256: str
    tokenizer: str
    vocab_size: int
    parameters: int
    flops_per_token: int  # of forward and backward; MFU is computed with it
    attention: str | None  # the backend that ran; None: it could not be seen
    attention_evidence: str
    own_kernels: str | None  # those of kernels=fused that ran; None: not fused
    device: str
    gpu_metrics: str
    token_storage: str  # of the training split
    eval_batch_size: int  # on each rank; the losses' last digits depend on it
    ranks: int  # number of ranks
    torch: str  # its version
    reasons: dict[str, str]  # for the values of keys that were left at auto, by key
    chosen: dict[str, str | bool]  # values of keys that config.yaml leaves to each start, by key


@dataclass
class Record:
    """Record of a run, used as `with Record(...) as record:`.

    On leaving it writes the summary and logs which command to type next.
    """

    run: Run
    in_force: InForce
    warm: WarmUp
    gpu: GpuSampler | NoSampler
    tracker: Tracker
    step_ms: list[float] = field(default_factory=list)  # iterations without a profiler
    host_ms: list[float] = field(default_factory=list)  # the host's time to launch each of them
    start_up_s: float = 0.0  # until the loop began, compiling included
    waited_before_s: float = 0.0  # for data, until the loop began
    waited_s: float = 0.0  # for data, until the last row

    def __post_init__(self) -> None:
        config, ranks = self.run.config, self.run.ranks
        self.watch = FolderWatch(self.run.folder, self.run.progress, self.tracker)
        on_cpu = ranks.device.type == "cpu" and "OMP_WAIT_POLICY" not in os.environ
        self.slowdown = Slowdown(ON_CPU if on_cpu else "")
        self.slow_ranks = SlowRanks(ranks, config.out_dir, self.tracker.alert)
        self.clock_limits = ClockLimits(self.tracker.alert)
        self.times = StepTimes(self.run.progress.iteration)
        self.display = Display(self.run.progress.iteration, config.max_iters, ranks.rank)
        tokens_per_batch = config.batch_size * config.block_size
        self.tokens_per_iteration = tokens_per_batch * config.gradient_accumulation_steps
        before_s = last_value(self.run.folder.path / METRICS, "time/elapsed_s")
        self.began_s = ranks.began_s - (before_s or 0.0)  # as if it had never been interrupted
        self.resumed = before_s is not None

    def __enter__(self) -> "Record":
        self.display.progress.start()
        self.start_up_s = time.perf_counter() - self.run.ranks.began_s
        self.waited_before_s = self.waited_s = self.run.train_batches.waited_s
        return self

    def log_training(
        self,
        iteration: int,
        lr: float,
        readings: dict[str, float],
        laps: Laps,
        waits: Waits | None,
        waited_s: float,
    ) -> None:
        """Logs a row for the iterations since the last row; `iteration` is the last of them.

        `readings` are of that iteration, `laps` of all. `waits` are those of ranks for each other.
        `waited_s` is the time the process has waited for data until the end of `iteration`.
        Raises SystemExit if the loss or the gradients are not finite.
        """
        self.step_ms += laps.ms
        self.host_ms += laps.host_ms
        count = iteration + 1 - self.times.first_iteration - len(self.times.ms)
        self.times.ms.extend(laps.ms if len(laps.ms) == count else [None] * count)
        train_loss, speed = readings["train/loss"], self.speed(laps.ms)
        if speed:
            self.slowdown.watch(speed.step_ms, len(laps.ms))
        captured_ms = statistics.median(laps.captured_ms) if laps.captured_ms else None
        row: dict[str, Value] = {"iter": iteration, **readings, "lr": lr}
        row |= self.speed_metrics(speed) | self.slow_ranks.read(waits)
        row[DATA_MS.name] = self.data_ms(count, waited_s)
        row["time/elapsed_s"] = self.elapsed_s()
        if laps.captured_ms:
            row["profile/captured_steps"] = len(laps.captured_ms)
            row["profile/step_ms"] = captured_ms
        # Energy per token counts ordinary iterations alone, as tokens per second do.
        row |= self.gpu.read(speed.tokens_per_s if speed and not laps.captured_ms else None)
        self.clock_limits.watch(row)
        self.watch.restore()
        self.tracker.log(row)
        self.display.show_training(iteration, train_loss, speed, captured_ms)
        self.check_finite(iteration, readings)

    def data_ms(self, count: int, waited_s: float) -> float:
        """Mean milliseconds that the host waited for data in each of the last `count` iterations.

        `waited_s` is the process's total so far.
        """
        before_s, self.waited_s = self.waited_s, waited_s
        return (waited_s - before_s) / count * 1e3

    def log_evaluation(
        self, iteration: int, losses: dict[str, float], readings: dict[str, float]
    ) -> None:
        """Logs a row for an evaluation before `iteration`; `readings` are of the iteration before.

        Raises SystemExit if a loss is not finite.
        """
        checkpoint.finish(self.run.progress)  # the loop asks whether one is owed
        self.watch.restore()
        self.tracker.log({"iter": iteration, **losses, "time/elapsed_s": self.elapsed_s()})
        self.display.show_evaluation(iteration, losses)
        self.check_finite(iteration - 1, readings, losses["val/loss"])

    def check_finite(
        self, iteration: int, readings: dict[str, float], val_loss: float = 0.0
    ) -> None:
        """Raises SystemExit if a loss or a gradient is not finite: later weights are of no use.

        With a fused optimizer the weights are those from before the first such gradient.
        """
        problems = []
        if not math.isfinite(readings["train/loss"]):
            problems.append(f"training loss is {readings['train/loss']} at iteration {iteration}")
        if not math.isfinite(val_loss):
            problems.append(f"validation loss is {val_loss} at iteration {iteration + 1}")
        if skipped := int(readings.get("train/skipped_updates", 0)):
            first = iteration + 1 - skipped
            problems.append(f"gradients are not finite since iteration {first}")
        if not problems:
            return
        stopped = f"{', '.join(problems)}; training stopped"
        self.tracker.alert(Alert("Loss or gradients are not finite", stopped, "ERROR"))
        checkpoint.finish(self.run.progress)
        path = Path(self.run.config.out_dir) / "ckpt.pt"
        kept = (
            f"{path} is the last good checkpoint"
            if path.exists()
            else ("nothing has been saved yet")
        )
        raise self.run.ranks.exit_with(
            f"train.py: {stopped}, {kept}. "
            "A lower learning_rate, a longer warmup_iters or dtype=bfloat16 may help"
        )

    def elapsed_s(self) -> float:
        """Seconds that the run has taken so far, over all its resumes, training or not."""
        return time.perf_counter() - self.began_s

    def speed(self, step_ms: list[float]) -> Speed | None:
        """Median step, tokens per second and MFU of these step times; None for an empty list."""
        if not step_ms:
            return None
        tokens_per_s = self.tokens_per_iteration / statistics.fmean(step_ms) * 1e3
        known, dtype = self.in_force, self.run.config.dtype
        used = mfu(known.flops_per_token, tokens_per_s, known.device, dtype, known.ranks)
        return Speed(statistics.median(step_ms), tokens_per_s, used)

    def speed_metrics(self, speed: Speed | None) -> dict[str, float | None]:
        device = self.run.ranks.device
        on_cuda = device.type == "cuda"
        return {
            "time/step_ms": speed and speed.step_ms,
            "perf/tokens_per_s": speed and speed.tokens_per_s,
            "perf/mfu": speed and speed.mfu,
            "memory/peak_bytes": torch.cuda.max_memory_allocated(device) if on_cuda else None,
        }

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        self.display.progress.stop()
        checkpoint.finish(self.run.progress)
        self.watch.restore()
        code = 0 if kind is None else 1
        if isinstance(error, SystemExit) and isinstance(error.code, int):
            code = error.code
        speed = self.speed(self.step_ms)
        energy = self.gpu.summary(speed and speed.tokens_per_s)
        wall_s = self.elapsed_s()
        verdict = self.verdict(energy)
        self.tracker.summary(self.results(speed, wall_s) | energy | verdict.metrics)
        self.write_step_times()
        try:
            self.tracker.finish(code)
        finally:  # also where Ctrl-C skips the wait for W&B
            if code == 0:
                self.log_result(speed, energy, wall_s)
                log.info("%s", verdict.sentence)
            if self.tracker.sync_command:
                log.info("W&B, offline so far: %s", self.tracker.sync_command)
            if said := self.watch.unsaved_message():
                if kind is None:
                    raise SystemExit(f"train.py: {said}")
                log.error("%s", said)

    def results(self, speed: Speed | None, wall_s: float) -> dict[str, Value]:
        """Results of the run for summary.json."""
        summary: dict[str, Value] = {
            "best_val_loss": self.run.progress.best_val_loss,
            "best_iteration": self.run.progress.best_iteration,
            "iterations": self.run.progress.iteration,
            "wall_s": wall_s,
            "time/compile_s": self.warm.compile.compile_s,
            "time/capture_s": self.warm.compile.capture_s,
            "compile/graphs": self.warm.compile.graphs,
            "compile/graph_breaks": self.warm.compile.graph_breaks,
        }
        if speed:
            summary |= self.speed_metrics(speed) | self.slow_ranks.summary()
        if len(self.step_ms) > 1:
            quarter, _, three_quarters = statistics.quantiles(self.step_ms, n=4)
            summary["time/step_iqr_ms"] = three_quarters - quarter
        return summary

    def verdict(self, measured: dict[str, float | None]) -> RunVerdict:
        """Verdict on what held this process back; `measured` are the sampler's means of the run."""
        made, paused_s = self.warm.compile, self.gpu.process.paused_s
        compile_s = (made.compile_s or 0.0) + (made.capture_s or 0.0)
        whole_s = time.perf_counter() - self.run.ranks.began_s
        seconds = {
            "start_up": self.start_up_s - compile_s,
            "compile": compile_s,
            "training": whole_s - self.start_up_s - sum(paused_s.values()),
            "evaluation": paused_s["evaluate"],
            "checkpoint": paused_s["checkpoint"],
        }
        # With each row the host waits for the GPU, so most iterations must have none.
        launching = self.host_ms if self.run.config.log_interval > 2 else []
        steps = Steps(
            waiting_for_data_s=self.run.train_batches.waited_s - self.waited_before_s,
            on_cpu=self.run.ranks.device.type == "cpu",
            step_ms=statistics.median(self.step_ms) if self.step_ms else None,
            host_ms=statistics.median(launching) if launching else None,
            gpu_busy_percent=measured.get("gpu/util_percent"),
            cpu_percent=measured.get(CPU_PERCENT.name),
            gpu_clock=gpu_clock(measured),
            waits=self.slow_ranks.whole,
        )
        return run_verdict(seconds, steps)

    def write_step_times(self) -> None:
        if self.run.ranks.rank or self.run.folder.lost:
            return
        try:
            write_text(self.run.folder.path / STEP_TIMES, to_json(self.times, indent=None))
        except ValueError as error:
            log.warning("%s", error)

    def log_result(
        self, speed: Speed | None, energy: dict[str, float | None], wall_s: float
    ) -> None:
        out_dir = self.run.config.out_dir
        if speed:
            progress = self.run.progress
            done = f"{progress.iteration} iterations in {spell_duration(wall_s)}"
            if self.resumed:
                now_s = time.perf_counter() - self.run.ranks.began_s
                done += f", {spell_duration(now_s)} of it since the resume"
            best = f"{progress.best_val_loss:.4f} at iteration {progress.best_iteration}"
            log.info("%s, median step %.2f ms, best val loss %s", done, speed.step_ms, best)
        run_j, token_j = energy.get("perf/energy_j"), energy.get("perf/energy_per_token_j")
        if run_j and token_j:
            log.info("energy %.1f kJ, %.3g mJ per token while training", run_j / 1e3, token_j * 1e3)
        if self.watch.unsaved_message():
            return
        log.info("record: %s/metrics.jsonl, summary.json, config.yaml", out_dir)
        command = sample_command(out_dir, self.run.dataset.tokenizer)
        if not (Path(out_dir) / "ckpt.pt").exists():
            if self.run.progress.iteration > 0:  # else there is nothing to save
                log.info(NO_CHECKPOINT)
        elif command:
            log.info("next: %s", command)
        if any((Path(out_dir) / "profile").glob("*.trace.json.gz")):
            log.info("next: %s", report_command(out_dir))


def open_record(run: Run, warm: WarmUp, gpu: GpuSampler | NoSampler) -> Record:
    """Opens the run's record, after describing the run on the screen and in its folder."""
    config, ranks, tokenizer = run.config, run.ranks, run.dataset.tokenizer
    in_force = InForce(
        data=run.dataset.source,
        is_tiny_shakespeare=run.dataset.text_sha256 == TINY_SHAKESPEARE_SHA256,
        text_sha256=run.dataset.text_sha256,
        tokenizer=tokenizer.kind,
        vocab_size=tokenizer.vocab_size,
        parameters=run.model.parameter_count(),
        flops_per_token=run.model.flops_per_token(),
        attention=warm.attention.ran,
        attention_evidence=warm.attention.evidence,
        own_kernels=warm.own_kernels,
        device=ranks.device_name,
        gpu_metrics=gpu.reason,
        token_storage=run.train_batches.sequences.storage,
        eval_batch_size=evaluation_batch_size(config, ranks.device, run.model.lm_head.out_features),
        ranks=ranks.world_size,
        torch=str(torch.__version__),
        reasons=run.reasons,
        chosen=chosen_averages(config, run.reasons),
    )
    again = replace(config, **{key: OPEN[key] for key in in_force.chosen})
    ranks.from_first(lambda: open_run_folder(run.folder, again, asdict(in_force)))
    flight_recorder.make_folder(run.folder.path, ranks)
    announce(config, in_force, warm)
    tracker = Tracker([])
    if ranks.rank == 0:
        facts = run_facts(config, in_force, run.progress.iteration)
        tracker = open_tracker(run.folder.path, facts, config.wandb, config)
    if config.profile.kind != "none":
        tracker.wait_until_quiet()  # the window may open within the first iterations
    return Record(run, in_force, warm, gpu, tracker)


def run_facts(config: Config, in_force: InForce, iteration: int) -> RunFacts:
    # Charts are grouped by the backend that runs, also where PyTorch chose it.
    attention = config.attention
    if attention == "auto" and in_force.attention:
        attention = in_force.attention
    names = {"experiment": config.wandb.group or config.dataset_name, "attention": attention}
    started = datetime.now(UTC).isoformat(timespec="seconds")
    keys = asdict(config) | names
    return RunFacts(
        name=f"{config.dataset_name}-{attention}-{how_it_runs(keys)}-seed{config.seed}",
        config=keys,
        in_force={**asdict(in_force), "started": started},
        iteration=iteration,
        tags=(STAND_IN,) if in_force.data == STAND_IN else (),
        environment=environment(),
        job_type="train" if config.profile.kind == "none" else "profile",
    )


def kernels_line(config: Config, in_force: InForce) -> str | None:
    """Line that says whose kernels run and why, or None where there is no choice, as on a CPU."""
    if config.speed != "fast":
        return level_line(config, in_force)
    reasons = [in_force.reasons[key] for key in ("kernels", "compile") if key in in_force.reasons]
    if in_force.own_kernels is not None:
        why = f" ({'; '.join(reasons)})" if reasons else ""
        return f"kernels=fused{why}: {in_force.own_kernels}"
    if "kernels" in in_force.reasons and config.device.startswith("cuda"):
        return f"kernels=compiled: {in_force.reasons['kernels']}"
    return None


def level_line(config: Config, in_force: InForce) -> str:
    """Line that says what a level of speed came to, beside keys that were set and count more."""
    level, values = f"speed={config.speed}", []
    for key in ("kernels", "compile"):
        reason = in_force.reasons.get(key, "as set")
        value = f"{key}={spell(getattr(config, key))}"
        values.append(value if reason == level else f"{value} ({reason})")
    return ": ".join(filter(None, (level, ", ".join(values), in_force.own_kernels)))


def announce(config: Config, in_force: InForce, warm: WarmUp) -> None:
    vocabulary = f"{in_force.vocab_size} tokens in the vocabulary"
    parameters = f"{in_force.parameters / 1e6:.2f} million parameters"
    where = f"on {in_force.device} in {config.dtype}"
    log.info("%s: %s, %s, %s", in_force.data, vocabulary, parameters, where)
    log.info(
        "attention=%s: %s ran (%s)", config.attention, in_force.attention, warm.attention.evidence
    )
    if line := kernels_line(config, in_force):
        log.info(line)
    if in_force.ranks > 1 and (line := averages_line(in_force.chosen, in_force.reasons)):
        log.info(line)
    if attention_in_force(config.attention, config.device, config.dropout) != config.attention:
        log.warning(
            "attention=%s: PyTorch's fused CPU kernel does not support dropout, so training uses "
            "the math kernel of the same function; evaluation and dropout=0 use the fused kernel",
            config.attention,
        )
    if config.compile:
        made = f"{warm.compile.graphs} graphs, {warm.compile.graph_breaks} breaks"
        log.info("compiled in %.1f s: %s", warm.compile.compile_s, made)
