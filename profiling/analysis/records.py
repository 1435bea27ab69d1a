"""Records of `python -m profiling report`: the results of analysing one capture.

Made by profiling.analysis.summary, rendered by profiling.report, compared by analysis.difference.
The JSON of --json is these records field by field (docs/report-schema.md). Times in `_ns` are
integers as captured, in `_ms` floats; what a capture does not hold is None, never 0.
"""

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from profiling.analysis.sum_records import (
    AllocationSum,
    CallSum,
    CopySpeed,
    CounterMean,
    FamilySum,
    KernelSum,
    Launch,
    Lines,
    MemopSum,
    OperatorSum,
    OperatorWork,
)
from profiling.analysis.whatif.whatif_records import WhatIf
from profiling.shared.advice import Framework
from profiling.shared.gpu_clock import GpuClock
from profiling.shared.json_records import JsonObject
from profiling.shared.manifest import AttentionFacts, CompileFacts, ProcessUse
from profiling.timeline.trace import Device

SCHEMA_VERSION = 1
OverlapKind = Literal["communication", "copies"]  # copies include memsets
Loader = Literal["in_process", "workers"]
BUSY_PARTS = ("compute", "communication", "copy")  # of a step
CoverKind = Literal["operator", "range", "function", "os_call"]  # function: of Python


@dataclass(frozen=True)
class CaptureFacts:
    kind: str  # nsys | kineto
    file: str
    tool_version: str | None
    schema_version: str | None  # of the tool's export
    devices: list[Device]
    manifest: str | None  # name of the manifest that belongs to the capture
    personal: bool  # the capture still holds environment, user, host or folders: see scrub
    process: int | None  # this and the next: the process and GPU that the report is about
    device: int | None
    no_gpu: bool = False  # the run had no GPU, as its manifest or the tool says

    @property
    def gpu(self) -> Device | None:
        """The GPU that the report is about."""
        return next((each for each in self.devices if each.id == self.device), None)


@dataclass(frozen=True)
class ProgramSteps:
    """Steps of a program of others, captured or not, with the rule that recognised them."""

    rule: str  # a sentence: a step ends with AdamW.step()
    steps: int
    skipped: int  # by a GradScaler
    timed: int | None  # on a GPU one short step of several; None: their times are not known
    long: int | None  # timed ones that took longer than three medians
    backwards_per_step: float | None
    host_ms: dict[str, float]  # phase -> median of its time on the host, outside the window
    inputs: list[str]  # float32:8x128, of outermost modules' arguments
    notes: list[str]  # what could not be seen, and why


@dataclass(frozen=True)
class RunFacts:
    """Facts about the run from its manifest; None where the manifest does not say."""

    config: JsonObject | None
    environment: JsonObject | None
    attention: AttentionFacts | None
    compile: CompileFacts | None
    process: ProcessUse | None = None
    gpu_clock: GpuClock | None = None  # over the whole run in whose folder the capture lies
    # None: steps of this project's trainer, or of a program that was killed
    program_steps: ProgramSteps | None = None


@dataclass(frozen=True)
class StepTimes:
    """Step times in the window, in ms, between the step boundaries on the GPU's time line."""

    median: float
    mean: float
    min: float
    max: float
    p95: float
    values: list[float]


@dataclass(frozen=True)
class WindowFacts:
    steps: int
    wall_ms: float
    first_iteration: int | None
    step_name: str | None  # name of the range that is a step; None: the whole capture is one step
    phases_from: str | None  # ranges | operators (guessed from autograd's and the optimizer's)
    step_ms: StepTimes
    left_out_ms: float | None = None  # of the first recorded step, which is in no other figure


@dataclass(frozen=True)
class GpuTime:
    """Busy and idle time of the GPU in the window; busy is the union of its operations."""

    busy_ms: float
    idle_ms: float
    busy_percent: float


@dataclass(frozen=True)
class Breakdown:
    """The mean step split into four exclusive parts, which add up to it."""

    compute_ms: float
    communication_ms: float
    copy_ms: float
    idle_ms: float


@dataclass(frozen=True)
class TypicalStep:
    """The mean of the typical steps (gpu_time.typical), of which verdict, bar and figures are."""

    of_steps: int  # number of typical steps
    ms: float
    parts_ms: dict[str, float]  # by causes.PARTS; adds up to it
    family_ms: dict[str, float]  # kernel time a step
    kernel_noise: float  # standard deviation of it, pooled over the kernels, as a share of the step
    # by causes.CAUSES: what capturing added at least, likely and at most; None: not known by cause
    added_ms: list[dict[str, float]] | None

    @property
    def busy_ms(self) -> float:
        return sum(self.parts_ms[name] for name in BUSY_PARTS)

    @property
    def idle_ms(self) -> float:
        return self.ms - self.busy_ms

    @property
    def busy_percent(self) -> float:
        return 100 * self.busy_ms / self.ms if self.ms else 0.0


@dataclass(frozen=True)
class RangeTotal:
    """All ranges of one name at one depth, over the window."""

    name: str
    depth: int  # 0: a phase; 1: directly inside a phase
    count: int
    host_ms: float
    gpu_ms: float | None  # time of the kernels that the ranges own
    kernels: int | None
    # durations of single ranges on the host
    min_ms: float
    median_ms: float
    max_ms: float
    stddev_ms: float  # sample standard deviation


@dataclass(frozen=True)
class Coverage:
    """Share of the window's kernel time that belongs to a phase."""

    kernel_ns: int
    attributed_ns: int
    coverage: float | None  # attributed over all; None without kernels
    same_thread_ns: int  # launched by the thread of the phase
    by_time_ns: int  # launched by a thread without ranges, attributed by time


@dataclass(frozen=True)
class Gap:
    """A period in which nothing ran on the GPU."""

    start_ms: float  # since the window began
    ms: float
    step: int
    cause: str  # the main cause, one of causes.CAUSES
    phase: str | None  # the phase that launched the operation after the gap
    before: str | None  # name of the operation before the gap
    after: str | None


@dataclass(frozen=True)
class Cover:
    """A name that was open on the host during most of the gaps of one cause; ms per step."""

    name: str
    kind: CoverKind
    ms: float  # of the gaps, inside the name
    of_ms: float  # all of the gaps; of `cpu` without the CUDA calls, of `synchronization` the waits
    within: str | None = None  # the range or function around it, if it is neither


@dataclass(frozen=True)
class Idle:
    by_cause: dict[str, float]  # ms per step; adds up to Breakdown.idle_ms
    by_phase: dict[str, dict[str, float]]  # by the phase that launches next; ms
    gaps: list[Gap]  # the longest ones
    covered_by: dict[str, Cover] = field(default_factory=dict)  # cause -> what covers its gaps


@dataclass(frozen=True)
class Overlap:
    """Time a step in which communication or copies ran, and how much of it was hidden."""

    kind: OverlapKind
    ms: float
    hidden_ms: float  # communication: while kernels computed; copies: while any kernel ran
    exposed_ms: float  # the rest, as in Breakdown
    hidden_percent: float
    slowed_ms: float | None  # a step, how much longer it makes the kernels beside it; None: copies


@dataclass(frozen=True)
class LaunchQueue:
    """Lead of the host over the GPU: launches in the steps that the GPU had not begun yet.

    A launch counts from the end of its call until the first of its operations begins.
    """

    stream: int  # the busiest stream; the lengths are of its queue
    mean_length: float
    max_length: int
    # waiting times of the launches on all streams: 5th percentile, median, 95th percentile
    short_us: float
    median_us: float
    long_us: float


@dataclass(frozen=True)
class RooflineRow:
    """A family of kernels against the GPU's peaks; flops, bytes and ms are of one step."""

    family: str
    flops: float
    bytes: float
    ms: float
    tflops: float
    gbps: float
    flops_per_byte: float
    bound: Literal["compute", "memory"]
    percent_of_bound: float


@dataclass(frozen=True)
class Roofline:
    peak_tflops: float
    peak_gbps: float
    mfu: float | None  # 0 to 1; of the steps without a profiler, where they are known
    families: list[RooflineRow]


@dataclass(frozen=True)
class Finding:
    """A possible problem with the capture."""

    level: Literal["note", "warning"]
    what: str
    cure: str | None = None


@dataclass(frozen=True)
class LostKernels:
    """Kernels of the report's process that were launched and that the capture does not hold."""

    launched: int  # all kernels, also those of CUDA graphs where the tool records graph nodes
    lost: int | None  # this and the next: None where no kernel was captured, or launches are lost
    percent: float | None
    no_verdict: bool  # too many are lost to name a bottleneck
    said: str  # in words


@dataclass(frozen=True)
class Health:
    overhead_percent: float | None = None  # how much longer capturing made a step
    free_step_ms: float | None = None  # step time without a profiler
    # least, likely and most that recorded events delayed a typical step; None: measured, or unknown
    recording_ms: list[float] | None = None
    findings: list[Finding] = field(default_factory=list)
    lost_kernels: LostKernels | None = None  # None: not known, the capture has no launching calls

    @property
    def measured_added_ms(self) -> float | None:
        """Milliseconds by which capturing made a step longer, or None where nobody measured it."""
        if self.free_step_ms is None or self.overhead_percent is None:
            return None
        return max(0.0, self.free_step_ms * self.overhead_percent / 100)

    @property
    def loss_findings(self) -> list[Finding]:
        """The warning that kernels were lost, if there is one."""
        lost = self.lost_kernels
        return [each for each in self.findings if lost and each.what == lost.said]

    @property
    def no_verdict(self) -> str | None:
        """The reason why no bottleneck can be named, or None if one can."""
        lost = self.lost_kernels
        return lost.said if lost and lost.no_verdict else None


@dataclass(frozen=True)
class Program:
    """Facts about the program that the capture itself shows; None: it does not say."""

    framework: Framework
    blocking_launches: float | None  # median us of a launch if all return behind their kernels
    anomaly_mode: bool  # of autograd
    attention: bool  # fused or not; a softmax alone is none
    dropout: bool
    loader: Loader | None  # where PyTorch's DataLoader makes batches
    fused_optimizer: bool | None  # None: no optimizer ran
    copies_ahead: bool  # batches are copied on a stream of their own
    batch_bytes: float | None  # this and the next two: a step; None without GPU activity
    transpose_ms: float | None  # kernels that only change the layout of images
    float64_ms: float | None  # kernels that compute in float64


# a Struct, because in JSON the field is called `class`
class Gain(msgspec.Struct, frozen=True, rename={"verdict": "class"}):
    """The most that a step could gain if one cause were removed."""

    verdict: str  # one of causes.VERDICTS
    recoverable_ms_per_step: float
    why_none: str | None = None  # why that is 0; None: it is more


@dataclass(frozen=True)
class Reading:
    """Verdict of the capture if capturing added so much to a step."""

    added_ms: float
    verdict: str  # one of causes.VERDICTS


@dataclass(frozen=True)
class Bottleneck:
    verdict: str = "unknown"  # one of causes.VERDICTS
    evidence: list[str] = field(default_factory=list)
    next: list[str] = field(default_factory=list)  # what to try, the most promising first
    ranked: list[Gain] = field(default_factory=list)
    most_to_gain: str | None = None  # a sentence: which change could shorten a step most
    # questions that the capture cannot answer, each with the option that would have captured it
    cannot_tell: list[str] = field(default_factory=list)
    # with the least and the most that capturing may have added, where the verdicts differ
    readings: list[Reading] = field(default_factory=list)


@dataclass(frozen=True)
class Report:
    """The report on one process on one GPU of a capture.

    `kernels`, `launches`, `families`, `api`, `os_calls` and `memops` are sums over the whole
    capture; all else is about the window.
    """

    schema_version: int
    capture: CaptureFacts
    run: RunFacts | None  # None: no manifest
    window: WindowFacts
    gpu: GpuTime | None  # this and the next: None without GPU activity
    breakdown: Breakdown | None
    ranges: list[RangeTotal]
    attribution: Coverage | None
    idle: Idle | None  # None without GPU activity, or without CUDA calls to find causes by
    family_ms: dict[str, float]  # kernel time a step
    kernels: list[KernelSum]
    launches: list[Launch] | None  # the most of the kernel time; None without geometry
    families: list[FamilySum]
    api: list[CallSum]
    os_calls: list[CallSum] | None  # of the system's libraries: waits, files, threads
    memops: list[MemopSum]
    copies: list[CopySpeed] | None  # this and the next: None without GPU activity
    overlap: list[Overlap] | None  # a row for each kind that ran
    launch_queue: LaunchQueue | None  # None without the calls
    allocations: AllocationSum | None
    gpu_metrics: list[CounterMean] | None
    operators: list[OperatorSum] | None
    operator_work: list[OperatorWork] | None  # None where no shapes were recorded
    lines: Lines | None  # None: recorded without Python's stacks
    attention_backend: str | None  # of configs.backends, or unknown
    roofline: Roofline | None
    program: Program
    typical: TypicalStep | None  # None without GPU activity
    # these two are computed last, from all the rest
    health: Health = Health()
    bottleneck: Bottleneck = Bottleneck()
    # the predictions of `whatif` that help most; None: it cannot replay the capture, or not quickly
    what_if: WhatIf | None = None

    @property
    def phases(self) -> list[RangeTotal]:
        return [row for row in self.ranges if row.depth == 0]

    @property
    def estimated_free_ms(self) -> float | None:
        """Step without a profiler by the replay of `whatif`, where nobody measured it."""
        result = self.what_if
        if result is None or result.free.source != "estimated" or not result.gates.passed:
            return None
        return result.free.ms

    @property
    def on_cpu(self) -> bool:
        """Whether the run had no GPU that could have been captured."""
        return self.breakdown is None and self.capture.no_gpu

    @property
    def process(self) -> ProcessUse | None:
        return self.run.process if self.run else None

    @property
    def cpu_cores(self) -> int | None:
        """Number of the machine's cores, as the system counts them, or None."""
        cores = ((self.run and self.run.environment) or {}).get("cpu_cores")
        return cores if isinstance(cores, int) else None

    @property
    def parts_ms(self) -> dict[str, float] | None:
        """The mean step by causes.PARTS, which add up to it; None without GPU activity."""
        if self.breakdown is None:
            return None
        return {
            "compute": self.breakdown.compute_ms,
            "communication": self.breakdown.communication_ms,
            "copy": self.breakdown.copy_ms,
            **(self.idle.by_cause if self.idle else {"idle": self.breakdown.idle_ms}),
        }
