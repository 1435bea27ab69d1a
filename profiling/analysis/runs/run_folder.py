"""A training run's folder read back: its uncaptured step times and its configuration.

Called by profiling.verbs.compare (two folders compared) and profiling.launch.ab_runs.
The files are those that training/run_folder.py, training/record.py and the window wrote.
"""

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

METRICS = "metrics.jsonl"
SETTLING_ROWS = 5  # logged rows after a start that are left out: caches, clocks
# what a run without a capture has of a report
EMPTY = {"capture": {"kind": "training", "devices": []}, "ranges": [], "breakdown": None}
EMPTY |= {"idle": None, "kernels": None, "families": None, "attention_backend": None}


@dataclass(frozen=True)
class Row:
    """Iterations that were logged together, none of them under a profiler."""

    iteration: int  # the last of them
    step_ms: float  # their median
    mean_ms: float


def is_run_folder(path: Path) -> bool:
    return path.is_dir() and (path / METRICS).is_file()


def read_json(path: Path) -> dict[str, Any]:
    """Raises ValueError naming the file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path}: not a JSON object; is it one that training wrote?")
    return value


def read_starts(folder: Path, tokens: int) -> list[list[Row]]:
    """Rows of metrics.jsonl, a list for each start of the run (a resumed one has several).

    `tokens` of an iteration turn tokens per second back into the mean step time. A row in which a
    profiler was on, or without a step time, is left out. Raises ValueError naming file and line.
    """
    path = folder / METRICS
    starts: list[list[Row]] = [[]]
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            if "run" in row:
                starts.append([])
            elif row.get("time/step_ms") is not None and "profile/captured_steps" not in row:
                mean_ms = tokens / row["perf/tokens_per_s"] * 1e3
                starts[-1].append(Row(int(row["iter"]), float(row["time/step_ms"]), mean_ms))
        except (ValueError, TypeError, KeyError, AttributeError, ZeroDivisionError) as error:
            if number == len(lines) and isinstance(error, json.JSONDecodeError):
                break  # the run was killed while it wrote, or still writes
            raise ValueError(
                f"{path}:{number}: not a row that training wrote: {line[:60]}"
            ) from error
    return [rows for rows in starts if rows]


def read_config(folder: Path) -> dict[str, Any]:
    """Every key of the run, nested as in config.yaml; `in_force` says what they came to.

    Raises ValueError naming the file.
    """
    path = folder / "config.yaml"
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        text = " ".join(str(error).split())
        raise ValueError(f"{path}: cannot be read: {text}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path}: not a mapping of keys; is {folder} a run's folder?")
    return config


def tokens_per_iteration(config: dict[str, Any], folder: Path) -> int:
    try:
        micro_batch = config["batch_size"] * config["block_size"]
        return int(micro_batch * config["gradient_accumulation_steps"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{folder}/config.yaml: batch_size, block_size or gradient_accumulation_steps is "
            "missing; is it one that training wrote?"
        ) from error


def report_of_run(folder: Path, report: dict[str, Any] | None, why_none: str) -> dict[str, Any]:
    """A report whose step times are the run's uncaptured ones; all else is its capture's.

    `report` is that of the newest capture, or None with the reason. The values are medians of the
    iterations that were logged together, their mean is that of all iterations.
    """
    config = read_config(folder)
    in_force = config.pop("in_force", None) or {}
    rows = settled_rows(folder, tokens_per_iteration(config, folder))
    values = [row.step_ms for row in rows]
    steps = {
        "median": statistics.median(values),
        "mean": statistics.fmean(row.mean_ms for row in rows),
        "values": values,
    }
    base = report or EMPTY | {"window": {"steps": len(values)}}
    device = in_force.get("device")
    devices = [{"id": 0, "name": device}] if device else base["capture"]["devices"]
    return base | {
        "run_folder": True,
        "no_capture": None if report else why_none,
        "capture": base["capture"] | {"file": str(folder), "devices": devices, "device": None},
        "run": {"config": config, "environment": read_json(folder / "environment.json")},
        # how many steps the capture's sums are about, where there is one
        "window": base["window"] | {"step_ms": steps, "step_name": None},
        "health": None,
    }


def settled_rows(folder: Path, tokens: int) -> list[Row]:
    """Rows behind the first ones of each start. Raises ValueError when too few are left."""
    rows = [row for start in read_starts(folder, tokens) for row in start[SETTLING_ROWS:]]
    if len(rows) < 2:
        raise ValueError(
            f"{folder / METRICS}: {len(rows)} rows of step times after the first {SETTLING_ROWS}, "
            "too few; train longer (max_iters) or log more often (log_interval)"
        )
    return rows
