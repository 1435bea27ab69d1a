"""The prediction that an experiment tests: read from a file of `whatif`, checked, appended.

Called by profiling.verbs.ab for --predicted.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from profiling.analysis.difference.compared import environment_of
from profiling.analysis.difference.comparison_records import MS_PER_STEP, Experiment
from profiling.analysis.statistics import mean_over_processes
from profiling.analysis.whatif.checked import (
    CheckedPrediction,
    Interval,
    Measured,
    class_of,
    is_inside,
    predicted_of,
    why_not,
)
from profiling.analysis.whatif.whatif_records import Prediction, WhatIf
from profiling.launch.experiment.processes import RESULTS
from profiling.shared.json_records import read_json

HELP = (
    "hold the difference against a prediction in FILE, which `whatif --json FILE` wrote; of "
    "several in it name one by its place: FILE:2"
)


@dataclass(frozen=True)
class Chosen:
    """A prediction, and what it was made from."""

    found: WhatIf
    prediction: Prediction


@dataclass(frozen=True)
class Gpu:
    name: str


@dataclass(frozen=True)
class Gpus:
    """The fields of environment.json that name GPUs; a program of others has one alone."""

    gpu: str | None = None
    gpus: list[Gpu] = field(default_factory=list)


def read_prediction(word: str) -> Chosen:
    """The prediction that FILE or FILE:N names. Raises ValueError if it names none, or several."""
    file, _, number = word.rpartition(":")
    if not file or not number.isdecimal() or Path(word).exists():
        file, number = word, ""
    if not file:
        raise ValueError("--predicted: names no file")
    try:
        found = read_json(Path(file), WhatIf)
    except ValueError as error:
        raise ValueError(f"--predicted {error}; give a file of whatif --json") from error
    places = [f"{file}:{n} ({each.change})" for n, each in enumerate(found.predictions, 1)]
    if number and not 0 < int(number) <= len(places):
        raise ValueError(f"--predicted {word}: no such prediction; there are {', '.join(places)}")
    if not places:
        raise ValueError(f"--predicted {file}: has no prediction")
    if not number and len(places) > 1:
        raise ValueError(f"--predicted {file}: name one of its predictions: {', '.join(places)}")
    return Chosen(found, found.predictions[int(number or 1) - 1])


def check_two_values(experiment: Experiment) -> None:
    """Raise ValueError unless the experiment has a value without the change and one with it."""
    if (count := len(experiment.factor.values)) != 2:
        raise ValueError(
            f"--predicted: {count} values; give two, the first without the change that was "
            "predicted, the second with it"
        )


def check_prediction(experiment: Experiment, chosen: Chosen) -> CheckedPrediction:
    """Hold the prediction against an experiment of two values that has its result.

    Of values that differ in tokens per iteration, the step is one with the tokens of the first.
    """
    found, prediction = chosen.found, chosen.prediction
    assert (result := experiment.result) is not None
    before, after = result.values
    (against,) = result.comparisons
    per_unit = 1.0
    if result.unit != MS_PER_STEP:
        first = next(run for run in experiment.runs if run.label == before.label)
        per_unit = (first.tokens_per_iteration or 0) / 1e6  # from ns a token
    after_ms = [per_unit * value for value in mean_over_processes(after.processes)]
    measured = Measured(
        per_unit * before.middle, Interval(*after_ms), Interval(against.ratio, *against.ci95)
    )
    predicted, reason = predicted_of(prediction), why_not(found, prediction)
    environment = environment_of(experiment.environment, RESULTS)
    return CheckedPrediction(
        change=prediction.change,
        kind=class_of(prediction.change),
        program=None,
        variant=after.label,
        capture=found.capture,
        tool=None,
        gpu=gpu_of(experiment),
        free_ms=found.free.ms,
        free_source=found.free.source,
        predicted=predicted,
        reason=reason or prediction.reason,  # where only the sign is told, why not by how much
        measured=measured,
        inside=None if reason else is_inside(predicted, measured),
        when=f"{datetime.now(UTC):%Y-%m-%dT%H:%MZ}",
        commit=environment.git.commit if environment.git else None,
    )


def gpu_of(experiment: Experiment) -> str | None:
    """Name of the GPU that the processes ran on; None on a CPU, and where it is not known."""
    try:
        named = msgspec.convert(experiment.environment or {}, Gpus)
    except msgspec.ValidationError:
        return None
    return named.gpu or next((gpu.name for gpu in named.gpus), None)
