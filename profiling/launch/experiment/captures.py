"""Explanation of an experiment's difference: a capture of each value, compared. Called by ab.

A capture is nsys's if nsys and a CUDA GPU are there, else torch.profiler's. One that fails costs
the explanation, not the experiment.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from profiling.analysis.difference.compared import Compared, compared_capture
from profiling.analysis.difference.comparison import compare
from profiling.analysis.difference.comparison_records import Comparison, Experiment
from profiling.analysis.open_report import open_report
from profiling.analysis.runs.folder import newest_capture
from profiling.launch.experiment.plan import file_name, training_command, value_words
from profiling.launch.experiment.processes import (
    processes_bar,
    remove_checkpoints,
    run_process,
    say,
)
from profiling.tools import nsight

CAPTURED_STEPS = 20
FREE_STEPS = 25  # after the window, for the step time without a profiler
OTHERS = {"cpu", "mps"}  # devices that nsys does not know


def explanations(
    experiment: Experiment, make_capture: Callable[[int], Path]
) -> list[Comparison | None]:
    """Comparison of each other value's capture with the first value's; None if one is missing.

    `make_capture` makes the capture of a value, unless there is one already.
    """
    sides: list[Compared | None] = []
    labels = experiment.factor.labels
    with processes_bar() as progress:
        task = progress.add_task("", total=len(labels))
        for value, label in enumerate(labels):
            progress.update(task, description=f"capture of {label}", completed=value)
            try:
                analysed = open_report(make_capture(value))
                file = analysed.trace.file
                sides.append(compared_capture(analysed.plain_report, analysed.manifest, file))
            except ValueError as error:
                say(f"there is no capture of {label} to explain the difference: {error}")
                sides.append(None)
    first, *others = sides
    return [compare(first, other, force=True) if first and other else None for other in others]


def capture(experiment: Experiment, trainer: Path, folder: Path, value: int) -> Path:
    """Path of a capture of one value, which is made unless there is one already.

    Raises ValueError if the process fails or leaves none.
    """
    label = experiment.factor.labels[value]
    run_dir = capture_folder(folder, label)
    if made := newest_capture(run_dir):
        return made
    words = value_words(experiment, value, run_dir)
    devices = [facts.get("device") for facts in experiment.in_force.values()]
    has_cuda = not OTHERS & {*devices}
    tool, command = capture_command(trainer, words, experiment.warm_up, has_cuda)
    say(f"capture of {label}: {tool}")
    run_process(command, run_dir.with_name(run_dir.name + ".log"), label)
    remove_checkpoints(run_dir)
    made = newest_capture(run_dir)
    if made is None:
        raise ValueError(f"{run_dir}/profile: the process wrote no capture; see {run_dir}.log")
    return made


def missing_captures(experiment: Experiment, folder: Path) -> list[int]:
    """Numbers of the values that have no capture yet."""
    labels = enumerate(experiment.factor.labels)
    return [value for value, label in labels if not newest_capture(capture_folder(folder, label))]


def capture_folder(folder: Path, label: str) -> Path:
    """out_dir of the run that is captured for a value."""
    return folder / "captures" / file_name(label)


def capture_command(
    trainer: Path, words: list[str], warm_up: int, has_cuda: bool
) -> tuple[str, list[str]]:
    """(tool, command) for a run whose iterations after `warm_up` are captured."""
    words = [
        *words,
        f"max_iters={warm_up + CAPTURED_STEPS + FREE_STEPS}",
        f"profile.start={warm_up}",
        f"profile.steps={CAPTURED_STEPS}",
    ]
    if has_cuda and nsight.installed_programs("nsys"):
        return "nsys", [sys.executable, "-m", "profiling", "run", *words]
    return "torch.profiler", training_command(trainer, [*words, "profile=torch"])
