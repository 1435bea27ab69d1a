"""Run folders read back as columns: every number of metrics.jsonl, by iteration and by time.

Time is what the run took from its beginning (time/elapsed_s), or for runs that did not log that the
sum of its steps' times.

Called by groups and by the dashboard. What a run lacks is absent, never 0.
"""

import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from profiling.analysis.difference.comparability import flat
from profiling.analysis.runs.run_folder import (
    METRICS,
    SETTLING_ROWS,
    is_run_folder,
    read_config,
    read_json,
    tokens_per_iteration,
)
from profiling.metric_names import ELAPSED_S

WALL_TIME, TRAINING_TIME = "wall time", "training time"
EVALUATION = ("val/loss", "eval/train_loss")  # a row with these stands before its iteration
CAPTURES = ("*.html", "*.sqlite", "*.nsys-rep", "*.trace.json.gz", "*.pickle")
Place = tuple[int, int]  # iteration; 0: before it, 1: behind it
Rows = dict[Place, dict[str, Any]]


class NoRowsYet(ValueError):
    """The run has only started: its metrics.jsonl has no row with numbers."""


@dataclass(frozen=True)
class Column:
    """Values of one metric in the order of iterations; `elapsed_s`: see the run's time_axis."""

    iteration: np.ndarray
    elapsed_s: np.ndarray
    value: np.ndarray
    training_s: np.ndarray  # sums of step times, whatever the axis


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
    time_axis: str  # what the columns' elapsed_s is: WALL_TIME or TRAINING_TIME
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
    return on_one_axis(runs), notes + [note for run in runs for note in run.notes]


def on_one_axis(runs: list[Run]) -> list[Run]:
    """Wall time if all runs have logged it, else training time: one axis for what is compared."""
    if len({run.time_axis for run in runs}) == 1:
        return runs
    return [
        replace(
            run,
            time_axis=TRAINING_TIME,
            columns={
                name: replace(column, elapsed_s=column.training_s)
                for name, column in run.columns.items()
            },
        )
        for run in runs
    ]


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
    wall = all(is_number(row.get(ELAPSED_S)) for row in rows.values())
    columns = columns_of(rows, tokens, wall)
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
        time_axis=WALL_TIME if wall else TRAINING_TIME,
        notes=notes,
    )


def read_rows(path: Path, notes: list[str]) -> tuple[Rows, set[Place]]:
    """What metrics.jsonl says, in the order of time, and the places while each start settled.

    A start at iteration N takes back what an earlier one logged after N: that work was lost. A last
    line that is half-written is left out, and noted.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    rows: Rows = {}
    settling: set[Place] = set()
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
            rows = {place: known for place, known in rows.items() if place[0] <= iteration}
            unsettled = SETTLING_ROWS
            continue
        place = (iteration, 0 if any(name in row for name in EVALUATION) else 1)
        rows.setdefault(place, {}).update(row)
        if "time/step_ms" in row and unsettled:
            settling.add(place)
            unsettled -= 1
    return dict(sorted(rows.items())), settling


def columns_of(rows: Rows, tokens: int, wall: bool) -> dict[str, Column]:
    """A column for each name with numbers; `tokens` are those of an iteration."""
    done, training_s = timed(rows, tokens)
    names = dict.fromkeys(name for row in rows.values() for name in row)
    columns = {}
    for name in names:
        found = [place for place, row in rows.items() if is_number(row.get(name))]
        if name in ("iter", ELAPSED_S) or not found:
            continue
        iteration, behind = np.array(found, dtype=float).T
        value = np.array([rows[place][name] for place in found], dtype=float)
        trained_s = elapsed_s = np.interp(iteration + behind, done, training_s)
        if wall:
            elapsed_s = np.array([rows[place][ELAPSED_S] for place in found], dtype=float)
        columns[name] = Column(iteration, elapsed_s, value, trained_s)
    return columns


def numbers_of(values: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in values.items() if is_number(value)}


def is_number(value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value)


def timed(rows: Rows, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """(iterations done, seconds of training up to there), summed from the rows' mean step times.

    Compiling and evaluations do not count, so that runs compare. Where a profiler was on in every
    step of a row the median of the other rows stands in.
    """
    logged = [place for place, row in rows.items() if "time/step_ms" in row]
    mean_ms = np.array([mean_step_ms(rows[place], tokens) for place in logged], dtype=float)
    mean_ms[np.isnan(mean_ms)] = np.nanmedian(mean_ms) if np.isfinite(mean_ms).any() else 0.0
    done = np.array([0, *(iteration + 1 for iteration, _ in logged)], dtype=float)
    elapsed_s = np.concatenate([[0.0], np.cumsum(np.diff(done) * mean_ms)]) / 1e3
    return done, elapsed_s


def mean_step_ms(row: dict[str, Any], tokens: int) -> float:
    """Of the iterations of a row, of which `time/step_ms` is the median; NaN where not known."""
    rate = row.get("perf/tokens_per_s")
    return tokens / rate * 1e3 if is_number(rate) and rate > 0 else math.nan


def settled_step_ms(rows: Rows, settling: set[Place]) -> np.ndarray:
    values = [
        row["time/step_ms"]
        for place, row in rows.items()
        if is_number(row.get("time/step_ms"))
        and place not in settling
        and "profile/captured_steps" not in row
    ]
    return np.array(values, dtype=float)
