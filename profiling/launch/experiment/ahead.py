"""Estimate of how long an experiment will take, and a shorter one if that is long. Called by ab."""

import shlex
from collections.abc import Sequence

from profiling.analysis.difference.comparison_records import Experiment
from profiling.launch.duration import Process, duration_line, offer_line
from profiling.launch.experiment.captures import CAPTURED_STEPS, FREE_STEPS
from profiling.launch.experiment.plan import max_iters
from profiling.launch.pace import Pace

SHORT = "--steps 100"
SHORTEST = "--steps 20 --repeats 2"


def processes_ahead(
    experiment: Experiment, values: Sequence[int], paces: Sequence[Pace], uncaptured: Sequence[int]
) -> list[Process]:
    """Processes that are still to run, and the captures after them.

    `values` has the number of each process's value, in the order of all processes; `paces` has a
    pace for each value, and `uncaptured` the numbers of the values that are still to be captured.
    """
    done = {run.number for run in experiment.runs}
    left = [value for number, value in enumerate(values) if number not in done]
    timed = [Process(paces[value], max_iters(experiment)) for value in left]
    steps = experiment.warm_up + CAPTURED_STEPS + FREE_STEPS
    return timed + [Process(paces[value], steps, captured=True) for value in uncaptured]


def duration_lines(
    experiment: Experiment, ahead: Sequence[Process], paces: Sequence[Pace]
) -> list[str]:
    """Lines saying how long the processes take, and offering less if that is long; none if nothing
    is left to run."""
    if not ahead:
        return []
    factor = experiment.factor
    line = duration_line(ahead, dict(zip(factor.labels, paces, strict=True)))
    word = shlex.quote(f"{factor.key}={','.join(factor.values)}")
    offer = offer_line(ahead, f"ab {{file}} {word} {SHORT}", SHORTEST)
    return [f"{line}; the first process will give a better estimate", *([offer] if offer else [])]
