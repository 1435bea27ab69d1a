"""Records that `python -m profiling report FOLDER` makes of the captures of several ranks.

profiling.analysis.ranks.summary makes them and profiling.report.ranks renders them. The JSON is
these records field by field (docs/report-schema.md). Unless stated otherwise, a time is per step:
the mean over the steps that all ranks have. What is not known is None.
"""

from dataclasses import dataclass
from typing import Literal

from profiling.analysis.records import Finding
from profiling.shared.gpu_clock import GpuClock

SCHEMA_VERSION = 1
# straggler: the same rank is late each time; jitter: the late rank changes from step to step;
# communication: no rank is late, but the transfer takes long; balanced: none of these; unknown: the
# ranks' collectives were not matched, or do not end together
RanksVerdict = Literal["straggler", "jitter", "communication", "balanced", "unknown"]
# why a rank computes longer: it launches more kernels, or larger grids, or the same kernels and
# each of them takes longer
Work = Literal["more_kernels", "larger_kernels", "slower_kernels"]
# facts that match the collectives of one rank with another's: their sequence numbers, or their
# place in a step among those of the same kinds and sizes, or of the same kinds
MatchedBy = Literal["number", "size", "order"]


@dataclass(frozen=True)
class RankCommunication:
    exposed_ms: float  # communication while no kernel computes, as in a report's breakdown
    hidden_ms: float
    wait_ms: float | None  # until the last rank came; None if the collectives were not matched
    transfer_ms: float | None  # likewise
    exposed_wait_ms: float | None  # the part of wait_ms that no kernel hides
    slowed_ms: float  # how much longer the kernels that hide it take; compute_ms includes it too
    slowed_by_wait_ms: float | None  # the part of slowed_ms that waits cause

    @property
    def lost_wait_ms(self) -> float | None:
        """Time that the rank loses to its waits, in ms per step; None if it was not matched."""
        if self.exposed_wait_ms is None or self.slowed_by_wait_ms is None:
            return None
        return self.exposed_wait_ms + self.slowed_by_wait_ms


@dataclass(frozen=True)
class RankShares:
    """Parts of a rank's step, in percent of it; all but `wait` add up to 100."""

    compute: float
    communication: float  # that no kernel hides
    wait: float | None  # part of it until the last rank came; None: not matched
    copy: float
    idle: float


@dataclass(frozen=True)
class RankRow:
    rank: int
    file: str
    kind: str  # nsys | kineto
    rank_from: str  # source of the rank's number: capture, manifest, name, order
    process: int | None
    device: int | None
    gpu: str | None
    steps: int
    step_ms: float  # the mean, as are all times below but the median
    median_step_ms: float
    compute_ms: float
    copy_ms: float
    idle_ms: float
    shares_percent: RankShares
    parts_ms: dict[str, float]  # the step split into causes.PARTS, which add up to it
    communication: RankCommunication
    kernels: float  # number of compute kernels in a step
    bottleneck: str  # verdict on this rank by itself, one of causes.VERDICTS
    # how long the others wait for this rank alone; None: not known, as where the verdict is unknown
    costs_ms_per_step: float | None
    last_in_steps: int | None  # number of steps in which it costs the most
    clock_offset_us: float | None  # its clock minus that of the first rank; None: not aligned
    gpu_clock: GpuClock | None  # over the run; None: no row of it lies beside the captures
    no_verdict: str | None = None  # why its capture allows no verdict; None: it does


@dataclass(frozen=True)
class LongerKernel:
    """A kernel that takes longer on the late rank than on the rank with the median compute time."""

    name: str
    longer_ms: float  # a step
    more: float  # additional launches in a step


@dataclass(frozen=True)
class Straggler:
    """The rank that the others wait for, and why."""

    rank: int
    with_ranks: list[int]  # others that are as late: mending one of them alone gains little
    costs_ms_per_step: float  # time that the others lose because these arrive after the next rank
    costs_between_ms: tuple[float, float]  # range of what they cost without a profiler
    gains_ms_per_step: float  # gain of mending it; below the cost where GPU clocks would then fall
    in_steps: int  # number of steps, out of `of_steps`, in which these ranks are late
    of_steps: int
    because: str  # one of causes.VERDICTS
    part: str  # one of causes.PARTS: the part of the step that takes longer than on the others
    longer_ms: float  # how much longer `part` takes than the median of the others
    phase: str | None  # the phase in which it computes longer
    work: Work | None  # why it computes longer, if it does
    kernels: list[LongerKernel]  # kernels that cause most of it; [] where `work` is null
    evidence: list[str]
    next: list[str]  # what to try


@dataclass(frozen=True)
class CollectiveSum:
    """Collectives of one kind, group and size; a time is the mean of one collective over ranks."""

    kind: str
    group: str
    ranks: int  # number of ranks that take part
    count: int  # number in the steps, each collective counted once for all its ranks
    bytes: int | None  # on one rank: size of the input or of the output, whichever is larger
    algorithm: str | None
    wait_ms: float
    transfer_ms: float  # on the rank that came last
    exposed_ms: float
    slowed_ms: float  # how much longer it makes the kernels that hide it
    bus_gb_per_s: float | None  # bytes that cross each GPU's links, divided by the transfer
    link_percent: float | None  # share of the peak of the GPU's links
    last_rank: int | None  # the rank that most often came last
    last_percent: float | None  # share of the collectives in which it did


@dataclass(frozen=True)
class Clock:
    aligned_on: str | None  # a phrase; None: the ranks' clocks could not be aligned
    uncertainty_us: float | None  # median time between a collective's first and last end


@dataclass(frozen=True)
class Matching:
    """Result of matching the ranks' collectives: by which fact, how many, and how sure that is."""

    by: MatchedBy | None  # the weakest fact that was used; None: nothing was matched
    matched: int  # number of collectives, each counted once for all its ranks
    unmatched: int  # number found on one rank only
    cut_off: int  # number of kernels whose launch lies before the capture
    # share of the collectives whose ends on all ranks lie closer together than any of them takes; a
    # false match would lie further apart. None: ranks leave none of them together
    ends_agree_percent: float | None


@dataclass(frozen=True)
class StepsOfRanks:
    """Values per step: a row for each step that all ranks have, and in it a value per rank."""

    name: str | None
    iterations: list[int]
    # a value is None where no collective of the rank was found on another rank; a list is [] where
    # nothing was matched
    wait_ms: list[list[float | None]]  # exposed wait, plus the time by which waits slow kernels
    costs_ms: list[list[float | None]]  # what each rank alone costs the others
    step_ms: list[list[float]]


@dataclass(frozen=True)
class RanksReport:
    schema_version: int
    world_size: int | None
    ranks: list[RankRow]
    verdict: RanksVerdict
    evidence: list[str]
    straggler: Straggler | None
    jitter_ms_per_step: float | None  # what ranks cost in turns, without the straggler's cost
    # range of what the transfers that no kernel hides cost without a profiler; None: not known, or
    # the verdict is not communication
    transfers_between_ms: tuple[float, float] | None
    collectives: list[CollectiveSum]
    clock: Clock
    matching: Matching
    steps: StepsOfRanks
    findings: list[Finding]
