"""Why the values of an experiment differ: one capture of each, compared. Called by ab.

A capture is nsys's where nsys and a CUDA GPU are, else torch.profiler's. One that fails costs the
explanation, not the experiment.
"""

import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from profiling.analysis.difference.comparison import compare
from profiling.analysis.runs.run_folder import read_json
from profiling.launch.ab_plan import Plan, plain, training_command
from profiling.launch.ab_runs import RESULTS, remove_checkpoints, run_process
from profiling.tools import nsight
from profiling.verbs.compare import capture_in, capture_report

CAPTURED_STEPS = 20
FREE_STEPS = 25  # behind the window, for the step time without a profiler


def explanations(
    plan: Plan, trainer: Path, folder: Path, console: Console
) -> list[dict[str, Any] | None]:
    """Captures compared with the first value's, for each other value; None where one is missing."""
    reports = []
    for value, label in enumerate(plan.labels):
        try:
            reports.append(capture_report(capture(plan, trainer, folder, value, console)))
        except ValueError as error:
            console.print(
                f"no capture of {label}, so no explanation: {error}", markup=False, soft_wrap=True
            )
            reports.append(None)
    return [
        compare(reports[0], other, force=True) if reports[0] and other else None
        for other in reports[1:]
    ]


def capture(plan: Plan, trainer: Path, folder: Path, value: int, console: Console) -> Path:
    """The capture of one value; one that was made before is taken. Raises ValueError."""
    label = plan.labels[value]
    run_dir = capture_folder(folder, label)
    if made := capture_in(run_dir):
        return made
    words = [
        *plan.value_words(value, run_dir),
        f"max_iters={plan.warm_up + CAPTURED_STEPS + FREE_STEPS}",
        f"profile.start={plan.warm_up}",
        f"profile.steps={CAPTURED_STEPS}",
    ]
    if with_nsys(folder):
        command = [sys.executable, "-m", "profiling", "run", *words]
    else:
        command = training_command(trainer, [*words, "profile=torch"])
    console.print(f"capture of {label}: {'nsys' if with_nsys(folder) else 'torch.profiler'}")
    run_process(command, run_dir.with_name(run_dir.name + ".log"), label)
    remove_checkpoints(run_dir)
    made = capture_in(run_dir)
    if made is None:
        raise ValueError(f"{run_dir}/profile: the process left no capture; see {run_dir}.log")
    return made


def capture_folder(folder: Path, label: str) -> Path:
    """out_dir of the run that was captured for a value."""
    return folder / "captures" / plain(label)


def with_nsys(folder: Path) -> bool:
    """Whether the experiment ran on a CUDA GPU and nsys is installed."""
    in_force = read_json(folder / RESULTS)["in_force"]
    devices = {facts.get("device") for facts in in_force.values()}
    return not devices & {"cpu", "mps"} and bool(nsight.installed("nsys"))
