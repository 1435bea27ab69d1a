"""What captures of several ranks came to: the records of `python -m profiling report FOLDER`.

Made by profiling.analysis.ranks.summary, told by profiling.report.ranks. The JSON is these records
field by field (docs/report-schema.md). Times are of a step, the mean over the steps that all ranks
have, unless it is said otherwise; what is not known is None.
"""

from dataclasses import dataclass
from typing import Literal

from profiling.analysis.report import Finding
from profiling.gpu_clock import GpuClock

SCHEMA_VERSION = 1
# straggler: the same rank is late; jitter: now this one, now that; communication: none is late, the
# transfer takes long; balanced: none of these; unknown: the ranks' collectives were not matched, or
# do not end together
RanksVerdict = Literal["straggler", "jitter", "communication", "balanced", "unknown"]
# why a rank computes longer: more launched; larger grids; the same kernels, each longer
Work = Literal["more_kernels", "larger_kernels", "slower_kernels"]


@dataclass(frozen=True)
class RankCommunication:
    exposed_ms: float  # while no kernel computes, as in a report's breakdown
    hidden_ms: float
    wait_ms: float | None  # until the last rank came; this and the next: None if not matched
    transfer_ms: float | None
    exposed_wait_ms: float | None  # of wait_ms, what no kernel hides
    slowed_ms: float  # what the kernels that hide it take longer for it; so compute_ms has it too
    slowed_by_wait_ms: float | None  # of slowed_ms the share of waits

    @property
    def lost_wait_ms(self) -> float | None:
        """By how much the rank is later for its waits."""
        if self.exposed_wait_ms is None or self.slowed_by_wait_ms is None:
            return None
        return self.exposed_wait_ms + self.slowed_by_wait_ms


@dataclass(frozen=True)
class RankRow:
    rank: int
    file: str
    kind: str  # nsys | kineto
    rank_from: str  # capture, manifest, name, order: who says that it is this rank
    process: int | None
    device: int | None
    gpu: str | None
    steps: int
    step_ms: float  # the mean, as all that follows
    median_step_ms: float
    compute_ms: float
    copy_ms: float
    idle_ms: float
    parts_ms: dict[str, float]  # the step by causes.PARTS, which add up to it
    communication: RankCommunication
    kernels: float  # that compute, a step
    bottleneck: str  # by itself, of causes.VERDICTS
    costs_ms_per_step: float | None  # what the others wait for this one alone
    last_in_steps: int | None  # in how many steps it costs the most
    clock_offset_us: float | None  # its clock less that of the first rank; None: not aligned
    gpu_clock: GpuClock | None  # over the run; None: no row of it lies beside the captures
    no_verdict: str | None = None  # why its capture tells nothing; None: it does


@dataclass(frozen=True)
class LongerKernel:
    """One that takes the late rank longer than the one that computes a median time."""

    name: str
    longer_ms: float  # a step
    more: float  # launches a step, than there


@dataclass(frozen=True)
class Straggler:
    """The rank that is waited for."""

    rank: int
    with_ranks: list[int]  # others that are as late: mending one of them alone gains little
    costs_ms_per_step: float  # what the others lose because these do not come with the next
    gains_ms_per_step: float  # what mending it gives; less, where clocks would fall by it
    in_steps: int  # of `of_steps`, those in which these are late
    of_steps: int
    because: str  # of causes.VERDICTS
    part: str  # of causes.PARTS: where it is longer than the others
    longer_ms: float  # by so much, than the median of the others
    phase: str | None  # in which phase
    work: Work | None  # why it computes longer, where it does
    kernels: list[LongerKernel]  # those that do most of it; [] where `work` is null
    evidence: list[str]
    next: list[str]  # what to try


@dataclass(frozen=True)
class CollectiveSum:
    """The collectives of one kind, group and size; times are the mean of one, over ranks."""

    kind: str
    group: str
    ranks: int  # that take part
    count: int  # in the steps, each counted once
    bytes: int | None  # of the larger of what goes in and what comes out on one rank
    algorithm: str | None
    wait_ms: float
    transfer_ms: float  # of the rank that came last
    exposed_ms: float
    slowed_ms: float  # what it makes the kernels that hide it longer
    bus_gb_per_s: float | None  # by the bytes that cross each GPU's links, over the transfer
    link_percent: float | None  # of the peak of the GPU's links
    last_rank: int | None  # the one that most often came last
    last_percent: float | None  # how often


@dataclass(frozen=True)
class Clock:
    aligned_on: str | None  # in words; None: the ranks' clocks could not be aligned
    uncertainty_us: float | None  # the median distance of a collective's first and last end


@dataclass(frozen=True)
class StepsOfRanks:
    """A row for each step that all have, in each list of `ranks` a value for each rank."""

    name: str | None
    iterations: list[int]
    # None where none of the rank's collectives was found on another; [] where nothing was matched
    wait_ms: list[list[float | None]]  # exposed, and what it slows
    costs_ms: list[list[float | None]]  # what each rank costs alone
    step_ms: list[list[float]]


@dataclass(frozen=True)
class RanksReport:
    schema_version: int
    world_size: int | None
    ranks: list[RankRow]
    verdict: RanksVerdict
    evidence: list[str]
    straggler: Straggler | None
    jitter_ms_per_step: float | None  # what ranks cost in turns, the straggler's aside
    collectives: list[CollectiveSum]
    clock: Clock
    steps: StepsOfRanks
    findings: list[Finding]
