"""Known bottlenecks in the real trainer, each diagnosed and taken out: does the verdict find them?

    python -m validation planted out=out-planted
    python -m validation planted series=2 out=out-planted-2
    python -m validation planted plants=slow_loader,python_stall

Trains three times for each plant: under nsys; with torch.profiler in the last iterations, after
others that give the step's time; and without the fault. Prints a row for each plant, a confusion
table and the counts, as `foreign` does; OUT/results.json has the evidence. With `reread=true` the
captures of an earlier series are diagnosed again, without a GPU. A plant that failed is named at
the end, with exit code 1.

Needs CUDA and nsys; `slow_link` needs two GPUs and is named as left out where there is one.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from hydra.core.utils import env_override

from benchmarks.measuring import Keys, key, launcher, run_process
from cli.files import write_text
from cli.plain import without_controls
from profiling.shared.json_records import to_json
from profiling.shared.run_files import METRICS
from profiling.tools import nsys_tool
from profiling.verbs import run
from validation.diagnoses import (
    Result,
    Times,
    check_kept,
    choose,
    diagnose_all,
    end_where_failed,
    markdown_row,
    print_counts,
    print_header,
)
from validation.planted_train import PLANTS, SERIES
from validation.plants.planting import Plant

SHORT = "max_iters=90 eval_interval=1000 eval_iters=1 log_interval=10 wandb.mode=disabled"
NSYS_WINDOW = "profile.start=60 profile.steps=20"
TORCH_WINDOW = "profile=torch profile.start=70 profile.steps=10"
TIMED_FROM = 20  # first iteration that counts; those before it settle
LOG_LINES = 12  # of the log of a training that failed
TRAINER = ["-m", "validation.planted_train"]


@dataclass
class PlantedConfig(Keys):
    series: int = key(1, "1 or 2", least=1)
    plants: str = key("all", "of the series; or names of any, by comma")
    config: str = key("shakespeare_char", "experiment to train")
    out: str = key("out-planted", "folder of runs and results.json")
    preset: str = key("light", "of `python -m profiling run`")
    reread: bool = key(False, "diagnose the captures in OUT again")


def main(config: PlantedConfig) -> None:
    names = choose("plants", config.plants, config.series, SERIES)
    out = Path(config.out).resolve()
    if config.reread:
        check_kept(out, (f"{name}/{folder}" for name in names for folder in ("nsys", "torch")))
    else:
        check_machine(out)
    print_header()
    results, failed = list[Result](), list[str]()
    for name in names:
        plant, folder = PLANTS[name], out / name
        if missing := missing_requirement(plant, folder, config.reread):
            print(f"{name}: left out, {missing}", file=sys.stderr, flush=True)
            continue
        if not config.reread and (problem := record(name, plant, config, folder)):
            print(f"{name}: {problem}", file=sys.stderr, flush=True)
            failed.append(name)
        results.append(read(name, plant, folder))
        print(markdown_row(results[-1]), flush=True)
        write_text(out / "results.json", to_json(results))
    end_where_failed("planted", [*failed, *print_counts(results)], out)


def check_machine(out: Path) -> None:
    """Raise ValueError where there is no GPU or no nsys, or where `out` holds a series already."""
    if not torch.cuda.is_available():
        raise ValueError("planted: needs a CUDA GPU; PyTorch sees none here")
    if (out / "results.json").exists():
        raise ValueError(f"out={out}: holds a series; name another folder, or reread=true")
    nsys_tool.find()


def missing_requirement(plant: Plant, folder: Path, reread: bool) -> str | None:
    """Reason to leave the plant out of a series, or None."""
    if reread:
        return None if folder.exists() else f"{folder}: no such folder"
    return f"needs {plant.ranks} GPUs" if torch.cuda.device_count() < plant.ranks else None


def record(name: str, plant: Plant, config: PlantedConfig, folder: Path) -> str | None:
    """Train three times for a plant. Returns what failed, or None."""
    folder.mkdir(parents=True, exist_ok=True)
    words, fault = [config.config, *SHORT.split()], {"PLANT": name, **plant.environ}
    with_fault = [*words, *plant.keys.split()]
    without = [*words, *(plant.without or plant.keys).split()]
    launched = [*launcher(plant.ranks), *TRAINER, *with_fault, *TORCH_WINDOW.split()]
    ended = {
        "without": train([*launcher(plant.ranks), "train.py", *without], folder / "without", {}),
        "torch": train(launched, folder / "torch", fault),
        "nsys": train_under_nsys(with_fault, plant, config.preset, folder / "nsys", fault),
    }
    failed = [failure_message(folder / which, status) for which, status in ended.items() if status]
    return "\n".join(failed) or None


def failure_message(out_dir: Path, status: int) -> str:
    """Message about a failed training: its exit code, the path of its log, and the log's end."""
    log = out_dir.with_suffix(".log")
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    end = [f"    {without_controls(line)}" for line in lines[-LOG_LINES:]]
    return "\n".join([f"{out_dir.name} ended with {status}; the end of {log}:", *end])


def train(words: Sequence[str], out_dir: Path, environ: Mapping[str, str]) -> int:
    """Train with these words and return the exit code; the output is in OUT_DIR.log."""
    command = [sys.executable, *words, f"out_dir={out_dir}"]
    with open(out_dir.with_suffix(".log"), "wb") as log:
        return run_process(command, log, environ={**os.environ, **environ}).status


def train_under_nsys(
    words: Sequence[str],
    plant: Plant,
    preset: str,
    out_dir: Path,
    environ: Mapping[str, str],
) -> int:
    """Train under `profiling run` and return the exit code; the output is in OUT_DIR.log."""
    flags = ["--preset", preset]
    if plant.ranks > 1:
        flags += ["--nproc-per-node", str(plant.ranks), "--ranks", "0"]
    with (
        open(out_dir.with_suffix(".log"), "w", encoding="utf-8") as log,
        redirect_stdout(log),
        env_override(dict(environ)),
    ):
        return run.main([*flags, *words, *NSYS_WINDOW.split(), f"out_dir={out_dir}"], TRAINER)


def read(name: str, plant: Plant, folder: Path) -> Result:
    rank = "" if plant.ranks == 1 else "-rank0"
    captures = {
        "nsys": folder / "nsys" / "profile" / f"nsys{rank}.sqlite",
        "torch.profiler": folder / "torch" / "profile" / f"window-1{rank}.trace.json.gz",
    }
    by_tool = {
        tool: diagnose_all(name, plant.verdict, [capture] if capture.exists() else [])
        for tool, capture in captures.items()
    }
    with_ms, without_ms = step_ms(folder / "torch"), step_ms(folder / "without")
    times = None
    if with_ms and without_ms:
        times = Times(with_ms, without_ms / plant.work_without)
    return Result(name, plant.verdict, times, by_tool)


def step_ms(run_folder: Path) -> float | None:
    """Median step in ms over the rows without a profiler, or None without such rows."""
    metrics = run_folder / METRICS
    if not metrics.exists():
        return None
    rows = map(json.loads, metrics.read_text(encoding="utf-8").splitlines())
    times_ms = [
        row["time/step_ms"]
        for row in rows
        if row.get("time/step_ms") is not None and row["iter"] >= TIMED_FROM
    ]
    return median(times_ms) if times_ms else None
