"""Why the values of an experiment differ: one capture of each, compared. Called by ab.

A capture is nsys's where nsys and a CUDA GPU are, else torch.profiler's. One that fails costs the
explanation, not the experiment.
"""

import sys
from pathlib import Path

from profiling.analysis.capture import open_report
from profiling.analysis.difference.compared import Compared, compared_capture
from profiling.analysis.difference.comparison import compare
from profiling.analysis.difference.records import Comparison, Experiment
from profiling.analysis.runs.folder import newest_capture
from profiling.launch.experiment.plan import plain, training_command, value_words
from profiling.launch.experiment.processes import remove_checkpoints, run_process, say
from profiling.tools import nsight

CAPTURED_STEPS = 20
FREE_STEPS = 25  # behind the window, for the step time without a profiler
OTHERS = {"cpu", "mps"}  # devices that nsys does not know


def explanations(experiment: Experiment, trainer: Path, folder: Path) -> list[Comparison | None]:
    """Captures compared with the first value's, for each other value; None where one is missing."""
    sides: list[Compared | None] = []
    for value, label in enumerate(experiment.factor.labels):
        try:
            path = capture(experiment, trainer, folder, value)
            opened = open_report(path)
            sides.append(compared_capture(opened.report, opened.manifest))
        except ValueError as error:
            say(f"no capture of {label}, so no explanation: {error}")
            sides.append(None)
    first, *others = sides
    return [compare(first, other, force=True) if first and other else None for other in others]


def capture(experiment: Experiment, trainer: Path, folder: Path, value: int) -> Path:
    """The capture of one value; one that was made before is taken. Raises ValueError."""
    label = experiment.factor.labels[value]
    run_dir = capture_folder(folder, label)
    if made := newest_capture(run_dir):
        return made
    words = value_words(experiment, value, run_dir)
    devices = [facts.get("device") for facts in experiment.in_force.values()]
    tool, command = capturing(trainer, words, experiment.warm_up, has_cuda=not OTHERS & {*devices})
    say(f"capture of {label}: {tool}")
    run_process(command, run_dir.with_name(run_dir.name + ".log"), label)
    remove_checkpoints(run_dir)
    made = newest_capture(run_dir)
    if made is None:
        raise ValueError(f"{run_dir}/profile: the process left no capture; see {run_dir}.log")
    return made


def capture_folder(folder: Path, label: str) -> Path:
    """out_dir of the run that was captured for a value."""
    return folder / "captures" / plain(label)


def capturing(
    trainer: Path, words: list[str], warm_up: int, has_cuda: bool
) -> tuple[str, list[str]]:
    """(the tool, the command) of a run whose iterations behind `warm_up` are captured."""
    words = [
        *words,
        f"max_iters={warm_up + CAPTURED_STEPS + FREE_STEPS}",
        f"profile.start={warm_up}",
        f"profile.steps={CAPTURED_STEPS}",
    ]
    if has_cuda and nsight.installed_programs("nsys"):
        return "nsys", [sys.executable, "-m", "profiling", "run", *words]
    return "torch.profiler", training_command(trainer, [*words, "profile=torch"])
