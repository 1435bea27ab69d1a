"""Records of `python -m profiling whatif`. The JSON of --json is these records field by field.

Times are in ms per step, of the program without a profiler unless a name says `captured`.
"""

from dataclasses import dataclass
from typing import Literal

SCHEMA_VERSION = 1
Answer = Literal["shorter", "longer", "nothing", "cannot tell"]
# what takes the step's time behind the change; pauses and allocations are the host's
Limit = Literal["host", "gpu"]
StepSource = Literal["manifest", "given", "estimated"]


@dataclass(frozen=True)
class Gates:
    """Differences between the capture and its unchanged replay, and whether the replay passes."""

    end_percent: float  # replayed once: its end, off the captured one
    steady_percent: float  # whole steps replayed round and round: a step, off the captured mean
    passed: bool


@dataclass(frozen=True)
class FreeStep:
    """The step without a profiler, before any change."""

    ms: float
    source: StepSource
    replayed_ms: float  # what the replay gives without a change
    scaled: bool  # whether predicted steps are scaled from that to `ms`
    host_slowdown: float  # of the host while captured; at least 1
    launch_us: float | None  # median of the calls that launch a kernel; None: too few


@dataclass(frozen=True)
class Prediction:
    """The step with one change, or with several together."""

    change: str  # as it is typed: --no data
    answer: Answer
    reason: str | None  # why it cannot be told, or not by how much
    step_ms: float
    low_ms: float
    high_ms: float
    ratio: float  # step with the change over step without; below 1: shorter
    ratio_low: float
    ratio_high: float
    # the step on a host that takes no time but for stalls and allocations: none is below it
    gpu_ms: float
    limited_by: Limit
    leaves: list[str]  # what the change does not remove, in words
    try_it: str | None  # the `ab` command that measures it; None: no key of ours makes the change

    @property
    def has_size(self) -> bool:
        """Whether it says by how much the step changes."""
        return self.reason is None


@dataclass(frozen=True)
class WhatIf:
    capture: str
    captured_ms: float  # mean of the steps that are replayed
    steps: int  # that are replayed
    operations: int
    calls: int
    gates: Gates
    free: FreeStep
    predictions: list[Prediction]
    schema_version: int = SCHEMA_VERSION
