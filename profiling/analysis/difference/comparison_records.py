"""Records of `compare` and `ab`: the results of comparisons and experiments.

The JSON of --json is these records field by field (docs/report-schema.md). Ratios are candidate
over baseline: below 1 the candidate is faster. Fields of a Struct that have their default are left
out of the JSON.
"""

import shlex
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from profiling.analysis.whatif.checked import CheckedPrediction
from profiling.shared.json_records import JsonObject

SCHEMA_VERSION = 1
MS_PER_STEP = "ms per step"
COMMAND = "command"  # the factor of an experiment of two commands, and a key of such a run
# one of the four answers, or a refusal; no_difference occurs in older records of experiments
Outcome = Literal["faster", "slower", "equal", "cannot_tell", "not_comparable", "no_difference"]


class Side(msgspec.Struct, frozen=True, omit_defaults=True):
    """The baseline or the candidate."""

    file: str
    device: str | None
    attention_backend: str | None
    bottleneck: str | None  # a verdict's name
    name: str  # the value of the one key that differs, else the name of the file
    kind: str | None = None  # nsys | kineto | training; None: no capture
    steps: int | None = None


class StepComparison(msgspec.Struct, frozen=True, omit_defaults=True):
    """Step times of both sides; over several processes the values are the median of each.

    That is the case in an experiment, and where the sides are folders of several runs.
    """

    baseline: float  # median, or over processes the geometric mean: the ratio is of these two
    candidate: float
    ratio: float
    ci95: tuple[float, float] | None  # None: too few steps on a side, or one process on a CPU
    baseline_spread: float  # interquartile range
    candidate_spread: float
    baseline_values: list[float]
    candidate_values: list[float]
    baseline_mean: float | None = None  # this and the next: only for two captures or runs
    candidate_mean: float | None = None
    noise_percent: float | None = None  # how much groups of equal processes differ
    experiment_unit: str | None = msgspec.field(default=None, name="unit")  # None: MS_PER_STEP

    @property
    def unit(self) -> str:
        return self.experiment_unit or MS_PER_STEP


@dataclass(frozen=True)
class CannotTell:
    """The reason why there is no answer, and what would give one."""

    reason: Literal["one_process", "few_steps", "lost_kernels", "profiler", "noise", "other_work"]
    why: str
    cure: str
    needed: int | None  # steps, logged rows or processes a side; None: more would not help


@dataclass(frozen=True)
class FreeSteps:
    """Medians of the uncaptured steps around the windows."""

    baseline: float
    candidate: float
    ratio: float


@dataclass(frozen=True)
class BucketChange:
    """A part of the mean step on both sides; parts exclude each other and add up to the step."""

    bucket: str  # a name of causes.PARTS, idle_ before a cause; host_PHASE, host_other ...
    baseline_ms: float
    candidate_ms: float
    delta_ms: float


@dataclass(frozen=True)
class FamilyChange:
    """Kernel time of one family on both sides, in ms per step."""

    family: str
    baseline_ms: float
    candidate_ms: float
    delta_ms: float


@dataclass(frozen=True)
class RangeChange:
    """Time of a phase in ms per step, on the GPU and on the host; None where a side has none."""

    name: str
    baseline_gpu_ms: float | None
    candidate_gpu_ms: float | None
    delta_gpu_ms: float | None
    baseline_host_ms: float | None
    candidate_host_ms: float | None
    delta_host_ms: float | None


@dataclass(frozen=True)
class KernelOnOneSide:
    name: str
    family: str
    count: float  # a step
    ms: float


@dataclass(frozen=True)
class KernelChange:
    """A kernel that both sides have; counts and ms are of one step."""

    name: str  # without Triton's number where the sides' names differ
    family: str
    baseline_count: float
    candidate_count: float
    baseline_ms: float
    candidate_ms: float
    delta_ms: float
    percent: float | None  # of the baseline's ms; None: that is 0


@dataclass(frozen=True)
class KernelChanges:
    added: list[KernelOnOneSide]
    removed: list[KernelOnOneSide]
    changed: list[KernelChange] = field(default_factory=list)


@dataclass(frozen=True)
class LineChange:
    """A function of the program on both sides, all of its lines together; ms are of one step."""

    function: str  # FILE: FUNCTION, as lines move when a file is changed
    baseline_lines: list[str]  # FILE:LINE, the longest first; empty: it made no kernel there
    candidate_lines: list[str]
    baseline_ms: float
    candidate_ms: float
    delta_ms: float


@dataclass(frozen=True)
class Pair:
    """A key of the configuration on both sides."""

    baseline: object
    candidate: object

    @property
    def values(self) -> tuple[object, object]:
        return self.baseline, self.candidate

    @property
    def commands(self) -> tuple[list[str], list[str]] | None:
        """The words of both values of COMMAND, or None where a side has no command."""
        one, other = self.baseline, self.candidate
        if not isinstance(one, str) or not isinstance(other, str):
            return None
        return shlex.split(one), shlex.split(other)


@dataclass(frozen=True)
class Comparability:
    comparable: bool
    reasons: list[str]  # against it
    forced: bool
    notes: list[str]


@dataclass(frozen=True)
class Change:
    """Milliseconds a step on both sides; None: not known."""

    baseline: float | None
    candidate: float | None
    delta_ms: float | None


@dataclass(frozen=True)
class RanksChange:
    """Changes of the ranks' times, which are means over the ranks unless noted otherwise."""

    compute_ms: Change
    slowest_compute_ms: Change  # of the rank that computes longest
    wait_ms: Change  # in collectives until the last rank came, where no kernel hides it
    transfer_ms: Change  # in collectives after the last rank came, hidden or not
    late_ms: Change  # cost of the late ranks; 0 without any
    stragglers: Pair  # sentence on who is late and why; null: nobody


@dataclass(frozen=True)
class SeenWork:
    """The work of a program as its process showed it: the fields of facts/rankN.json to compare."""

    rule: str  # what ends a step, in words
    steps: int
    parameters: int  # of all optimizers
    shapes: list[str]  # of the inputs of outermost modules, such as float32:8x128
    world_size: int
    backwards_per_step: float | None = None
    losses: dict[str, float] = field(default_factory=dict)  # by the step


@dataclass(frozen=True)
class SeenDifferences:
    """The differences between two commands that are seen from outside, each in words."""

    work: list[str]  # that make a step other work
    other: list[str]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a comparison; without captures, nothing in it explains the difference."""

    schema_version: int = SCHEMA_VERSION
    baseline: Side
    candidate: Side
    step_ms: StepComparison
    free_step_ms: FreeSteps | None = None
    verdict: Outcome
    # the band around 1 that counts as equal; None: a record from before there was one
    equal_within_percent: float | None = None
    cannot_tell: CannotTell | None = None  # None: there is an answer
    # where a profiler made most of the difference: the bound that the GPU's work alone proves
    ratio_bound: float | None = None
    size_unknown: str | None = None  # why only the direction is known; None: so is the ratio
    buckets: list[BucketChange] | None = None
    families: list[FamilyChange] | None = None
    ranges: list[RangeChange] | None = None
    kernels: KernelChanges = KernelChanges([], [])
    lines: list[LineChange] | msgspec.UnsetType = msgspec.UNSET  # where both sides have stacks
    differs: list[str]  # differing keys, without names and folders
    differences: dict[str, Pair] | None  # None: a side has no configuration
    comparability: Comparability
    sentence: str = ""
    # step times of the captures where step_ms is without a profiler; None: no captures
    captured_step_ms: StepComparison | None | msgspec.UnsetType = msgspec.UNSET
    ranks: RanksChange | msgspec.UnsetType = msgspec.UNSET  # for captures of several ranks
    seen: SeenDifferences | msgspec.UnsetType = msgspec.UNSET  # for two commands


@dataclass(frozen=True)
class Factor:
    """The key that an experiment varies, with its values as typed and their labels.

    In an experiment of two commands the key is COMMAND, and each value is a line for a shell.
    """

    key: str
    values: list[str]
    labels: list[str]


@dataclass(frozen=True)
class ProcessRun:
    """One process of an experiment; its times are of the logged rows after the warm-up."""

    number: int
    label: str
    command: list[str]
    folder: str
    wall_s: float
    tokens_per_iteration: int | None  # None: not known, of a command
    iterations: list[int]
    step_ms: list[float]
    mean_ms: list[float]


@dataclass(frozen=True)
class ValueTimes:
    """Step times of one value, in the unit of the result."""

    label: str
    processes: list[float]  # the median of each process
    median: float
    spread: float
    spread_within_percent: float
    geometric_mean: float | None = None  # None: an older record

    @property
    def middle(self) -> float:
        """The value that ratios are made of: the geometric mean, or the median in older records."""
        return self.median if self.geometric_mean is None else self.geometric_mean


@dataclass(frozen=True)
class Against:
    """The comparison of a value with the first one, over processes."""

    baseline: str
    candidate: str
    ratio: float
    ci95: tuple[float, float]
    noise_percent: float
    verdict: Outcome
    processes_to_tell: int | None = None  # for each value; None: there is an answer, or none helps


@dataclass(frozen=True)
class ExperimentResult:
    unit: str
    values: list[ValueTimes]
    comparisons: list[Against]
    warnings: list[str]
    equal_within_percent: float | None = None  # None: a record from before there was a band


@dataclass(frozen=True)
class Start:
    """Seconds that a process took before it reached its speed; None: not known, or not done."""

    python_s: float | None = None  # outside of training: interpreter, imports, exit
    compile_s: float | None = None
    capture_s: float | None = None  # recording CUDA graphs
    rest_s: float | None = None  # data, model, first kernels, the evaluation of iteration 0
    before_s: float | None = None  # sum of the last three: beginning of the run to iteration 0
    slow_s: float | None = None  # excess of the untimed iterations over the median step time


@dataclass(frozen=True)
class ValueIterations:
    """The first iterations of a value; their times are those of its first process."""

    label: str
    ms: list[float | None]  # of iteration 0, 1, 2 ...
    median_ms: float  # of the timed ones, over all processes
    start: Start  # of the first process
    later_start: Start  # medians of the other processes, which find the first one's compile cache


@dataclass(frozen=True)
class Evened:
    """Number of iterations after which two values with different starts have taken equal time."""

    baseline: str
    candidate: str
    processes: Literal["first", "later"]
    later_s: float  # how much later the candidate reaches its speed; below 0: earlier
    gain_ms: float  # how much shorter its step is; below 0: longer
    iterations: float | None  # None: the one that starts sooner is also the faster one


@dataclass(frozen=True)
class FirstIterations:
    values: list[ValueIterations]
    evened: list[Evened]  # of the pairs that differ


class Experiment(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record in results.json: the runs so far, and at the end the result."""

    schema_version: int
    factor: Factor
    words: list[str]
    steps: int | None  # None: commands run to their own end
    warm_up: int
    log_interval: int
    runs: list[ProcessRun]
    configs: dict[str, JsonObject] = {}  # by label; this and the next two from the first processes
    in_force: dict[str, JsonObject] = {}
    environment: JsonObject | None = None
    seen_work: dict[str, list[SeenWork]] = {}  # of commands, by label: of each process in turn
    result: ExperimentResult | None = None
    comparisons: list[Comparison] = []
    first_iterations: FirstIterations | None = None
    prediction: CheckedPrediction | None = None  # None: none was given

    @property
    def of_commands(self) -> bool:
        """Whether it compares two commands, not values of a key of the trainer."""
        return self.factor.key == COMMAND
