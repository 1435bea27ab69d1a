"""What is kept of one rank's capture, so that those of many fit into memory. Called by files."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import Intervals, union
from profiling.analysis.gpu_time.attribution import OwnedOperations
from profiling.analysis.gpu_time.breakdown import COMMUNICATION
from profiling.analysis.gpu_time.idle import find_gaps
from profiling.analysis.gpu_time.slowed import Launches, alone_ns, launches_of, measure_slowdown
from profiling.analysis.gpu_time.typical import causes_of_steps, parts_of_steps
from profiling.analysis.kernels.families import FAMILIES
from profiling.analysis.ranks.collectives import Collectives, collectives_of
from profiling.analysis.ranks.slices import RankSlices, drawn
from profiling.analysis.report import Report
from profiling.analysis.verdict.advice import in_force
from profiling.analysis.verdict.health import PERSONAL
from profiling.causes import InForce
from profiling.gpu_clock import GpuClock
from profiling.timeline.trace import KERNEL

SHORT_NS = 100_000  # a gap; launches one by one leave 5 to 50 us


@dataclass(frozen=True)
class KernelWork:
    """All launches of one kernel in the steps."""

    family: str
    count: int
    ns: int  # less what collectives beside it made it longer
    blocks: int  # of all grids; -1: not told, or they do not tell how large the work is


class Kind(NamedTuple):
    """Of launches that should take equally long, also on another rank."""

    kernel: str
    phase: str | None
    blocks: int
    threads: int


@dataclass(frozen=True)
class Alone:
    """What launches of each kind take beside no collective, as far as this rank tells."""

    kinds: list[Kind]
    ns: np.ndarray  # of each kind; nan: too few launches
    untold: Launches  # of these kinds, beside collectives; in none of this rank's slowed times
    step: np.ndarray  # of each of `untold`


@dataclass(frozen=True)
class ReducedRank:
    """One process on one GPU. Times in nanoseconds of the clock of its own capture."""

    rank: int
    rank_from: str  # capture, manifest, name, order: who says that it is this one
    world_size: int | None
    file: str
    kind: str  # nsys | kineto
    clock: str  # captures of one clock bear the same
    first_ns: int  # when the capture's first event began
    process: int | None
    device: int | None
    gpu: str | None
    first_iteration: int | None  # of the steps, where they are numbered
    step_name: str | None
    bounds_ns: np.ndarray  # the n + 1 times between the n steps
    parts_ns: dict[str, np.ndarray]  # of causes.PARTS in each step
    host_ns: dict[str, np.ndarray]  # idle in each step by what the host did; {}: not told
    communication_ns: np.ndarray  # in each step, hidden or not
    phase_ns: dict[str, np.ndarray]  # in each step by phase: kernels that compute, as in `kernels`
    kernels: dict[str, KernelWork]  # that compute
    collectives: Collectives
    slowed_ns: np.ndarray  # what each of these made the kernels longer that ran beside it
    alone: Alone
    computing: Intervals  # while a collective ran; see gaps_closed
    slices: RankSlices  # of its row in a timeline
    verdict: str  # its own bottleneck, of causes.VERDICTS
    run: InForce  # what its settings are, as far as the capture tells
    notes: list[str]  # to be known of the capture: what it lost, or gives away
    gpu_clock: GpuClock | None = None  # over the run, where its rows lie beside the capture
    no_verdict: str | None = None  # why its capture tells nothing; None: it does

    @property
    def steps(self) -> int:
        return len(self.bounds_ns) - 1

    @property
    def launches(self) -> float:
        """A step, of kernels that compute."""
        return sum(work.count for work in self.kernels.values()) / self.steps

    @property
    def iterations(self) -> np.ndarray:
        """The numbers of its steps; from 0 where they have none."""
        return np.arange(self.steps) + (self.first_iteration or 0)


def reduced(
    analysis: Analysis, report: Report, rank: int, rank_from: str, clock: str
) -> ReducedRank:
    """Raises ValueError where the capture holds no GPU activity."""
    parts_ns, activity, owned = parts_of_steps(analysis), analysis.activity, analysis.owned
    if parts_ns is None or activity is None or owned is None:
        raise ValueError(f"{analysis.trace.file}: holds no GPU activity")
    collectives = collectives_of(analysis)
    talking = union(collectives.start_ns, collectives.end_ns)
    bounds_ns, names = analysis.bounds_ns, analysis.trace.names
    begin_ns, end_ns = int(bounds_ns[0]), max(int(bounds_ns[-1]), *collectives.end_ns[-1:], 0)
    computes = np.flatnonzero(
        (owned.kind == KERNEL) & (analysis.family[owned.name] != COMMUNICATION)
    )
    launches = launches_of(owned, computes, collectives.start_ns, collectives.end_ns)
    kinds_ns = alone_ns(launches)
    slow = measure_slowdown(launches, kinds_ns)
    unslowed_ns = owned.duration_ns[computes] - slow.kernel_ns
    gpu = report.capture.gpu
    sm_count = gpu.sm_count or 0 if gpu else 0
    return ReducedRank(
        rank=rank,
        rank_from=rank_from,
        world_size=analysis.trace.world_size,
        file=analysis.trace.file.name,
        kind=analysis.trace.kind,
        clock=clock,
        first_ns=analysis.trace.first_ns,
        process=analysis.steps.process,
        device=analysis.steps.device,
        gpu=gpu.name if gpu else None,
        first_iteration=analysis.steps.first_iteration,
        step_name=analysis.steps.name,
        bounds_ns=bounds_ns,
        parts_ns=parts_ns,
        host_ns=by_host(analysis),
        communication_ns=communication(analysis, owned).ns_within(bounds_ns[:-1], bounds_ns[1:]),
        phase_ns=of_phases(analysis, computes, unslowed_ns),
        kernels=work_of(analysis, computes, unslowed_ns, names, sm_count),
        collectives=collectives,
        slowed_ns=slow.collective_ns,
        alone=alone_of(owned, computes, launches, kinds_ns, names),
        computing=gaps_closed(activity.computing, np.sort(collectives.end_ns)).intersection(
            talking, begin_ns, end_ns
        ),
        slices=drawn(analysis),
        verdict=report.bottleneck.verdict,
        run=in_force(report),
        notes=notes_of(report),
        no_verdict=report.health.no_verdict,
    )


def notes_of(report: Report) -> list[str]:
    """What has to be known of the capture by those who read of all ranks."""
    gives_away = [each for each in report.health.findings if each.what == PERSONAL]
    return [each.what for each in (*report.health.loss_findings, *gives_away)]


def alone_of(
    owned: OwnedOperations, rows: np.ndarray, launches: Launches, ns: np.ndarray, names: list[str]
) -> Alone:
    """Of the kernels at `rows` of `owned`. `ns`: of each kind, nan where it is not told."""
    example = rows[np.unique(launches.kind, return_index=True)[1]]
    phase = np.append(owned.steps.phases.name, -1)[owned.phase[example]]
    blocks, threads = (
        column[owned.row[example]] for column in (owned.operations.blocks, owned.operations.threads)
    )
    columns = (column.tolist() for column in (owned.name[example], phase, blocks, threads))
    kinds = [
        Kind(names[name], names[phase] if phase >= 0 else None, *geometry)
        for name, phase, *geometry in zip(*columns, strict=True)
    ]
    untold = np.isnan(ns)[launches.kind] & (launches.beside_ns > 0)
    return Alone(kinds, ns, launches.select(untold), owned.step[rows[untold]].astype(np.int32))


def communication(analysis: Analysis, owned: OwnedOperations) -> Intervals:
    """While a collective ran, or a copy from GPU to GPU."""
    talks = analysis.family[owned.name] == COMMUNICATION
    return union(owned.start_ns[talks], owned.end_ns[talks])


def gaps_closed(computing: Intervals, ends_ns: np.ndarray) -> Intervals:
    """With the short gaps between kernels in which no collective ended: none made them wait.

    `ends_ns`: of the collectives, ascending.
    """
    before, behind = (
        np.searchsorted(ends_ns, times, side="right")
        for times in (computing.end_ns[:-1], computing.start_ns[1:])
    )
    long = computing.start_ns[1:] - computing.end_ns[:-1] > SHORT_NS
    kept = np.concatenate(([True], long | (before < behind), [True]))
    return Intervals(computing.start_ns[kept[:-1]], computing.end_ns[kept[1:]])


def by_host(analysis: Analysis) -> dict[str, np.ndarray]:
    """As the idle ones of the parts, but waits for the GPU are charged with nothing behind them."""
    owned, activity, bounds_ns = analysis.owned, analysis.activity, analysis.bounds_ns
    if owned is None or activity is None:
        return {}
    gaps = find_gaps(analysis.trace, owned, activity, bounds_ns, charged=False)
    return {} if gaps is None else causes_of_steps(gaps, bounds_ns)


def of_phases(analysis: Analysis, rows: np.ndarray, took_ns: np.ndarray) -> dict[str, np.ndarray]:
    """Nanoseconds of these rows of `owned` in each step, by the name of the owning phase."""
    owned = analysis.owned
    if owned is None:
        return {}
    has = owned.phase[rows] >= 0
    rows, took_ns = rows[has], took_ns[has]
    name = owned.steps.phases.name[owned.phase[rows]]
    found = {}
    for number in np.unique(name).tolist():
        of = name == number
        ns = np.bincount(owned.step[rows[of]], took_ns[of], analysis.step_count)
        found[analysis.trace.names[number]] = ns
    return found


def work_of(
    analysis: Analysis, rows: np.ndarray, took_ns: np.ndarray, names: list[str], sm_count: int
) -> dict[str, KernelWork]:
    """`sm_count`: of the GPU; 0: not known."""
    owned = analysis.owned
    if owned is None or not len(rows):
        return {}
    of_name, kernel = np.unique(owned.name[rows], return_inverse=True)
    blocks = owned.operations.blocks[owned.row[rows]]
    # persistent kernels: a block for each multiprocessor, however large the work is
    tells = blocks > sm_count
    count, ns, grids, untold = (
        np.bincount(kernel, weights) for weights in (None, took_ns, np.maximum(blocks, 0), ~tells)
    )
    return {
        names[number]: KernelWork(
            FAMILIES[analysis.family[number]],
            int(count[i]),
            int(ns[i]),
            -1 if untold[i] else int(grids[i]),
        )
        for i, number in enumerate(of_name.tolist())
    }
