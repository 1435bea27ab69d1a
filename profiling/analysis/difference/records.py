"""What a comparison and an experiment came to: the records of `compare` and `ab`.

The JSON of --json is these records field by field (docs/report-schema.md). Ratios are candidate
over baseline: below 1 the candidate is faster. Fields of a Struct that have their default are left
out of the JSON.
"""

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from profiling.records import JsonObject

SCHEMA_VERSION = 1
MS_A_STEP = "ms a step"
# one of the four answers, or a refusal; no_difference stands in older records of experiments
Outcome = Literal["faster", "slower", "equal", "cannot_tell", "not_comparable", "no_difference"]


class Side(msgspec.Struct, frozen=True, omit_defaults=True):
    """The baseline or the candidate."""

    file: str
    device: str | None
    attention_backend: str | None
    bottleneck: str | None  # a verdict's name
    name: str  # the value of the one key that differs, else the file's
    kind: str | None = None  # nsys | kineto | training; None: no capture
    steps: int | None = None


class StepComparison(msgspec.Struct, frozen=True, omit_defaults=True):
    """Step times of both sides; of several processes the values are the median of each.

    So it is in an experiment, and where the sides are folders of several runs.
    """

    baseline: float  # median; of processes the geometric mean: the ratio is of these two
    candidate: float
    ratio: float
    ci95: tuple[float, float] | None  # None: too few steps on a side, or one process on a CPU
    baseline_spread: float  # interquartile range
    candidate_spread: float
    baseline_values: list[float]
    candidate_values: list[float]
    baseline_mean: float | None = None  # this and the next: of two captures or runs
    candidate_mean: float | None = None
    noise_percent: float | None = None  # of processes: what groups of equal ones differ by
    experiment_unit: str | None = msgspec.field(default=None, name="unit")  # None: MS_A_STEP

    @property
    def unit(self) -> str:
        return self.experiment_unit or MS_A_STEP


@dataclass(frozen=True)
class CannotTell:
    """Why there is no answer, and what would give one."""

    reason: Literal["one_process", "few_steps", "lost_kernels", "profiler", "noise"]
    why: str
    cure: str
    needed: int | None  # steps, logged rows or processes a side; None: more would not do it


@dataclass(frozen=True)
class FreeSteps:
    """Medians of the uncaptured steps around the windows."""

    baseline: float
    candidate: float
    ratio: float


@dataclass(frozen=True)
class BucketChange:
    """A part of the mean step on both sides; parts exclude each other and add up to it."""

    bucket: str  # a name of causes.PARTS, idle_ before a cause; host_PHASE, host_other ...
    baseline_ms: float
    candidate_ms: float
    delta_ms: float


@dataclass(frozen=True)
class FamilyChange:
    """Kernel time a step."""

    family: str
    baseline_ms: float
    candidate_ms: float
    delta_ms: float


@dataclass(frozen=True)
class RangeChange:
    """A phase a step, on the GPU and on the host; None where a side has none."""

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
    """A kernel of both sides; counts and ms are a step's."""

    name: str  # Triton's without its number, where that differs
    family: str
    baseline_count: float
    candidate_count: float
    baseline_ms: float
    candidate_ms: float
    delta_ms: float
    percent: float | None  # of the baseline's ms; None: it took none


@dataclass(frozen=True)
class KernelChanges:
    added: list[KernelOnOneSide]
    removed: list[KernelOnOneSide]
    changed: list[KernelChange] = field(default_factory=list)


@dataclass(frozen=True)
class Pair:
    """A key of the configuration on both sides."""

    baseline: object
    candidate: object

    @property
    def values(self) -> tuple[object, object]:
        return self.baseline, self.candidate


@dataclass(frozen=True)
class Comparability:
    comparable: bool
    reasons: list[str]  # against it
    forced: bool
    notes: list[str]


@dataclass(frozen=True)
class Change:
    """Milliseconds a step; None: not known."""

    baseline: float | None
    candidate: float | None
    delta_ms: float | None


@dataclass(frozen=True)
class RanksChange:
    """What changed between the ranks; means over them, unless it is said otherwise."""

    compute_ms: Change
    slowest_compute_ms: Change  # of the rank that computes longest
    wait_ms: Change  # in collectives until the last rank came, as far as no kernel hides it
    transfer_ms: Change  # from then on, hidden or not
    late_ms: Change  # what the late ranks cost; 0 without any
    stragglers: Pair  # who is late, in words, and why; null: none


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Without captures there is nothing that explains the difference."""

    schema_version: int = SCHEMA_VERSION
    baseline: Side
    candidate: Side
    step_ms: StepComparison
    free_step_ms: FreeSteps | None = None
    verdict: Outcome
    # the band around 1 that counts as equal; None: of before there was one
    equal_within_percent: float | None = None
    cannot_tell: CannotTell | None = None  # None: it can
    # where a profiler made most of the difference: what the GPU's work alone proves of the ratio
    ratio_bound: float | None = None
    buckets: list[BucketChange] | None = None
    families: list[FamilyChange] | None = None
    ranges: list[RangeChange] | None = None
    kernels: KernelChanges = KernelChanges([], [])
    differs: list[str]  # keys, without names and folders
    differences: dict[str, Pair] | None  # None: a side has no configuration
    comparability: Comparability
    sentence: str = ""
    # where step_ms is of steps without a profiler: that of the captures; None: no captures
    captured_step_ms: StepComparison | None | msgspec.UnsetType = msgspec.UNSET
    ranks: RanksChange | msgspec.UnsetType = msgspec.UNSET  # of captures of several ranks


@dataclass(frozen=True)
class Factor:
    """The key that an experiment varies, its values as typed, and what they are called."""

    key: str
    values: list[str]
    labels: list[str]


@dataclass(frozen=True)
class ProcessRun:
    """One process of an experiment; its times are of the logged rows behind the warm-up."""

    number: int
    label: str
    command: list[str]
    folder: str
    wall_s: float
    tokens_per_iteration: int
    iterations: list[int]
    step_ms: list[float]
    mean_ms: list[float]


@dataclass(frozen=True)
class ValueTimes:
    """Step times of one value, in the unit of the result."""

    label: str
    processes: list[float]  # the median of each
    median: float
    spread: float
    spread_within_percent: float
    geometric_mean: float | None = None  # None: an older record

    @property
    def middle(self) -> float:
        """What the ratios are of."""
        return self.median if self.geometric_mean is None else self.geometric_mean


@dataclass(frozen=True)
class Against:
    """A value against the first one, over processes."""

    baseline: str
    candidate: str
    ratio: float
    ci95: tuple[float, float]
    noise_percent: float
    verdict: Outcome
    processes_to_tell: int | None = None  # of each value; None: it can tell, or no number would do


@dataclass(frozen=True)
class ExperimentResult:
    unit: str
    values: list[ValueTimes]
    comparisons: list[Against]
    warnings: list[str]
    equal_within_percent: float | None = None  # None: of before there was a band


@dataclass(frozen=True)
class Start:
    """Seconds that a process took before it ran at its speed; None: not known, or not done."""

    python_s: float | None = None  # outside of training: the interpreter, imports, the end
    compile_s: float | None = None
    capture_s: float | None = None  # recording CUDA graphs
    rest_s: float | None = None  # data, model, first kernels, the evaluation of iteration 0
    before_s: float | None = None  # the last three: from the run's beginning to iteration 0
    slow_s: float | None = None  # by which the untimed iterations took longer than the median


@dataclass(frozen=True)
class ValueIterations:
    """How a value begins. Times of the iterations are those of its first process."""

    label: str
    ms: list[float | None]  # of iteration 0, 1, 2 ...
    median_ms: float  # of the timed ones, over all processes
    start: Start  # of the first process
    later_start: Start  # medians of the others, whose compilers find what the first one made


@dataclass(frozen=True)
class Evened:
    """After how many iterations two values that start differently have taken the same time."""

    baseline: str
    candidate: str
    processes: Literal["first", "later"]
    later_s: float  # by which the candidate comes to its speed later; below 0: earlier
    gain_ms: float  # by which its step is shorter; below 0: longer
    iterations: float | None  # None: the one that starts sooner is the faster one, too


@dataclass(frozen=True)
class FirstIterations:
    values: list[ValueIterations]
    evened: list[Evened]  # of the pairs that differ


class Experiment(msgspec.Struct, frozen=True, omit_defaults=True):
    """results.json: what ran so far, and at the end what it came to."""

    schema_version: int
    factor: Factor
    words: list[str]
    steps: int
    warm_up: int
    log_interval: int
    runs: list[ProcessRun]
    configs: dict[str, JsonObject] = {}  # by label; this and the next two from the first processes
    in_force: dict[str, JsonObject] = {}
    environment: JsonObject | None = None
    result: ExperimentResult | None = None
    comparisons: list[Comparison] = []
    first_iterations: FirstIterations | None = None
