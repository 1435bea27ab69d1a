"""Training in which one gradient is NaN."""

import math

import pytest

from training.step.step import Step


def spoil_gradient(monkeypatch: pytest.MonkeyPatch, call: int) -> list[Step]:
    """Make the `call`th backward yield NaN. Returns a list that collects the steps of all calls."""
    backward, steps = Step.backward, []

    def spoilt_once(self, loss):
        steps.append(self)
        backward(self, loss * (math.nan if len(steps) == call else 1.0))

    monkeypatch.setattr(Step, "backward", spoilt_once)
    monkeypatch.setattr("training.step.warm_up.say_how_long", lambda *_: None)  # it steps, too
    return steps
