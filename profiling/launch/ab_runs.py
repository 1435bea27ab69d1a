"""The processes of an A/B experiment: started one after the other, their step times recorded.

Called by profiling.verbs.ab. results.json is written anew after every process, so that an
experiment that was stopped goes on where it was.
"""

import json
import os
import shutil
import signal
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cli.files import write_text
from profiling.analysis.runs.run_folder import (
    read_config,
    read_json,
    read_starts,
    tokens_per_iteration,
)
from profiling.launch.ab_plan import LOG_INTERVAL, Plan, plain, training_command, typed

SCHEMA_VERSION = 1
RESULTS = "results.json"
TAIL_LINES = 15


def open_record(folder: Path, plan: Plan) -> dict[str, Any]:
    """What was measured in this folder before, or an empty record.

    Raises ValueError when another experiment lies there.
    """
    path = folder / RESULTS
    identity = plan.identity()
    if not path.exists():
        return {"schema_version": SCHEMA_VERSION, **identity, "runs": []}
    record = read_json(path)
    other = [key for key in identity if record.get(key) != identity[key]]
    if other:
        raise ValueError(
            f"--out {folder}: holds an experiment with another {other[0]}; give another folder"
        )
    kept = (*identity, "schema_version", "runs", "configs", "in_force", "environment")
    return {key: record[key] for key in kept if key in record}  # not what it came to then


def measure(plan: Plan, trainer: Path, folder: Path, record: dict, console: Console) -> None:
    """Runs the processes that the record lacks, and adds them. Raises ValueError if one fails."""
    order = plan.order()
    done = {run["number"] for run in record["runs"]}
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        speed_estimate_period=3600,
    )
    with progress:
        task = progress.add_task("measuring", total=len(order), completed=len(done))
        for number, value in enumerate(order):
            if number in done:
                continue
            progress.update(task, description=plan.labels[value])
            run = measured(plan, trainer, folder, number, value)
            record["runs"].append(run)
            keep_facts(record, run, folder)
            write_text(folder / RESULTS, json.dumps(record, indent=1) + "\n")
            progress.advance(task)
            left = len(order) - len(record["runs"])
            console.print(
                f"{number + 1:3d}/{len(order)}  {run['label']}  "
                f"{statistics.median(run['step_ms']):.3f} ms a step  "
                f"({run['wall_s']:.0f} s, about {run['wall_s'] * left / 60:.1f} min left)",
                markup=False,
                soft_wrap=True,
            )


def measured(plan: Plan, trainer: Path, folder: Path, number: int, value: int) -> dict[str, Any]:
    """One process from its start to its row of the record."""
    label = plan.labels[value]
    run_dir = folder / "runs" / f"{number + 1:02d}-{plain(label)}"
    shutil.rmtree(run_dir, ignore_errors=True)  # of a process that was stopped
    command = training_command(trainer, plan.timed_words(value, run_dir))
    started = time.perf_counter()
    run_process(command, run_dir.with_name(run_dir.name + ".log"), label)
    wall_s = time.perf_counter() - started
    tokens = tokens_per_iteration(read_config(run_dir), run_dir)
    starts = read_starts(run_dir, tokens)
    rows = [row for row in starts[-1] if row.iteration >= plan.warm_up + LOG_INTERVAL]
    if len(rows) != plan.steps // LOG_INTERVAL:
        raise ValueError(
            f"{run_dir}: {len(rows)} rows of step times behind the warm-up instead of "
            f"{plan.steps // LOG_INTERVAL}; was the run interrupted?"
        )
    remove_checkpoints(run_dir)
    return {
        "number": number,
        "label": label,
        "command": command[1:],
        "folder": str(run_dir.relative_to(folder)),
        "wall_s": wall_s,
        "tokens_per_iteration": tokens,
        "iterations": [row.iteration for row in rows],
        "step_ms": [row.step_ms for row in rows],
        "mean_ms": [row.mean_ms for row in rows],
    }


def remove_checkpoints(run_dir: Path) -> None:
    """Training saves one at its end; nobody goes on from these few iterations."""
    for name in ("ckpt.pt", "ckpt_best.pt"):
        (run_dir / name).unlink(missing_ok=True)


def run_process(command: list[str], log: Path, label: str) -> None:
    """Its output goes to the log. Raises ValueError with its last lines when it fails.

    It has a process group of its own: on Ctrl-C it is ended with all that it started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        try:
            status = process.wait()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if status:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
        print("\n".join(f"  {line}" for line in lines), flush=True)
        raise ValueError(
            f"{label}: the process ended with exit code {status}, its last lines are above, all of "
            f"them in {log}: {typed(command)}"
        )


def keep_facts(record: dict[str, Any], run: dict[str, Any], folder: Path) -> None:
    """Configuration of each value and versions, from the first process of each."""
    run_dir = folder / run["folder"]
    config = read_config(run_dir)
    in_force = config.pop("in_force", None) or {}
    record.setdefault("configs", {}).setdefault(run["label"], config)
    record.setdefault("in_force", {}).setdefault(run["label"], in_force)
    record.setdefault("environment", read_json(run_dir / "environment.json"))
