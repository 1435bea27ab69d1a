"""Read run folders: every number of metrics.jsonl as columns, by iteration and by time.

Time is counted from the beginning of the run (time/elapsed_s); for runs that did not log that, it
is the sum of the step times. Called by groups, by the dashboard and by the verbs compare, ab and
log. The files are those that training.disk.run_folder and training.metrics.record write, or the
hook in a program of others (profiling/attach); what a run lacks is absent, never 0.
"""

import json
import math
import os
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import yaml

from cli.errors import one_line
from cli.files import not_a_folder
from profiling.shared.json_records import JsonObject, read_json
from profiling.shared.metric_names import (
    ELAPSED_S,
    MEAN_STEP_MS,
    STEP_MS,
    STEPS_PER_S,
    TOKENS_PER_S,
)
from profiling.shared.run_files import METRICS
from profiling.timeline.opening import newest

LARGEST = 1e100  # a number beyond it is no measurement, and its square no number
LAST_ITERATION = 2**53  # floats count up to there
SETTLING_ROWS = 5  # logged rows after a start that do not count: caches and clocks still settle
WALL_TIME, TRAINING_TIME = "wall time", "training time"
EVALUATION = ("val/loss", "eval/train_loss")  # a row with one of these is before its iteration
CAPTURED = "profile/captured_steps"  # a row with this has iterations under a profiler
SPEEDS = (STEP_MS.name, MEAN_STEP_MS.name, TOKENS_PER_S.name)
CAPTURES = ("*.html", "*.sqlite", "*.nsys-rep", "*.trace.json.gz", "*.pickle")
Numbers = dict[str, float]
# of a row: (iteration, whether the row is after it and not an evaluation before it)
Place = tuple[int, bool]
Rows = dict[Place, Numbers]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**31)]


class NoRowsYet(ValueError):
    """Raised for a run that has only started: its metrics.jsonl has no row with numbers."""


@dataclass(frozen=True)
class Series:
    """Values of one metric in the order of iterations; RunFolder.time_axis explains `elapsed_s`."""

    iteration: np.ndarray
    elapsed_s: np.ndarray
    value: np.ndarray
    training_s: np.ndarray  # sums of step times, whatever the time axis is


@dataclass(frozen=True)
class LoggedSteps:
    """Step times of each logged row, without captured rows and the first rows after each start."""

    iteration: np.ndarray  # the last iteration of the row
    median_ms: np.ndarray
    mean_ms: np.ndarray


@dataclass(frozen=True)
class RunFolder:
    folder: Path
    name: str
    config: JsonObject  # as in config.yaml, open keys with their values; a command is one text
    in_force: JsonObject  # what the keys were resolved to: data, device, attention
    environment: JsonObject | None  # versions and machine; None: not written
    summary: Numbers | None  # None: the run has not ended, or was killed
    verdict: str | None  # what limited the run, as its summary says; None: not known
    tokens: int | None  # tokens of one iteration; None: a program of others, which does not say
    columns: dict[str, Series]
    steps: LoggedSteps
    captures: list[Path]
    time_axis: str  # meaning of the columns' elapsed_s: WALL_TIME or TRAINING_TIME
    notes: list[str]

    @property
    def iterations(self) -> int:
        return int(max(series.iteration[-1] for series in self.columns.values()))

    @property
    def step_ms(self) -> np.ndarray:
        return self.steps.median_ms

    @property
    def on_cpu(self) -> bool:
        """Whether a CPU computed the steps of the run."""
        return self.in_force.get("device") == "cpu"

    @property
    def command(self) -> str | None:
        """The command of a program of others, as a shell reads it; None: this project's trainer."""
        command = self.config.get("command")
        return command if isinstance(command, str) else None


@dataclass(frozen=True)
class InForce:
    """The resolved keys by which runs are told apart."""

    data: str | None = None
    text_sha256: str | None = None
    tokenizer: str | None = None
    vocab_size: int | None = None
    attention: str | None = None
    device: str | None = None
    gpu_metrics: str | None = None
    ranks: int | None = None
    torch: str | None = None
    # values of keys that config.yaml leaves to each start, by key
    chosen: dict[str, str | bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Keys:
    """The fields of config.yaml that are read."""

    batch_size: Count
    block_size: Count
    gradient_accumulation_steps: Count
    dataset: str | None = None
    in_force: InForce | None = None

    @property
    def tokens(self) -> int:
        """Number of tokens of one iteration."""
        return self.batch_size * self.block_size * self.gradient_accumulation_steps


@dataclass(frozen=True)
class CommandKeys:
    """The fields of the config.yaml of a program of others."""

    command: list[str]
    in_force: InForce | None = None
    tokens: None = None


def is_run_folder(path: Path) -> bool:
    return path.is_dir() and (path / METRICS).is_file()


def find_run_folders(places: list[Path]) -> list[Path]:
    """The run folders among `places` and inside them; a previous-N only if it is named itself.

    Raises ValueError naming a place that does not exist or holds no run.
    """
    folders: dict[Path, Path] = {}
    for place in places:
        if not place.is_dir():
            raise ValueError(f"{place}: {not_a_folder(place)}; give the out_dir of a run")
        inside = sorted(path.parent for path in place.rglob(METRICS))
        runs = [path for path in inside if not is_previous(path.relative_to(place))]
        if not runs:
            raise ValueError(
                f"{place}: no {METRICS} in this folder or below; give the out_dir of a run"
            )
        for path in runs:
            folders.setdefault(path.resolve(), path)
    return list(folders.values())


def runs_below(place: Path) -> list[Path]:
    """The runs in a folder that neither is a run nor holds captures, such as that of a sweep."""
    if not place.is_dir() or is_run_folder(place):
        return []
    with suppress(ValueError):  # none there
        newest(place)
        return []
    folders = sorted(path.parent for path in place.rglob(METRICS))
    return [path for path in folders if not is_previous(path.relative_to(place))]


def newest_capture(folder: Path) -> Path | None:
    """The newest capture of the run in this folder, or None."""
    try:
        return newest(folder / "profile")
    except ValueError:
        return None


def is_previous(path: Path) -> bool:
    return any(part.startswith("previous-") for part in path.parts)


def read_runs(folders: list[Path]) -> tuple[list[RunFolder], list[str]]:
    """(runs on one time axis, notes, first on each run that is left out).

    Left out is a run that has not logged a row yet, or that cannot be read. Raises ValueError where
    none is left.
    """
    runs, left_out, notes = [], [], []
    for folder, name in zip(folders, run_names(folders), strict=True):
        try:
            runs.append(replace(read_run(folder), name=name))
        except ValueError as error:
            left_out.append(error)
            notes.append(f"left out: {with_name(str(error), folder, name)}")
    if not runs:
        raise next((e for e in left_out if not isinstance(e, NoRowsYet)), left_out[-1])
    for run in runs:
        notes += [with_name(note, run.folder, run.name) for note in run.notes]
    return use_one_axis(runs), notes


def with_name(message: str, folder: Path, name: str) -> str:
    """The message on a file of a run, with the run's name in place of its folder."""
    return f"{name}/{message.removeprefix(f'{folder}/')}"


def run_names(folders: Sequence[Path]) -> list[str]:
    """A name for each of different folders: its own.

    Equal ones follow the nearest folders around them in which they differ.
    """
    parts = [Path(os.path.abspath(folder)).parts[::-1] for folder in folders]
    names = [own for own, *_ in parts]
    for name in {name for name in names if names.count(name) > 1}:
        alike = [number for number, own in enumerate(names) if own == name]
        for around in islice(zip_longest(*(parts[i] for i in alike), fillvalue=""), 1, None):
            if len({names[i] for i in alike}) == len(alike):
                break
            if len(set(around)) > 1:
                for i, part in zip(alike, around, strict=True):
                    names[i] = f"{part}/{names[i]}"
    return names


def use_one_axis(runs: list[RunFolder]) -> list[RunFolder]:
    """The runs on a common time axis: wall time if all have logged it, else training time."""
    axes = {run.time_axis for run in runs}
    return runs if len(axes) == 1 else [use_training_time(run) for run in runs]


def use_training_time(run: RunFolder) -> RunFolder:
    columns = {
        name: replace(series, elapsed_s=series.training_s) for name, series in run.columns.items()
    }
    return replace(run, time_axis=TRAINING_TIME, columns=columns)


def read_run(folder: Path) -> RunFolder:
    """The run in `folder`.

    Raises NoRowsYet without a row of numbers, and ValueError naming the file that cannot be read,
    with the line in metrics.jsonl.
    """
    config = read_config(folder)
    kind: type[Keys | CommandKeys] = CommandKeys if "command" in config else Keys
    try:
        keys = msgspec.convert(config, kind)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise ValueError(
            f"{folder}/config.yaml: {error}; give a folder that training wrote"
        ) from error
    in_force = config.pop("in_force", None)
    if keys.in_force:
        config |= keys.in_force.chosen
    if isinstance(keys, CommandKeys):
        config["command"] = shlex.join(keys.command)
    rows, settling, notes = read_rows(folder / METRICS)
    if keys.tokens is None:
        rows = {place: with_steps_per_s(row) for place, row in rows.items()}
    wall = all(ELAPSED_S in row for row in rows.values())
    columns = columns_of(rows, keys.tokens, wall)
    if not columns:
        raise NoRowsYet(
            f"{folder / METRICS}: no row of metrics yet; check whether training has started"
        )
    environment, summary = folder / "environment.json", folder / "summary.json"
    results = read_json(summary, JsonObject) if summary.is_file() else None
    verdict = (results or {}).get("verdict")
    profile = folder / "profile"
    return RunFolder(
        folder=folder,
        name=run_names([folder])[0],
        config=config,
        in_force=in_force if isinstance(in_force, dict) else {},
        environment=read_json(environment, JsonObject) if environment.is_file() else None,
        summary=None if results is None else numbers_of(results),
        verdict=verdict if isinstance(verdict, str) else None,
        tokens=keys.tokens,
        columns=columns,
        steps=steps_of(rows, settling, keys.tokens),
        captures=sorted(path for pattern in CAPTURES for path in profile.glob(pattern)),
        time_axis=WALL_TIME if wall else TRAINING_TIME,
        notes=notes,
    )


class WithoutAliases(yaml.SafeLoader):
    """A safe YAML loader that rejects aliases.

    A few lines of aliases can stand for gigabytes, and training writes none.
    """

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("YAML aliases (*NAME), which training does not write")
        return super().compose_node(parent, index)


def read_config(folder: Path) -> JsonObject:
    """Every key of the run, nested as in config.yaml; `in_force` holds their resolved values.

    Raises ValueError naming the file.
    """
    path = folder / "config.yaml"
    try:
        config = yaml.load(path.read_text(encoding="utf-8"), WithoutAliases)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        reason = error.strerror if isinstance(error, OSError) else one_line(error)
        raise ValueError(
            f"{path}: cannot be read: {reason}; restore the file, or give the out_dir of another "
            "run"
        ) from error
    if not isinstance(config, dict):
        raise ValueError(f"{path}: not a mapping of keys; give the out_dir of a run")
    return config


def read_rows(path: Path) -> tuple[Rows, set[Place], list[str]]:
    """(rows of numbers in the order of time, places of the rows of a start that settles, notes).

    A start at iteration N removes what an earlier one logged after N: that work was lost. A last
    line that is half-written is left out, with a note. Raises ValueError naming the file, and the
    line that is no row.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    rows: Rows = {}
    settling: set[Place] = set()
    unsettled, notes = SETTLING_ROWS, []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            place, numbers = read_row(line)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            if number == len(lines):  # it has no newline at its end
                notes.append(f"{path}: the last line is incomplete and was left out")
                break
            text = line[:60].decode(errors="replace")
            raise ValueError(
                f"{path}:{number}: this line was not written by training: {text}; remove the "
                "line, or restore the file"
            ) from error
        if numbers is None:
            rows = {known: row for known, row in rows.items() if known[0] <= place[0]}
            unsettled = SETTLING_ROWS
            continue
        rows[place] = rows.get(place, {}) | numbers
        if place[1] and unsettled:
            settling.add(place)
            unsettled -= 1
    return dict(sorted(rows.items())), settling, notes


def read_row(line: bytes) -> tuple[Place, Numbers | None]:
    """The place and the numbers of a line; None instead of numbers for a line that marks a start.

    Raises ValueError, TypeError, KeyError, OverflowError or RecursionError for what is no row.
    """
    row = json.loads(line)
    iteration, numbers = int(row["iter"]), numbers_of(row)
    if not 0 <= iteration < LAST_ITERATION:
        raise ValueError("an impossible iteration")
    speeds = [numbers[name] for name in SPEEDS if name in numbers]
    if STEP_MS.name in numbers and len(speeds) < 2:
        raise ValueError("a step time without its tokens per second or its mean")
    if speeds and not min(speeds) > 1 / LARGEST:
        raise ValueError("a step time that is zero or infinite")
    place = (iteration, not any(name in row for name in EVALUATION))
    return place, None if "run" in row else numbers


def numbers_of(values: JsonObject) -> Numbers:
    """The values that are finite numbers of a size that can be measured."""
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, (int, float))
        and not isinstance(value, bool)
        and -LARGEST < value < LARGEST
    }


def with_steps_per_s(row: Numbers) -> Numbers:
    mean_ms = row.get(MEAN_STEP_MS.name)
    return row if mean_ms is None else row | {STEPS_PER_S.name: 1e3 / mean_ms}


def columns_of(rows: Rows, tokens: int | None, wall: bool) -> dict[str, Series]:
    """A series for each name with numbers; `tokens` is the number in one iteration, if known.

    `wall` takes elapsed_s from the rows, else it is training time.
    """
    done, training_s = training_time(rows, tokens)
    columns = {}
    for name in dict.fromkeys(name for row in rows.values() for name in row):
        if name in ("iter", ELAPSED_S):
            continue
        with_name = {place: row for place, row in rows.items() if name in row}
        iteration, behind = np.array(list(with_name), dtype=float).T
        trained_s = elapsed_s = np.interp(iteration + behind, done, training_s)
        if wall:
            elapsed_s = column(with_name, ELAPSED_S)
        columns[name] = Series(iteration, elapsed_s, column(with_name, name), trained_s)
    return columns


def column(rows: Rows, name: str) -> np.ndarray:
    """(rows,) values of one name, NaN where a row lacks it."""
    return np.array([row.get(name, math.nan) for row in rows.values()], dtype=float)


def training_time(rows: Rows, tokens: int | None) -> tuple[np.ndarray, np.ndarray]:
    """(iterations done, seconds of training up to there), summed from the rows' mean step times.

    Compiling and evaluations do not count, so that runs compare. Where a profiler was on in every
    step of a row the median of the other rows stands in.
    """
    trained = {place: row for place, row in rows.items() if place[1]}
    mean_ms = mean_step_ms(trained, tokens)
    mean_ms[np.isnan(mean_ms)] = np.nanmedian(mean_ms) if np.isfinite(mean_ms).any() else 0.0
    done = np.array([0, *(iteration + 1 for iteration, _ in trained)], dtype=float)
    elapsed_s = np.concatenate([[0.0], np.cumsum(np.diff(done) * mean_ms)]) / 1e3
    return done, elapsed_s


def mean_step_ms(rows: Rows, tokens: int | None) -> np.ndarray:
    """(rows,) mean step time of each row in ms, NaN where a row lacks it."""
    if tokens is None:
        return column(rows, MEAN_STEP_MS.name)
    return tokens / column(rows, TOKENS_PER_S.name) * 1e3


def steps_of(rows: Rows, settling: set[Place], tokens: int | None) -> LoggedSteps:
    usual = {
        place: row
        for place, row in rows.items()
        if STEP_MS.name in row and CAPTURED not in row and place not in settling
    }
    iteration = np.array([iteration for iteration, _ in usual], dtype=int)
    return LoggedSteps(iteration, column(usual, STEP_MS.name), mean_step_ms(usual, tokens))
