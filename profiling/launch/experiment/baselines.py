"""Baselines in a folder: a file for each sitting, so that git or a cache of CI can carry them.

Called by profiling.verbs.ab, baseline and history.
"""

import platform
import re
import shlex
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NoReturn

import numpy as np
from msgspec.structs import replace

from cli.files import (
    check_writable,
    make_folder,
    name_path_in_errors,
    not_a_folder,
    write_text,
)
from cli.process import usable_cores
from profiling.analysis.difference.baseline import (
    FIVE,
    Machine,
    Sitting,
    kept_runs,
    newest_of,
    unlike,
)
from profiling.analysis.difference.command_labels import label
from profiling.analysis.difference.comparison_records import (
    COMMAND,
    SCHEMA_VERSION,
    Experiment,
    Factor,
    ProcessRun,
)
from profiling.analysis.statistics import noise_of_processes
from profiling.launch import git
from profiling.launch.experiment import commands
from profiling.launch.experiment.plan import order
from profiling.launch.experiment.processes import RESULTS, Conditions, TimeProcess, measure
from profiling.shared.json_records import JsonObject, read_json, to_json

FOLDER = Path(".profiling/baselines")
NAME = re.compile(r"\w[\w.-]*")
SITTINGS = "[0-9]*T[0-9]*Z-*.json"  # files of a baseline, as `keep` names them
FOLDER_HELP = f"folder of the baselines, for git or a cache of CI to carry (default {FOLDER})"


def check_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(f"{name}: name a baseline with letters, digits, _ . and -")
    return name


def machine_of(environment: JsonObject | None) -> Machine:
    """This machine, with what a process of a program told of itself."""
    facts = environment or {}
    named = [facts.get(name) for name in ("gpu", "torch", "cuda")]
    gpu, torch, cuda = (value if isinstance(value, str) else None for value in named)
    return Machine(gpu, cpu_name(), usable_cores(), torch, cuda)


def cpu_name() -> str | None:
    """The model of this machine's CPU; where Linux does not say, its architecture."""
    with suppress(OSError):
        if found := re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M):
            return found[1].strip()
    return platform.machine() or None


def read_sittings(folder: Path, names: list[str]) -> list[Sitting]:
    """The sittings of these baselines, or of all in the folder, the oldest first.

    Raises ValueError if a baseline has none, or a file is damaged.
    """
    there = sorted({path.parent.name for path in folder.glob(f"*/{SITTINGS}")})
    names = names or list(filter(NAME.fullmatch, there))
    found = []
    for name in names:
        if not (files := sorted((folder / check_name(name)).glob(SITTINGS))):
            have = f"there are {', '.join(there)}"
            save = f"make it: python -m profiling baseline save {name} -- COMMAND"
            raise ValueError(f"{folder}: has no baseline {name}; {have if there else save}")
        cure = "restore this file, or remove it"
        found += [read_json(path, Sitting, cure) for path in files]
    if not found:
        what = "has no baseline" if folder.is_dir() or folder == FOLDER else not_a_folder(folder)
        save = "python -m profiling baseline save NAME -- COMMAND"
        raise ValueError(f"{folder}: {what}; make one: {save}")
    return sorted(found, key=lambda sitting: sitting.when)


def check_folder(folder: Path) -> None:
    """Raise ValueError if no sitting could be kept there. Call it before one is measured."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise ValueError(f"--baselines {folder}: {there} is a file; name a folder")
    with name_path_in_errors(there):
        check_writable(there)


def keep(folder: Path, sitting: Sitting) -> Path:
    """Write a sitting; return its file."""
    make_folder(folder / sitting.baseline)
    when = re.sub(r"[-:]", "", sitting.when)
    path = folder / sitting.baseline / f"{when}-{(sitting.commit or 'none')[:10]}.json"
    write_text(path, to_json(sitting, indent=1))
    return path


def sitting_of(experiment: Experiment, name: str) -> Sitting:
    """The sitting of an experiment of one command that has run here, now."""
    (only,) = experiment.factor.labels
    fives = [np.percentile(run.step_ms, FIVE).round(6).tolist() for run in experiment.runs]
    commit, dirty = None, False
    with suppress(ValueError):  # in no repository, or in one without a commit
        root = git.root_of(Path.cwd())
        commit, dirty = git.commit_of(root, "HEAD"), git.is_dirty(root)
    return Sitting(
        schema_version=SCHEMA_VERSION,
        baseline=name,
        when=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        commit=commit.hash if commit else None,
        dirty=dirty,
        committed=commit.when if commit else None,
        command=experiment.factor.values[0],
        steps=experiment.steps,
        warm_up=experiment.warm_up,
        five_ms=fives,
        wall_s=[round(run.wall_s, 3) for run in experiment.runs],
        noise_percent=noise_of_processes([five[2] for five in fives]) * 100,
        machine=machine_of(experiment.environment),
        in_force=experiment.in_force.get(only, {}),
        seen=experiment.seen_work.get(only, []),
    )


def plan_series(words: list[str], steps: int | None, warm_up: int) -> Experiment:
    """The experiment of one command alone. Raises as commands.plan_commands does."""
    if words and not commands.command_of(words).words:
        raise ValueError(commands.no_program(commands.ALONE, words))
    both = commands.plan_commands([*words, commands.SEPARATOR, *words], steps, warm_up)
    line, name = both.factor.values[0], label(shlex.split(both.factor.values[0]))
    return replace(both, factor=Factor(COMMAND, [line], [name]))


def alike_here(sittings: list[Sitting], name: str) -> list[Sitting]:
    """The sittings that are like the newest one which was measured on such a CPU.

    Raises ValueError that says what differs if there is none.
    """
    here = machine_of(None)
    on_cpu = [s for s in sittings if (s.machine.cpu, s.machine.cores) == (here.cpu, here.cores)]
    if not on_cpu:
        lines = unlike(sittings[-1].machine, here)
        refuse(name, [line for line in lines if line.startswith(("cpu", "cores"))])
    return [sitting for sitting in on_cpu if sitting.alike == on_cpu[-1].alike]


def refuse(name: str, differences: list[str]) -> NoReturn:
    raise ValueError(
        f"baseline:{name}: was measured on another machine: {'; '.join(differences)}; "
        "save one here, or compare two commands in turns"
    )


def plan_against(
    alike: list[Sitting], words: list[str], steps: int | None, warm_up: int | None
) -> Experiment:
    """The experiment of a baseline's newest sittings, whose processes have run, and a command.

    Steps and warm-up are the baseline's. Raises ValueError if others were asked for.
    """
    base = newest_of(alike)
    last = base[-1]
    for flag, asked, its in (("--steps", steps, last.steps), ("--warm-up", warm_up, last.warm_up)):
        if asked is not None and asked != its:
            raise ValueError(f"{flag} {asked}: baseline:{last.baseline} has {its}; leave it out")
    series = plan_series(words, last.steps, last.warm_up)
    kept, new = f"baseline:{last.baseline}", series.factor.labels[0]
    return replace(
        series,
        factor=Factor(COMMAND, [last.command, *series.factor.values], [kept, new]),
        words=[sitting.when for sitting in base],  # another set is another experiment
        runs=kept_runs(base, kept),
        configs={kept: {COMMAND: last.command}},
        in_force={kept: last.in_force},
        seen_work={kept: [seen for sitting in base for seen in sitting.seen]},
    )


def checked_on(kept: Sitting, time_one: TimeProcess) -> TimeProcess:
    """`time_one`, which refuses a process that ran on another machine than the baseline's."""

    def timed(
        experiment: Experiment, folder: Path, number: int, value: int
    ) -> tuple[ProcessRun, Conditions]:
        process, ran = time_one(experiment, folder, number, value)
        if differences := unlike(kept.machine, machine_of(ran.environment)):
            refuse(kept.baseline, differences)
        return process, ran

    return timed


def measure_series(
    experiment: Experiment, repeats: int, words: list[str], folder: Path
) -> Experiment:
    """Run the processes of one command that the folder lacks; returns the experiment with them."""
    time_one = partial(commands.time_command, (words, words), commands.HERE)
    return measure(experiment, order(1, repeats), time_one, folder)


def forget(folder: Path) -> None:
    """Remove the record of a series that is kept, so that the next one begins anew."""
    (folder / RESULTS).unlink(missing_ok=True)
