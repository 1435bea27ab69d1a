"""Whole training processes on one machine, one after the other, each on the same work.

    python -m benchmarks training_runs nanogpt=../nanoGPT seeds=1,2,3 attention=flash,slow

Interleaves the variants (nanoGPT, flash, slow, flash, slow, ...), so that a drifting clock or
neighbour touches all of them, and prints a Markdown table: wall time of the process, median step
time with its quartiles, best validation loss. A row is appended to OUT/results.jsonl when its
process has ended, so an interrupted series can be continued with other seeds.

`nanogpt` is a checkout of karpathy/nanoGPT with its data prepared; without it only ours runs.
"""

import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import quantiles

import msgspec

from benchmarks.measuring import PROJECT, Keys, key, run_process

NANOGPT_STEP = re.compile(r"^iter \d+: loss [\d.]+, time ([\d.]+)ms", re.M)
NANOGPT_VAL_LOSS = re.compile(r"^step (\d+): train loss [\d.]+, val loss ([\d.]+)", re.M)
SETTLING_ROWS = 5  # logged rows at the start that are left out of step times: compile, caches


@dataclass
class RunsConfig(Keys):
    nanogpt: str | None = key(None, "checkout of karpathy/nanoGPT")
    config: str = key("shakespeare_char", "experiment to train")
    attention: str = key("flash,slow", "backends, by comma; may be empty")
    seeds: str = key("1337", "seeds, by comma")
    more: str = key("", "more keys for train.py, by space")
    out: str = key("out-lab", "folder of logs and results.jsonl")


@dataclass(frozen=True)
class TrainingRun:
    """A row of results.jsonl."""

    run: str  # its name
    command: list[str]
    when: str  # it ended
    wall_s: float
    step_quartiles_ms: list[float]
    best_val_loss: float
    best_iteration: int
    val_loss: dict[int, float]  # by iteration


def main(config: RunsConfig) -> None:
    out = Path(config.out)
    out.mkdir(parents=True, exist_ok=True)
    results = out / "results.jsonl"
    attentions = [word for word in config.attention.split(",") if word]
    for number, seed in enumerate(config.seeds.split(",")):
        jobs: list[Callable[[], TrainingRun]]
        jobs = [partial(run_ours, attention, seed, config, out) for attention in attentions]
        if config.nanogpt and number == 0:
            jobs.insert(0, partial(run_nanogpt, Path(config.nanogpt), out))
        for job in jobs:
            run = job()
            with open(results, "a", encoding="utf-8") as file:
                file.write(json.dumps(msgspec.to_builtins(run)) + "\n")
            print(markdown_row(run), flush=True)
    print("\n| run | whole process | step, median (quartiles) | best val loss |\n|---|---|---|---|")
    for line in results.read_text(encoding="utf-8").splitlines():
        print(markdown_row(msgspec.json.decode(line, type=TrainingRun)))


def run_ours(attention: str, seed: str, config: RunsConfig, out: Path) -> TrainingRun:
    run_dir = out / f"{attention}-{seed}"
    words = ["train.py", config.config, f"attention={attention}", f"seed={seed}"]
    words += [f"out_dir={run_dir.resolve()}", *config.more.split()]
    wall_s = timed(words, PROJECT, out / f"{attention}-{seed}.log")
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    val_loss = {row["iter"]: row["val/loss"] for row in rows if "val/loss" in row}
    steps_ms = [row["time/step_ms"] for row in rows if row.get("time/step_ms") is not None]
    return training_run(f"{attention}, seed {seed}", words, wall_s, steps_ms, val_loss)


def run_nanogpt(checkout: Path, out: Path) -> TrainingRun:
    words = ["train.py", "config/train_shakespeare_char.py"]
    log = out / "nanogpt.log"
    wall_s = timed(words, checkout, log)
    text = log.read_text()
    val_loss = {int(step): float(loss) for step, loss in NANOGPT_VAL_LOSS.findall(text)}
    steps_ms = [float(ms) for ms in NANOGPT_STEP.findall(text)]
    return training_run("karpathy/nanoGPT", words, wall_s, steps_ms, val_loss)


def timed(words: list[str], folder: Path, log: Path) -> float:
    """Wall seconds of the whole process. Raises ValueError naming its log when it fails."""
    with open(log, "wb") as file:
        process = run_process([sys.executable, *words], file, folder)
    if process.status:
        raise ValueError(f"{log}: the process ended with {process.status}; its output is there")
    return process.wall_s


def training_run(
    name: str, words: list[str], wall_s: float, steps_ms: list[float], val_loss: dict[int, float]
) -> TrainingRun:
    if len(steps_ms) < SETTLING_ROWS + 2:
        raise ValueError(
            f"more: {name} logged {len(steps_ms)} rows, too few for a step time; "
            "raise max_iters or lower log_interval"
        )
    best, loss = min(val_loss.items(), key=lambda evaluated: evaluated[::-1])
    quartiles_ms = quantiles(steps_ms[SETTLING_ROWS:], n=4)
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return TrainingRun(name, words, when, wall_s, quartiles_ms, loss, best, val_loss)


def markdown_row(run: TrainingRun) -> str:
    low, median, high = run.step_quartiles_ms
    return (
        f"| {run.run} | {run.wall_s:.1f} s | {median:.3f} ms ({low:.3f}, {high:.3f}) "
        f"| {run.best_val_loss:.4f} at {run.best_iteration} |"
    )
