"""Run folders read back as columns: every number of metrics.jsonl, by iteration and by time.

Called by profiling.analysis.run_groups and by the dashboard. What a run lacks is absent, never 0.
"""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from profiling.analysis.comparability import flat
from profiling.analysis.run_folder import (
    METRICS,
    SETTLING_ROWS,
    is_run_folder,
    read_config,
    read_json,
    tokens_per_iteration,
)

CAPTURES = ("*.html", "*.sqlite", "*.nsys-rep", "*.trace.json.gz", "*.pickle")


class NoRowsYet(ValueError):
    """The run has only started: its metrics.jsonl has no row with numbers."""


@dataclass(frozen=True)
class Column:
    """Values of one metric in the order of iterations; `elapsed_s`: training time, see timed()."""

    iteration: np.ndarray
    elapsed_s: np.ndarray
    value: np.ndarray


@dataclass(frozen=True)
class Run:
    folder: Path
    name: str
    config: dict[str, Any]  # flat keys
    in_force: dict[str, Any]  # what they came to: data, device, attention
    summary: dict[str, float] | None  # None: the run has not ended, or was killed
    tokens: int  # of an iteration
    columns: dict[str, Column]
    step_ms: np.ndarray  # of settled rows: without the first of each start and those captured
    captures: list[Path]
    notes: list[str] = field(default_factory=list)

    @property
    def iterations(self) -> int:
        return int(max(column.iteration[-1] for column in self.columns.values()))


def find_run_folders(places: list[Path]) -> list[Path]:
    """The run folders among `places` and inside of them; previous-N only where it is named itself.

    Raises ValueError naming a place that does not exist or holds no run.
    """
    found: dict[Path, Path] = {}
    for place in places:
        if not place.is_dir():
            raise ValueError(f"{place}: no such folder; give the out_dir of a run")
        inside = sorted(path.parent for path in place.rglob(METRICS))
        runs = [path for path in inside if not is_previous(path.relative_to(place))]
        if is_run_folder(place):
            runs = [place, *(path for path in runs if path != place)]
        if not runs:
            raise ValueError(f"{place}: no {METRICS} in it or below; give the out_dir of a run")
        for path in runs:
            found.setdefault(path.resolve(), path)
    return list(found.values())


def is_previous(path: Path) -> bool:
    return any(part.startswith("previous-") for part in path.parts)


def read_runs(folders: list[Path]) -> tuple[list[Run], list[str]]:
    """The runs, and a note about each that has not logged a row yet; ValueError where none has."""
    runs, notes = [], []
    for folder in folders:
        try:
            runs.append(read_run(folder))
        except NoRowsYet as error:
            notes.append(f"left out: {error}")
            if len(notes) == len(folders):
                raise
    return runs, notes + [note for run in runs for note in run.notes]


def read_run(folder: Path) -> Run:
    """Raises NoRowsYet, or ValueError naming the file, and the line if it is metrics.jsonl."""
    notes: list[str] = []
    config = read_config(folder)
    tokens = tokens_per_iteration(config, folder)
    in_force = config.pop("in_force", None) or {}
    if tokens < 1 or not isinstance(in_force, dict):
        raise ValueError(f"{folder}/config.yaml: batch_size, block_size or in_force is damaged")
    rows, settling = read_rows(folder / METRICS, notes)
    path = folder / "summary.json"
    summary = numbers_of(read_json(path)) if path.is_file() else None
    columns = columns_of(rows, tokens)
    if not columns:
        raise NoRowsYet(f"{folder / METRICS}: no row of metrics yet; did training start?")
    profile = folder / "profile"
    return Run(
        folder=folder,
        name=folder.name or str(folder.resolve()),
        config=flat(config),
        in_force=in_force,
        summary=summary,
        tokens=tokens,
        columns=columns,
        step_ms=settled_step_ms(rows, settling),
        captures=sorted(path for pattern in CAPTURES for path in profile.glob(pattern)),
        notes=notes,
    )


def read_rows(path: Path, notes: list[str]) -> tuple[dict[int, dict[str, Any]], set[int]]:
    """What metrics.jsonl says by iteration, and the iterations while each start settled.

    A start at iteration N takes back what an earlier one logged after N: that work was lost. A last
    line that is half-written is left out, and noted.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    rows: dict[int, dict[str, Any]] = {}
    settling: set[int] = set()
    unsettled = SETTLING_ROWS
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            iteration = int(row["iter"])
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            if number == len(lines):  # no end of line behind it
                notes.append(f"{path}: the last line is half-written and was left out")
                break
            said = line[:60].decode(errors="replace")
            raise ValueError(f"{path}:{number}: not a row that training wrote: {said}") from error
        if "run" in row:
            rows = {i: known for i, known in rows.items() if i <= iteration}
            unsettled = SETTLING_ROWS
            continue
        rows.setdefault(iteration, {}).update(row)
        if "time/step_ms" in row and unsettled:
            settling.add(iteration)
            unsettled -= 1
    return dict(sorted(rows.items())), settling


def columns_of(rows: dict[int, dict[str, Any]], tokens: int) -> dict[str, Column]:
    """A column for each name with numbers; `tokens` are those of an iteration."""
    done, elapsed_s = timed(rows, tokens)
    names = dict.fromkeys(name for row in rows.values() for name in row)
    columns = {}
    for name in names:
        found = [(i, row[name]) for i, row in rows.items() if is_number(row.get(name))]
        if name == "iter" or not found:
            continue
        iteration, value = np.array(found, dtype=float).T
        # an evaluation stands before its iteration, a training row behind it
        behind = 0 if name in ("val/loss", "eval/train_loss") else 1
        columns[name] = Column(iteration, np.interp(iteration + behind, done, elapsed_s), value)
    return columns


def numbers_of(values: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in values.items() if is_number(value)}


def is_number(value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value)


def timed(rows: dict[int, dict[str, Any]], tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """(iterations done, seconds of training up to there), summed from the rows' mean step times.

    Compiling and evaluations do not count, so that runs compare. Where a profiler was on in every
    step of a row the median of the other rows stands in.
    """
    logged = [i for i, row in rows.items() if "time/step_ms" in row]
    mean_ms = np.array([mean_step_ms(rows[i], tokens) for i in logged], dtype=float)
    mean_ms[np.isnan(mean_ms)] = np.nanmedian(mean_ms) if np.isfinite(mean_ms).any() else 0.0
    done = np.array([0, *(i + 1 for i in logged)], dtype=float)
    elapsed_s = np.concatenate([[0.0], np.cumsum(np.diff(done) * mean_ms)]) / 1e3
    return done, elapsed_s


def mean_step_ms(row: dict[str, Any], tokens: int) -> float:
    """Of the iterations of a row, of which `time/step_ms` is the median; NaN where not known."""
    rate = row.get("perf/tokens_per_s")
    return tokens / rate * 1e3 if is_number(rate) and rate > 0 else math.nan


def settled_step_ms(rows: dict[int, dict[str, Any]], settling: set[int]) -> np.ndarray:
    values = [
        row["time/step_ms"]
        for i, row in rows.items()
        if is_number(row.get("time/step_ms"))
        and i not in settling
        and "profile/captured_steps" not in row
    ]
    return np.array(values, dtype=float)
