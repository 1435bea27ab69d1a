"""Describe the first iterations of an experiment's processes, and when a slow start pays off.

Called by profiling.verbs.ab. It reads the folders of the experiment's runs; what a trainer did not
write there is None, never 0.
"""

import statistics
from dataclasses import astuple
from pathlib import Path
from typing import Literal

from profiling.analysis.difference.comparison_records import (
    MS_PER_STEP,
    Against,
    Evened,
    Experiment,
    FirstIterations,
    ProcessRun,
    Start,
    ValueIterations,
)
from profiling.analysis.runs.folder import WALL_TIME, RunFolder, read_run
from profiling.shared.json_records import read_json
from profiling.shared.metric_names import STEP_MS
from profiling.shared.run_files import STEP_TIMES, STEP_TIMES_OF_RANK_0, StepTimes


def first_iterations(experiment: Experiment, folder: Path, count: int) -> FirstIterations | None:
    """The first `count` iterations of each value's first process; None where they are not known.

    Raises ValueError naming a file that is damaged.
    """
    result = experiment.result
    if not count or result is None:
        return None
    labels = experiment.factor.labels
    values = [value_iterations(experiment, folder, label, count) for label in labels]
    if not all(value.ms for value in values):
        return None
    known = {value.label: value for value in values}
    # a token of the one is not an iteration of the other
    pairs = result.comparisons if result.unit == MS_PER_STEP else []
    return FirstIterations(values, [row for pair in pairs for row in break_even(pair, known)])


def value_iterations(
    experiment: Experiment, folder: Path, label: str, count: int
) -> ValueIterations:
    runs = sorted((r for r in experiment.runs if r.label == label), key=lambda run: run.number)
    start = start_of_command if experiment.of_commands else start_of
    first, *later = (start(run, folder / run.folder, experiment.warm_up) for run in runs)
    return ValueIterations(
        label=label,
        ms=step_times(folder / runs[0].folder)[:count],
        median_ms=statistics.median(statistics.median(run.step_ms) for run in runs),
        start=first,
        later_start=middle(later),
    )


def step_times(run_dir: Path) -> list[float | None]:
    """Step time of each iteration in ms, of rank 0 if there are several; empty where none were
    written."""
    for file in (run_dir / STEP_TIMES, run_dir / STEP_TIMES_OF_RANK_0):
        if file.is_file():
            return read_json(file, StepTimes).ms
    return []


def start_of(process: ProcessRun, run_dir: Path, warm_up: int) -> Start:
    """Breakdown of the time that a process took before its timed iterations, in seconds."""
    if not run_dir.is_dir():
        return Start()
    run = read_run(run_dir)
    summary, before_s = run.summary or {}, before_first_s(run)
    wall_s, compile_s = summary.get("wall_s"), summary.get("time/compile_s")
    capture_s = summary.get("time/capture_s")
    known_s = (compile_s or 0.0) + (capture_s or 0.0)
    return Start(
        python_s=None if wall_s is None else process.wall_s - wall_s,
        compile_s=compile_s,
        capture_s=capture_s,
        rest_s=None if before_s is None else before_s - known_s,
        before_s=before_s,
        slow_s=slow_s(process, run_dir, warm_up),
    )


def start_of_command(process: ProcessRun, run_dir: Path, warm_up: int) -> Start:
    """The same of a command, of which only the step times are known."""
    return Start(slow_s=slow_s(process, run_dir, warm_up))


def slow_s(process: ProcessRun, run_dir: Path, warm_up: int) -> float | None:
    """Seconds by which the untimed steps took longer than the timed ones; None: not known."""
    median_ms = statistics.median(process.step_ms)
    untimed = [ms - median_ms for ms in step_times(run_dir)[:warm_up] if ms is not None]
    return sum(untimed) / 1e3 if untimed else None


def before_first_s(run: RunFolder) -> float | None:
    """Seconds from the beginning of the run to the beginning of iteration 0, or None.

    None where iteration 0 has no row of its own, or where wall time was not logged.
    """
    row = run.columns.get(STEP_MS.name)
    if row is None or row.iteration[0] or run.time_axis != WALL_TIME:
        return None
    return float(row.elapsed_s[0] - row.value[0] / 1e3)


def middle(starts: list[Start]) -> Start:
    """Medians of each part over processes."""
    columns = zip(*map(astuple, starts), strict=True)
    known = ([seconds for seconds in column if seconds is not None] for column in columns)
    return Start(*(statistics.median(column) if column else None for column in known))


def break_even(pair: Against, values: dict[str, ValueIterations]) -> list[Evened]:
    """Iterations after which the slow starter has caught up, for first and for later processes.

    Empty unless the experiment found a difference: the gain in a step must be more than noise.
    """
    if pair.verdict not in ("faster", "slower"):
        return []
    one, other = values[pair.baseline], values[pair.candidate]
    gain_ms = one.median_ms - other.median_ms
    starts: list[tuple[Literal["first", "later"], Start, Start]] = [
        ("first", one.start, other.start),
        ("later", one.later_start, other.later_start),
    ]
    rows = []
    for which, a, b in starts:
        if a.before_s is None or b.before_s is None or not gain_ms:
            continue
        later_s = b.before_s - a.before_s + (b.slow_s or 0.0) - (a.slow_s or 0.0)
        iterations = later_s * 1e3 / gain_ms
        even = iterations if iterations > 0 else None
        rows.append(Evened(pair.baseline, pair.candidate, which, later_s, gain_ms, even))
    return rows
