"""Runs the processes of an experiment one after the other, and records their step times.

Called by profiling.verbs.ab. results.json is written anew after every process, so that an
experiment that was stopped can go on where it was.
"""

import os
import shlex
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from cli.files import write_text
from cli.interrupts import stop
from cli.lock import refuse_files_of_others
from cli.parser import at_dashes
from profiling.analysis.difference.comparison_records import Experiment, ProcessRun, SeenWork
from profiling.analysis.runs.folder import read_run
from profiling.launch.duration import spell_range
from profiling.launch.experiment.plan import timed_process, timed_steps
from profiling.launch.process import Ended, stream
from profiling.shared.json_records import JsonObject, read_json, to_json
from profiling.shared.run_files import CHECKPOINTS, SHARDS, remove_run

RESULTS = "results.json"
OF_UNENDED = {"runs", "tree"}  # what an experiment has before its first process has ended
UNEVEN = 1.2  # factor by which processes of one command usually differ, with what else runs
# fields that must be equal for an experiment to go on in its folder
# -> how a message calls them
IDENTITY = {
    "factor": "values or commands",
    "words": "keys",
    "steps": "--steps",
    "warm_up": "--warm-up",
    "log_interval": "log_interval",
}
TAIL_LINES = 15
say = partial(print, flush=True)  # no line may wait in a buffer while a process runs


@dataclass(frozen=True)
class Conditions:
    """The conditions under which a process ran."""

    config: JsonObject
    in_force: JsonObject
    environment: JsonObject | None
    seen: SeenWork | None = None  # of a command


# runs one process of the experiment in the folder: its number, and the number of its value
TimeProcess = Callable[[Experiment, Path, int, int], tuple[ProcessRun, Conditions]]


def refuse_other_folder(folder: Path, key: str) -> None:
    """Raise ValueError, which begins with `key`, if the folder has files, but no experiment."""
    refuse_files_of_others(folder, key, RESULTS, OF_UNENDED, "experiment")


def open_experiment(folder: Path, asked: Experiment) -> Experiment:
    """The experiment measured in this folder before, without its result, or `asked` if there is
    none.

    Raises ValueError if the folder holds another experiment.
    """
    path = folder / RESULTS
    if not path.exists():
        return asked
    earlier = read_json(path, Experiment, cure="give another folder with --out")
    for name, said in IDENTITY.items():
        if getattr(earlier, name) != getattr(asked, name):
            raise ValueError(
                f"--out {folder}: contains an experiment with other {said}; give another folder"
            )
    return replace(earlier, result=None, comparisons=[], first_iterations=None, prediction=None)


def save(experiment: Experiment, folder: Path) -> None:
    write_text(folder / RESULTS, to_json(experiment, indent=1))


def measure(
    experiment: Experiment, values: list[int], time_one: TimeProcess, folder: Path
) -> Experiment:
    """Run the processes that the experiment lacks, and return it with them.

    `values` has the number of each process's value. Once each value has run, the time that is left
    is printed for commands, of which nothing was known before. Raises ValueError if a process
    fails.
    """
    done = {run.number for run in experiment.runs}
    with processes_bar() as progress:
        task = progress.add_task("measuring", total=len(values), completed=len(done))
        for number, value in enumerate(values):
            if number in done:
                continue
            label = experiment.factor.labels[value]
            progress.update(task, description=label)
            process, conditions = time_one(experiment, folder, number, value)
            experiment = with_process(experiment, process, conditions)
            save(experiment, folder)
            progress.advance(task)
            left = seconds_left(experiment, values)
            say(
                f"{number + 1:3d}/{len(values)}  {process.label}  "
                f"{statistics.median(process.step_ms):.3f} ms per step  "
                f"({process.wall_s:.0f} s, about {left / 60:.1f} min left)",
            )
            if experiment.of_commands and len(experiment.runs) == len(experiment.factor.labels):
                whole = left + sum(run.wall_s for run in experiment.runs)
                range_s = spell_range(whole / UNEVEN, whole * UNEVEN)
                say(f"it takes about {range_s} in all, from the first process of each")
    return experiment


def seconds_left(experiment: Experiment, values: list[int]) -> float:
    """Time of the processes that are still to run, each like the finished ones of its value."""
    taken: dict[str, list[float]] = {}
    for run in experiment.runs:
        taken.setdefault(run.label, []).append(run.wall_s)
    usual = statistics.fmean(run.wall_s for run in experiment.runs)
    done = {run.number for run in experiment.runs}
    left = [experiment.factor.labels[v] for number, v in enumerate(values) if number not in done]
    return sum(statistics.fmean(taken.get(label, [usual])) for label in left)


def processes_bar() -> Progress:
    """A progress bar of processes with the time that is left; it shows only on a terminal."""
    console = Console()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        speed_estimate_period=3600,
    )


def timed_by(trainer: Path) -> TimeProcess:
    """The function that runs and times one process of the trainer."""
    return lambda experiment, folder, number, value: time_process(
        experiment, trainer, folder, number, value
    )


def time_process(
    experiment: Experiment, trainer: Path, folder: Path, number: int, value: int
) -> tuple[ProcessRun, Conditions]:
    """Run one process of the trainer; its row of the record, and its conditions.

    Raises ValueError if it fails, or did not log all step times.
    """
    label = experiment.factor.labels[value]
    run_dir, command = timed_process(experiment, trainer, folder, number, value)
    remove_run(run_dir)  # left by a process that was stopped
    started = time.perf_counter()
    run_process(command, run_dir.with_name(run_dir.name + ".log"), label)
    wall_s = time.perf_counter() - started
    run = read_run(run_dir)
    timed = run.steps.iteration >= experiment.warm_up + experiment.log_interval
    expected = timed_steps(experiment) // experiment.log_interval
    if timed.sum() != expected:
        raise ValueError(
            f"{run_dir}: {timed.sum()} rows of step times after the warm-up instead of "
            f"{expected}; the run may have been interrupted"
        )
    remove_checkpoints(run_dir)
    assert run.tokens, "the trainer says how large a batch is"
    process = ProcessRun(
        number=number,
        label=label,
        command=command[1:],
        folder=str(run_dir.relative_to(folder)),
        wall_s=wall_s,
        tokens_per_iteration=run.tokens,
        iterations=run.steps.iteration[timed].tolist(),
        step_ms=run.steps.median_ms[timed].tolist(),
        mean_ms=run.steps.mean_ms[timed].tolist(),
    )
    return process, Conditions(run.config, run.in_force, run.environment)


def with_process(experiment: Experiment, process: ProcessRun, ran: Conditions) -> Experiment:
    """The experiment with one more process; configurations are kept from the first process of each
    value, the environment from the first of all."""
    seen = experiment.seen_work
    if ran.seen:
        seen = seen | {process.label: [*seen.get(process.label, []), ran.seen]}
    return replace(
        experiment,
        runs=[*experiment.runs, process],
        configs={process.label: ran.config} | experiment.configs,
        in_force={process.label: ran.in_force} | experiment.in_force,
        environment=experiment.environment or ran.environment,
        seen_work=seen,
    )


def resume_command(verb: str, argv: list[str], folder: Path) -> str:
    """The command that continues the series of `ab` or `bench` in the folder."""
    words = argv if "--out" in at_dashes(argv)[0] else ["--out", str(folder), *argv]
    return shlex.join(["python", "-m", "profiling", verb, *words])


def remove_checkpoints(run_dir: Path) -> None:
    """Remove the checkpoint that training saves at its end: nobody resumes these few iterations."""
    for name in CHECKPOINTS:
        (run_dir / name).unlink(missing_ok=True)
    shutil.rmtree(run_dir / SHARDS, ignore_errors=True)


def run_process(command: list[str], log: Path, label: str, folder: Path | None = None) -> None:
    """Run a command in `folder`, or here, with its output in the log. Raises as check_ended
    does."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as file:
        ended = stream(command, dict(os.environ), file, folder)
    check_ended(ended, command, log, label)


def check_ended(ended: Ended, command: list[str], log: Path, label: str) -> None:
    """Print a failed process's last lines, and raise ValueError naming its log.

    After Ctrl-C or SIGTERM the process has ended in good order, with all that it started: this
    raises what cli.interrupts raises then.
    """
    if ended.stopped_by:
        stop(ended.stopped_by)
    if ended.status:
        say("\n".join(f"  {line}" for line in ended.output.splitlines()[-TAIL_LINES:]))
        raise ValueError(
            f"{label}: the process ended with exit code {ended.status}; its last lines are "
            f"above, and all of them are in {log}: {shlex.join(command)}"
        )
