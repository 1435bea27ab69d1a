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
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
NANOGPT_STEP = re.compile(r"^iter \d+: loss [\d.]+, time ([\d.]+)ms", re.M)
NANOGPT_VAL_LOSS = re.compile(r"^step (\d+): train loss [\d.]+, val loss ([\d.]+)", re.M)
Row = dict[str, Any]  # of results.jsonl
Job = Callable[[], Row]
SETTLING_ROWS = 5  # logged rows at the start that are left out of step times: compile, caches


@dataclass
class RunsConfig:
    nanogpt: str | None = field(default=None, metadata={"help": "checkout of karpathy/nanoGPT"})
    config: str = field(default="shakespeare_char", metadata={"help": "experiment to train"})
    attention: str = field(
        default="flash,slow", metadata={"help": "backends, by comma; may be empty"}
    )
    seeds: str = field(default="1337", metadata={"help": "seeds, by comma"})
    more: str = field(default="", metadata={"help": "more keys for train.py, by space"})
    out: str = field(default="out-lab", metadata={"help": "folder of logs and results.jsonl"})


def main(config: RunsConfig) -> None:
    out = Path(config.out)
    out.mkdir(parents=True, exist_ok=True)
    attentions = [word for word in config.attention.split(",") if word]
    for number, seed in enumerate(config.seeds.split(",")):
        jobs: list[Job] = [partial(run_ours, a, seed, config, out) for a in attentions]
        if config.nanogpt and number == 0:
            jobs.insert(0, partial(run_nanogpt, Path(config.nanogpt), out))
        for job in jobs:
            row = job()
            with open(out / "results.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(markdown_row(row), flush=True)
    lines = (out / "results.jsonl").read_text(encoding="utf-8").splitlines()
    print("\n| run | whole process | step, median (quartiles) | best val loss |\n|---|---|---|---|")
    for line in lines:
        print(markdown_row(json.loads(line)))


def run_ours(attention: str, seed: str, config: RunsConfig, out: Path) -> Row:
    run_dir = out / f"{attention}-{seed}"
    command = [sys.executable, "train.py", config.config, f"attention={attention}", f"seed={seed}"]
    command += [f"out_dir={run_dir.resolve()}", *config.more.split()]
    wall_s = timed(command, PROJECT, out / f"{attention}-{seed}.log")
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    evaluations = [(row["val/loss"], row["iter"]) for row in rows if "val/loss" in row]
    steps_ms = [row["time/step_ms"] for row in rows if row.get("time/step_ms") is not None]
    return result(f"{attention}, seed {seed}", command, wall_s, steps_ms, evaluations)


def run_nanogpt(checkout: Path, out: Path) -> Row:
    command = [sys.executable, "train.py", "config/train_shakespeare_char.py"]
    log = out / "nanogpt.log"
    wall_s = timed(command, checkout, log)
    text = log.read_text()
    evaluations = [(float(loss), int(step)) for step, loss in NANOGPT_VAL_LOSS.findall(text)]
    steps_ms = [float(ms) for ms in NANOGPT_STEP.findall(text)]
    return result("karpathy/nanoGPT", command, wall_s, steps_ms, evaluations)


def timed(command: list[str], folder: Path, log: Path) -> float:
    """Wall seconds of the whole process. Raises ValueError naming its log when it fails."""
    start = time.perf_counter()
    with open(log, "w", encoding="utf-8") as file:
        status = subprocess.run(command, cwd=folder, stdout=file, stderr=subprocess.STDOUT)
    if status.returncode != 0:
        raise ValueError(f"{log}: the process ended with {status.returncode}; its output is there")
    return time.perf_counter() - start


def result(
    name: str,
    command: list[str],
    wall_s: float,
    steps_ms: list[float],
    evaluations: list[tuple[float, int]],
) -> Row:
    if len(steps_ms) < SETTLING_ROWS + 2:
        raise ValueError(
            f"more: {name} logged {len(steps_ms)} rows, too few for a step time; "
            "raise max_iters or lower log_interval"
        )
    quartiles = statistics.quantiles(steps_ms[SETTLING_ROWS:], n=4)
    best_val_loss, best_iteration = min(evaluations)
    return {
        "run": name,
        "command": command[1:],
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "wall_s": wall_s,
        "step_quartiles_ms": quartiles,
        "best_val_loss": best_val_loss,
        "best_iteration": best_iteration,
        "val_loss": {iteration: loss for loss, iteration in evaluations},
    }


def markdown_row(row: Row) -> str:
    low, median, high = row["step_quartiles_ms"]
    return (
        f"| {row['run']} | {row['wall_s']:.1f} s | {median:.3f} ms ({low:.3f}, {high:.3f}) "
        f"| {row['best_val_loss']:.4f} at {row['best_iteration']} |"
    )
