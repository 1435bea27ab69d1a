"""Reduction of one rank's capture to what is compared, so that many fit into memory.

Called by files.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import Intervals, concatenate_columns, union
from profiling.analysis.gpu_time.attribution import OwnedOperations
from profiling.analysis.gpu_time.breakdown import COMMUNICATION
from profiling.analysis.gpu_time.idle import find_gaps
from profiling.analysis.gpu_time.profiler_cost import MOST
from profiling.analysis.gpu_time.slowed import Launches, alone_ns, launches_of, measure_slowdown
from profiling.analysis.gpu_time.typical import causes_of_steps, parts_of_steps
from profiling.analysis.gpu_work.families import FAMILIES
from profiling.analysis.ranks.collectives import Collectives, collectives_of, launched_before
from profiling.analysis.ranks.own_host import OwnHost, own_host
from profiling.analysis.records import Health, Report
from profiling.analysis.verdict.advice import in_force
from profiling.analysis.verdict.health import PERSONAL, recording_ms
from profiling.shared.advice import InForce
from profiling.shared.gpu_clock import GpuClock
from profiling.timeline.trace import KERNEL

NEAR = 5e-4  # share of a step: the largest gap between two kernels of one slice
NO_PHASE, COPIES = "kernels", "copies and memsets"


@dataclass(frozen=True)
class RankSlices:
    """Slices of a rank's row in a timeline: when it computed, by phase, and when it copied.

    Kernels that follow each other closely are one slice, since a page has the steps of many ranks.
    Collectives are not among the slices: they are drawn from collective_waits. Columns are sorted
    by start; `name` is an index in `names`.
    """

    names: list[str]
    parts: list[str]  # one of causes.PARTS for each of the names
    start_ns: np.ndarray
    end_ns: np.ndarray
    name: np.ndarray


def rank_slices(analysis: Analysis) -> RankSlices:
    owned = analysis.owned
    assert owned is not None  # reduce_rank refuses captures without GPU activity
    near_ns = int(NEAR * (analysis.end_ns - analysis.begin_ns) / analysis.step_count)
    copies = ~owned.kernels_and_graphs
    computes = ~copies & (analysis.family[owned.name] != COMMUNICATION)
    phase = np.where(owned.phase >= 0, np.append(owned.steps.phases.name, -1)[owned.phase], -1)
    chosen = [(n, computes & (phase == n)) for n in np.unique(phase[computes]).tolist()]
    names = [analysis.trace.names[n] if n >= 0 else NO_PHASE for n, _ in chosen]
    masks = [mask for _, mask in chosen]
    if copies.any():
        names, masks = [*names, COPIES], [*masks, copies]
    merged = [merge_near(owned.start_ns[mask], owned.end_ns[mask], near_ns) for mask in masks]
    start_ns, end_ns = (concatenate_columns([part[i] for part in merged]) for i in range(2))
    name = np.repeat(np.arange(len(names)), [len(start) for start, _ in merged])
    order = np.argsort(start_ns, kind="stable")
    parts = ["copy" if label == COPIES else "compute" for label in names]
    return RankSlices(names, parts, start_ns[order], end_ns[order], name[order])


def merge_near(
    start_ns: np.ndarray, end_ns: np.ndarray, near_ns: int
) -> tuple[np.ndarray, np.ndarray]:
    """Union of the intervals, joined over gaps of up to `near_ns`: (starts, ends) in ns."""
    whole = union(start_ns, end_ns + near_ns)
    return whole.start_ns, whole.end_ns - near_ns


SHORT_NS = 100_000  # the longest short gap; launches one by one leave gaps of 5 to 50 us


@dataclass(frozen=True)
class KernelWork:
    """All launches of one kernel in the steps, taken together."""

    family: str
    count: int
    ns: int  # time, without what collectives beside the kernel added to it
    blocks: int  # sum over all grids; -1: unknown, or grids that do not reflect the amount of work


class Kind(NamedTuple):
    """Key of launches that should take equally long, on this rank and on any other."""

    kernel: str
    phase: str | None
    blocks: int
    threads: int


@dataclass(frozen=True)
class Alone:
    """Times of launches with no collective beside them, as far as this rank ran any."""

    kinds: list[Kind]
    ns: np.ndarray  # median of each kind; nan: too few launches
    unmeasured: Launches  # those beside collectives, of kinds without a time; not in slowed_ns yet
    step: np.ndarray  # step of each launch in `unmeasured`


@dataclass(frozen=True)
class ReducedRank:
    """One process on one GPU. Times are nanoseconds on the clock of its own capture."""

    rank: int
    rank_from: str  # source of the rank's number: capture, manifest, name, order
    world_size: int | None
    file: str
    kind: str  # nsys | kineto
    clock: str  # name of the clock, equal for captures that share one
    first_ns: int  # when the capture's first event began
    process: int | None
    device: int | None
    gpu: str | None
    first_iteration: int | None  # number of the first step; None: steps are not numbered
    step_name: str | None
    bounds_ns: np.ndarray  # the n + 1 times that bound the n steps
    parts_ns: dict[str, np.ndarray]  # time of each of causes.PARTS in each step
    host_ns: dict[str, np.ndarray]  # idle time in each step by what the host did; {}: unknown
    own_host: OwnHost | None  # None: its calls were not captured
    most_added_ms: float  # by which capturing may have lengthened the host's part of its step
    most_delayed_ms: float  # by which recorded events may have delayed its host, waits or not
    queued_ns: int  # GPU time in its first step that was launched before the capture
    communication_ns: np.ndarray  # in each step, hidden or not
    phase_ns: dict[str, np.ndarray]  # compute kernels in each step by phase, as in `kernels`
    kernels: dict[str, KernelWork]  # compute kernels by name
    collectives: Collectives
    slowed_ns: np.ndarray  # how much longer each collective made the kernels beside it
    alone: Alone
    computing: Intervals  # compute during collectives; see close_short_gaps
    slices: RankSlices  # its row in a timeline
    verdict: str  # its own bottleneck, one of causes.VERDICTS
    run: InForce  # its settings, as far as the capture tells
    notes: list[str]  # warnings about the capture: what it lost, or gives away
    gpu_clock: GpuClock | None = None  # over the run, where its rows lie beside the capture
    no_verdict: str | None = None  # why its capture allows no verdict; None: it does
    free_step_range_ms: tuple[float, float] | None = None  # before and after the window

    @property
    def steps(self) -> int:
        return len(self.bounds_ns) - 1

    @property
    def launches(self) -> float:
        """Number of compute kernels that are launched in a step."""
        return sum(work.count for work in self.kernels.values()) / self.steps

    @property
    def iterations(self) -> np.ndarray:
        """Numbers of its steps, counted from 0 where the capture does not number them."""
        return np.arange(self.steps) + (self.first_iteration or 0)


def reduce_rank(
    analysis: Analysis, report: Report, rank: int, rank_from: str, clock: str
) -> ReducedRank:
    """Reduce one process of a capture. `clock` names its clock.

    Raises ValueError where the capture holds no GPU activity.
    """
    parts_ns, activity, owned = parts_of_steps(analysis), analysis.activity, analysis.owned
    if parts_ns is None or activity is None or owned is None:
        raise ValueError(f"{analysis.trace.file}: contains no GPU activity")
    collectives = collectives_of(analysis)
    communicating = union(collectives.start_ns, collectives.end_ns)
    bounds_ns, names = analysis.bounds_ns, analysis.trace.names
    begin_ns, end_ns = int(bounds_ns[0]), max(int(bounds_ns[-1]), *collectives.end_ns[-1:], 0)
    queued = launched_before(owned)
    computes = np.flatnonzero(
        (owned.kind == KERNEL) & (analysis.family[owned.name] != COMMUNICATION) & ~queued
    )
    # copies take no multiprocessors from the kernels beside them
    held_until_ns = np.where(collectives.is_copy, collectives.start_ns, collectives.end_ns)
    launches = launches_of(owned, computes, collectives.start_ns, held_until_ns)
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
        host_ns=host_times(analysis),
        own_host=own_host(analysis),
        most_added_ms=most_added_ms(report.health),
        most_delayed_ms=most_delayed_ms(analysis),
        queued_ns=int(owned.duration_ns[queued & (owned.step == 0)].sum()),
        communication_ns=communication_intervals(analysis, owned).ns_within(
            bounds_ns[:-1], bounds_ns[1:]
        ),
        phase_ns=phase_times(analysis, computes, unslowed_ns),
        kernels=kernel_work(analysis, computes, unslowed_ns, names, sm_count),
        collectives=collectives,
        slowed_ns=slow.collective_ns,
        alone=alone_times(owned, computes, launches, kinds_ns, names),
        computing=close_short_gaps(activity.computing, np.sort(collectives.end_ns)).intersection(
            communicating, begin_ns, end_ns
        ),
        slices=rank_slices(analysis),
        verdict=report.bottleneck.verdict,
        run=in_force(report),
        notes=notes_of(report),
        no_verdict=report.health.no_verdict,
    )


def most_added_ms(health: Health) -> float:
    """The most that capturing may have added to a step, in ms."""
    measured = health.measured_added_ms
    recording_ms = health.recording_ms[MOST] if health.recording_ms else 0.0
    return recording_ms if measured is None else measured


def most_delayed_ms(analysis: Analysis) -> float:
    """The most that recorded events may have delayed the host in a step, in ms.

    A step that waits for another rank is not longer by that, so its length says nothing of it.
    """
    delays_ms = recording_ms(analysis)
    return delays_ms[MOST] if delays_ms else 0.0


def notes_of(report: Report) -> list[str]:
    """Warnings about the capture that the report over all ranks has to repeat."""
    gives_away = [finding for finding in report.health.findings if finding.what == PERSONAL]
    return [finding.what for finding in (*report.health.loss_findings, *gives_away)]


def alone_times(
    owned: OwnedOperations, rows: np.ndarray, launches: Launches, ns: np.ndarray, names: list[str]
) -> Alone:
    """Times alone of the kernels at `rows` of `owned`; `ns` has a time per kind, or nan."""
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
    unmeasured = np.isnan(ns)[launches.kind] & (launches.beside_ns > 0)
    return Alone(
        kinds, ns, launches.select(unmeasured), owned.step[rows[unmeasured]].astype(np.int32)
    )


def communication_intervals(analysis: Analysis, owned: OwnedOperations) -> Intervals:
    """Intervals in which a collective or a copy from GPU to GPU ran."""
    communicates = analysis.family[owned.name] == COMMUNICATION
    return union(owned.start_ns[communicates], owned.end_ns[communicates])


def close_short_gaps(computing: Intervals, ends_ns: np.ndarray) -> Intervals:
    """Close those short gaps between kernels in which no collective ended.

    In such a gap no kernel can have waited for a collective. `ends_ns` are the ends of the
    collectives, ascending.
    """
    before, after = (
        np.searchsorted(ends_ns, times, side="right")
        for times in (computing.end_ns[:-1], computing.start_ns[1:])
    )
    long = computing.start_ns[1:] - computing.end_ns[:-1] > SHORT_NS
    kept = np.concatenate(([True], long | (before < after), [True]))
    return Intervals(computing.start_ns[kept[:-1]], computing.end_ns[kept[1:]])


def host_times(analysis: Analysis) -> dict[str, np.ndarray]:
    """Idle time in each step by cause, as in causes.PARTS; {} where gaps cannot be explained.

    Unlike in the parts, a wait for the GPU is not charged with the gaps that follow it.
    """
    owned, activity, bounds_ns = analysis.owned, analysis.activity, analysis.bounds_ns
    if owned is None or activity is None:
        return {}
    gaps = find_gaps(analysis.trace, owned, activity, bounds_ns, charged=False)
    return {} if gaps is None else causes_of_steps(gaps, bounds_ns)


def phase_times(analysis: Analysis, rows: np.ndarray, took_ns: np.ndarray) -> dict[str, np.ndarray]:
    """(steps,) sums of `took_ns` over these rows of `owned`, by the name of their phase."""
    owned = analysis.owned
    if owned is None:
        return {}
    has = owned.phase[rows] >= 0
    rows, took_ns = rows[has], took_ns[has]
    name = owned.steps.phases.name[owned.phase[rows]]
    times_ns = {}
    for number in np.unique(name).tolist():
        in_phase = name == number
        ns = np.bincount(owned.step[rows[in_phase]], took_ns[in_phase], analysis.step_count)
        times_ns[analysis.trace.names[number]] = ns
    return times_ns


def kernel_work(
    analysis: Analysis, rows: np.ndarray, took_ns: np.ndarray, names: list[str], sm_count: int
) -> dict[str, KernelWork]:
    """Work of the kernels at `rows` by name. `sm_count` of the GPU is 0 where not known."""
    owned = analysis.owned
    if owned is None or not len(rows):
        return {}
    of_name, kernel = np.unique(owned.name[rows], return_inverse=True)
    blocks = owned.operations.blocks[owned.row[rows]]
    # persistent kernels have one block per multiprocessor, however large the work is
    reflects_work = blocks > sm_count
    count, ns, grids, unknown = (
        np.bincount(kernel, weights)
        for weights in (None, took_ns, np.maximum(blocks, 0), ~reflects_work)
    )
    return {
        names[number]: KernelWork(
            FAMILIES[analysis.family[number]],
            int(count[i]),
            int(ns[i]),
            -1 if unknown[i] else int(grids[i]),
        )
        for i, number in enumerate(of_name.tolist())
    }
