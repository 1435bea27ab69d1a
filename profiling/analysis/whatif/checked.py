"""Predictions of `whatif` held against measured steps: the lines of predictions.jsonl.

Called by profiling.launch.experiment.predicted for `ab --predicted`, and by validation.predictions.
"""

from dataclasses import dataclass

from profiling.analysis.whatif.whatif_records import (
    Answer,
    Limit,
    Prediction,
    StepSource,
    WhatIf,
)
from profiling.shared.units import milliseconds

PREDICTIONS = "predictions.jsonl"


@dataclass(frozen=True)
class Interval:
    middle: float
    low: float
    high: float


@dataclass(frozen=True)
class Measured:
    """The step with a change, measured without a profiler; times are in ms per step."""

    before_ms: float  # without the change
    step_ms: Interval
    ratio: Interval  # step with the change over step without


@dataclass(frozen=True)
class Predicted:
    """The step with a change as a rule predicts it; times are in ms per step."""

    answer: Answer
    step_ms: Interval
    ratio: Interval
    limited_by: Limit | None  # None: the rule does not say


@dataclass(frozen=True, kw_only=True)
class CheckedPrediction:
    """A line of predictions.jsonl: a predicted step beside the measured one."""

    by: str = "whatif"  # the rule that predicted
    change: str | None  # as whatif takes it; None: whatif has no such change
    kind: str  # class of the change
    program: str | None  # of validation.pairs; None: an experiment of ab
    variant: str  # what was measured: a change of the program, or a value of the experiment
    capture: str | None  # file's name
    tool: str | None  # that captured; None: not known
    gpu: str | None
    free_ms: float | None = None  # step before the change, as the rule took it
    free_source: StepSource | None = None
    predicted: Predicted | None = None  # None: refused
    reason: str | None = None  # why there is no answer, or not by how much
    measured: Measured
    inside: bool | None  # whether the measured step is in the predicted interval; None: no answer
    when: str  # UTC
    commit: str | None  # of this project


def predicted_of(prediction: Prediction) -> Predicted:
    return Predicted(
        prediction.answer,
        Interval(prediction.step_ms, prediction.low_ms, prediction.high_ms),
        Interval(prediction.ratio, prediction.ratio_low, prediction.ratio_high),
        prediction.limited_by,
    )


def why_not(found: WhatIf, prediction: Prediction) -> str | None:
    """The reason why there is no answer, or None if there is one."""
    if prediction.answer == "cannot tell":
        return prediction.reason or prediction.answer
    return None if found.gates.passed else "the capture, replayed unchanged, is not given back"


def is_inside(predicted: Predicted, measured: Measured) -> bool:
    return predicted.step_ms.low <= measured.step_ms.middle <= predicted.step_ms.high


def class_of(change: str) -> str:
    """The class of a change: its flags without their values, but for what `--no` takes out.

    `--no data --scale gemm=0.8` gives `no data, scale`.
    """
    words = change.split()
    classes = [
        f"{word} {following}" if word == "--no" else word.split("=")[0]
        for word, following in zip(words, [*words[1:], ""], strict=True)
        if word.startswith("--")
    ]
    return ", ".join(each.removeprefix("--") for each in classes)


def spelled(checked: CheckedPrediction) -> str:
    """One line: predicted 6.90 ms (6.50 to 7.90), measured 7.00 ms (6.90 to 7.10): inside."""
    measured = f"measured {spelled_ms(checked.measured.step_ms)}"
    if checked.inside is None or not checked.predicted:
        return f"predicted: cannot tell ({checked.reason}), {measured}"
    place = "inside" if checked.inside else "outside"
    step, answer = checked.predicted.step_ms, checked.predicted.answer
    said = spelled_ms(step) if checked.reason is None else f"{answer}: {span(step)} ms"
    return f"predicted {said}, {measured}: {place}"


def spelled_ms(step: Interval) -> str:
    return f"{milliseconds(step.middle)} ms ({span(step)})"


def span(step: Interval) -> str:
    return f"{milliseconds(step.low)} to {milliseconds(step.high)}"
