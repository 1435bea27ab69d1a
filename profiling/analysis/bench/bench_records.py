"""Records of `python -m profiling bench`, as bench.json has them.

docs/report-schema.md describes it field by field. What a process did not print is None.
"""

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from profiling.analysis.difference.comparison_records import Against
from profiling.shared.json_records import JsonObject

SCHEMA_VERSION = 1
BENCH = "bench.json"
# `exact` is ours with its own exact evaluation, while `ours` evaluates as the other one does
Side = Literal["ours", "theirs", "exact"]
Kind = Literal["prepare", "steps", "run", "sample", "samples", "captured"]


@dataclass(frozen=True)
class Asked:
    """The settings of a series; a series with equal settings goes on where the first one ended."""

    words: list[str]  # arguments of train.py
    against: str | None  # the other checkout's folder
    commit: str | None  # its commit; None: it has none
    steps: int  # timed steps of a process
    iterations: int  # iterations of a whole run
    tokens: int  # length of a sampled sequence
    samples: int  # number of sequences where many are sampled
    ours: list[str] = field(default_factory=list)  # further arguments, which only ours gets


@dataclass(frozen=True)
class Evaluation:
    iteration: int
    at_s: float  # seconds from the start of the process until it was printed
    val_loss: float


@dataclass(frozen=True)
class TimedProcess:
    """One process, timed by the process that started it: a line counts when it arrives."""

    kind: Kind
    side: Side
    round: int  # from 0; the processes that prepare are of round 0
    command: list[str]
    folder: str  # its out_dir, below the bench's
    wall_s: float
    first_iteration_s: float | None = None  # to the line of iteration 0
    row_ms: list[float] = field(default_factory=list)  # ms per step, the mean between two lines
    printed_ms: list[float] = field(default_factory=list)  # ms per step as the lines say
    iterations: int | None = None
    evaluations: list[Evaluation] = field(default_factory=list)
    end_s: float | None = None  # from its last line to its end
    tokens: int | None = None  # number of sampled tokens
    sampling_s: float | None = None  # for all tokens, without the start of the process
    captured_ratio: float | None = None  # captured over uncaptured step time


@dataclass(frozen=True)
class Work:
    """A piece of work that both sides have to do equally."""

    what: str
    ours: str
    theirs: str | None  # None: it does not say
    equal: bool | None  # None: not known


@dataclass(frozen=True)
class SideValues:
    side: Side
    values: list[float]  # one for each process
    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Measure:
    """A row of the table; the ratios are of times, also where the unit is a rate."""

    part: str
    what: str
    unit: str  # ms | s | tokens/s | ratio | %
    sides: list[SideValues]
    against: list[Against] = field(default_factory=list)  # baseline: theirs; needs two processes
    detail: str | None = None  # the amount of work that was timed
    remark: str | None = None


class Bench(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record in bench.json: the processes so far, and the result."""

    schema_version: int
    asked: Asked
    began: str  # ISO 8601, UTC
    processes: list[TimedProcess] = []
    environment: JsonObject | None = None  # versions and machine; both ran by this Python
    device: str | None = None  # this and the next two: from our first process
    dtype: str | None = None
    flops_per_step: int | None = None
    work: list[Work] = []
    result: list[Measure] = []
