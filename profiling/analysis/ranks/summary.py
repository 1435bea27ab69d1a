"""Analysis of several reduced ranks, and its records. Called by profiling.analysis.ranks.files."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from profiling.analysis.ranks.choice import list_numbers, ranks_in_files, window_text
from profiling.analysis.ranks.clocks import Clocks, align
from profiling.analysis.ranks.collective_sums import collective_sums
from profiling.analysis.ranks.collective_waits import Waits, find_waits
from profiling.analysis.ranks.costs import WORTH_TELLING, Costs
from profiling.analysis.ranks.host_meetings import without_meetings
from profiling.analysis.ranks.lending import lend_times
from profiling.analysis.ranks.matching import match
from profiling.analysis.ranks.rank_records import (
    SCHEMA_VERSION,
    Clock,
    CollectiveSum,
    Matching,
    RankCommunication,
    RankRow,
    RankShares,
    RanksReport,
    StepsOfRanks,
    Straggler,
)
from profiling.analysis.ranks.reduce import ReducedRank
from profiling.analysis.ranks.straggler import judge
from profiling.analysis.records import Finding
from profiling.shared.units import size_bytes


@dataclass(frozen=True, eq=False)
class RanksAnalysis:
    """Result of the analysis: ranks by number, their clocks and costs, and the report."""

    ranks: Sequence[ReducedRank]
    clocks: Clocks
    costs: Costs
    report: RanksReport


def analyse(ranks: Sequence[ReducedRank], findings: Sequence[Finding] = ()) -> RanksAnalysis:
    """Analyse two or more ranks, ordered by number, that share at least one iteration."""
    ranks = lend_times(ranks)
    matched = match(ranks)
    clocks = align(ranks, matched)
    ranks = without_meetings(ranks, clocks)
    waits = find_waits(ranks, matched, clocks)
    iterations, left_out = compared_iterations(ranks, waits)
    costs = Costs(ranks, waits, iterations)
    verdict = judge(costs)
    if not verdict.waits_known:  # contradicting matches tell nothing of a rank
        nobody = np.zeros(len(ranks), bool)
        costs = replace(costs, waits=find_waits(ranks, matched.select_ranks(nobody), clocks))
    late = verdict.straggler
    rows = [rank_row(costs, clocks, number, late) for number in range(len(ranks))]
    steps = steps_of(costs, ranks[0].step_name)
    if verdict.verdict == "unknown":  # so is what a rank costs
        rows = [replace(row, costs_ms_per_step=None, last_in_steps=None) for row in rows]
        steps = replace(steps, costs_ms=[])
    sums = collective_sums(ranks, costs.waits, iterations)
    evidence = verdict.evidence
    if verdict.verdict == "communication" and sums:
        evidence = [*evidence, most_exposed(sums)]
    report = RanksReport(
        schema_version=SCHEMA_VERSION,
        world_size=next((rank.world_size for rank in ranks if rank.world_size), None),
        ranks=rows,
        verdict=verdict.verdict,
        evidence=evidence,
        straggler=verdict.straggler,
        jitter_ms_per_step=verdict.jitter_ms_per_step,
        transfers_between_ms=verdict.transfers_between_ms,
        collectives=sums,
        clock=Clock(
            clocks.aligned_on,
            None if clocks.uncertainty_ns is None else clocks.uncertainty_ns / 1e3,
        ),
        matching=matching(waits),
        steps=steps,
        findings=[
            *findings,
            *findings_of(ranks, clocks, costs, left_out),
            *doubtful(matching(waits)),
        ],
    )
    return RanksAnalysis(ranks, clocks, costs, report)


def most_exposed(sums: Sequence[CollectiveSum]) -> str:
    row = max(sums, key=lambda row: row.exposed_ms * row.count)
    size = "" if row.bytes is None else f" of {size_bytes(row.bytes)}"
    rate = "" if row.bus_gb_per_s is None else f" at {row.bus_gb_per_s:.0f} GB/s"
    peak = "" if row.link_percent is None else f", {row.link_percent:.0f} % of the links' peak"
    return f"Most of this is {row.kind}{size}, {row.transfer_ms:.2f} ms each{rate}{peak}."


def compared_iterations(
    ranks: Sequence[ReducedRank], waits: Waits
) -> tuple[np.ndarray, list[Finding]]:
    """(the iterations that are compared, a finding on those that are left out).

    These are the common ones, but for the first where a GPU still ran what was launched before it,
    or where a rank waited much longer than in all others: capturing does not begin on all ranks at
    once, and who begins last comes late in that step. Steps that capturing makes longer as it
    begins are left out, too. The first stays where fewer than two others are left.
    """
    common = common_iterations(ranks)
    step_ns = np.median(np.concatenate([np.diff(rank.bounds_ns) for rank in ranks]))
    queued = any(
        rank.queued_ns >= WORTH_TELLING * step_ns
        for rank in ranks
        if rank.iterations[0] == common[0]
    )
    if len(common) <= 2:
        return common, []
    if count := long_at_first(ranks, common):
        return common[count:], [Finding("note", long_first(count))]
    if queued:
        return common[1:], [Finding("note", QUEUED_FIRST)]
    waited_ns = waits.sum_by_step(waits.lost_wait_ns, common).max(axis=1)
    usual_ns = max(float(waited_ns[1:].max()), WORTH_TELLING * float(step_ns))
    if len(common) > FEW_STEPS and waited_ns[0] > UNUSUAL * usual_ns:
        return common[1:], [Finding("note", LATE_FIRST)]
    return common, []


def long_at_first(ranks: Sequence[ReducedRank], common: np.ndarray) -> int:
    """Number of the first steps, a third of all at most, that are longer on all ranks than each of
    the others; 0 for few steps.

    A step before such a one counts where its hosts took longer: their GPUs may still have had work.
    """
    if len(common) <= 2 * FEW_STEPS:
        return 0
    chosen = [np.isin(rank.iterations, common) for rank in ranks]
    of_gpus = [np.diff(r.bounds_ns)[rows] for r, rows in zip(ranks, chosen, strict=True)]
    of_hosts = [
        r.own_host.step_ns[rows] for r, rows in zip(ranks, chosen, strict=True) if r.own_host
    ]
    most = len(common) // 3
    is_long = longer_than_later(of_gpus, most)
    begins = is_long | (longer_than_later(of_hosts, most) if of_hosts else False)
    first = is_long[: int(np.argmin([*begins, False]))]
    return int(np.max(np.flatnonzero(first), initial=-1)) + 1


def longer_than_later(times_ns: Sequence[np.ndarray], most: int) -> np.ndarray:
    """(most,) bool: whether each of the first steps takes longer on all ranks than every later
    one; `times_ns` are per rank."""
    time_ns = np.min(times_ns, axis=0)
    is_longer: np.ndarray = time_ns[:most] > LONGER * time_ns[most:].max()
    return is_longer


def long_first(count: int) -> str:
    """Words on the steps that `long_at_first` counts."""
    steps = "step is" if count == 1 else f"{count} steps are"
    return (
        f"the first {steps} left out: the GPUs or the hosts took longer than in all others, as "
        "where capturing has just begun"
    )


def matching(waits: Waits) -> Matching:
    """Account of the matches, and of whether the ends of the matched collectives agree."""
    matched, known = waits.matched, ~np.isnan(waits.spread_ns)
    took_ns = np.where(matched.there, waits.wait_ns + waits.transfer_ns, np.inf)
    agree = waits.spread_ns[known] < took_ns[known].min(axis=1)
    return Matching(
        by=matched.by,
        matched=len(matched.iteration),
        unmatched=matched.unmatched,
        cut_off=matched.cut_off,
        ends_agree_percent=100 * float(agree.mean()) if len(agree) else None,
    )


def common_iterations(ranks: Sequence[ReducedRank]) -> np.ndarray:
    common = ranks[0].iterations
    for rank in ranks[1:]:
        common = np.intersect1d(common, rank.iterations)
    return common


def rank_row(costs: Costs, clocks: Clocks, number: int, late: Straggler | None) -> RankRow:
    """Record of one rank. A single straggler's cost is the one in the verdict."""
    rank = costs.ranks[number]
    costs_ms = costs.alone_ms(number)
    if late and late.rank == rank.rank and not late.with_ranks:
        costs_ms = late.costs_ms_per_step
    chosen = costs.steps_of(rank)
    parts = costs.parts_ms(number)
    step_ms = np.diff(rank.bounds_ns)[chosen] / 1e6
    communicates = communication(costs, number, parts["communication"])
    return RankRow(
        rank=rank.rank,
        file=rank.file,
        kind=rank.kind,
        rank_from=rank.rank_from,
        process=rank.process,
        device=rank.device,
        gpu=rank.gpu,
        steps=rank.steps,
        step_ms=float(step_ms.mean()),
        median_step_ms=float(np.median(step_ms)),
        compute_ms=parts["compute"],
        copy_ms=parts["copy"],
        idle_ms=sum(ms for name, ms in parts.items() if name not in BUSY),
        shares_percent=shares(parts, communicates),
        parts_ms=parts,
        communication=communicates,
        kernels=rank.launches,
        bottleneck=rank.verdict,
        costs_ms_per_step=costs_ms,
        last_in_steps=costs.last_in_steps(number),
        clock_offset_us=int(clocks.offset_ns[number]) / 1e3 if clocks.known[number] else None,
        gpu_clock=rank.gpu_clock,
        no_verdict=rank.no_verdict,
    )


BUSY = ("compute", "communication", "copy")


def shares(parts_ms: dict[str, float], communicates: RankCommunication) -> RankShares:
    whole_ms = sum(parts_ms.values()) or 1.0
    wait_ms = communicates.exposed_wait_ms
    busy = {name: 100 * parts_ms[name] / whole_ms for name in BUSY}
    return RankShares(
        **busy,
        wait=None if wait_ms is None else 100 * wait_ms / whole_ms,
        idle=100 - sum(busy.values()),
    )


def communication(costs: Costs, number: int, exposed_ms: float) -> RankCommunication:
    rank = costs.ranks[number]
    whole_ms = float(rank.communication_ns[costs.steps_of(rank)].mean()) / 1e6
    waits = costs.waits
    wait, transfer, exposed_wait, slowed_by_wait = (
        costs.mean_of_rank_ms(values, number)
        for values in (
            *(waits.wait_ns, waits.transfer_ns),
            *(waits.exposed_wait_ns, waits.slowed_by_wait_ns),
        )
    )
    return RankCommunication(
        exposed_ms,
        max(0.0, whole_ms - exposed_ms),
        wait,
        transfer,
        exposed_wait,
        costs.slowed_ms(number),
        slowed_by_wait,
    )


def steps_of(costs: Costs, name: str | None) -> StepsOfRanks:
    step_ms = [np.diff(rank.bounds_ns)[costs.steps_of(rank)] / 1e6 for rank in costs.ranks]
    wait_ns = costs.waits.sum_by_step(costs.waits.lost_wait_ns, costs.iterations)
    matched = costs.is_matched
    return StepsOfRanks(
        name=name,
        iterations=costs.iterations.tolist(),
        wait_ms=known_ms(costs, wait_ns) if matched else [],
        costs_ms=known_ms(costs, costs.alone_ns) if matched else [],
        step_ms=np.stack(step_ms, axis=1).tolist(),
    )


def known_ms(costs: Costs, ns: np.ndarray) -> list[list[float | None]]:
    """Milliseconds of `ns`, (iterations, ranks); None where a rank was not matched."""
    rows = zip((ns / 1e6).tolist(), costs.known.tolist(), strict=True)
    return [
        [ms if known else None for ms, known in zip(of_ranks, of_known, strict=True)]
        for of_ranks, of_known in rows
    ]


def other_windows(ranks: Sequence[ReducedRank], common: int, longest: int) -> str:
    windows = Counter(map(window_text, ranks))
    usual = windows.most_common(1)[0][0]
    other = next((rank for rank in ranks if window_text(rank) != usual), ranks[0])
    captured = [rank for rank in ranks if window_text(rank) == window_text(other)]
    return (
        f"{ranks_in_files(captured)} captured {window_text(other)}, the others {usual}; the "
        f"comparison uses the {common} steps that all have, of up to {longest}"
    )


def doubtful(found: Matching) -> list[Finding]:
    """A warning where many of the matched collectives do not end together."""
    agree = found.ends_agree_percent
    if agree is None or agree >= MOSTLY_AGREE:
        return []
    what = f"only {agree:.0f} % of the matched collectives end at one time on all ranks"
    return [Finding("warning", f"{what}, so some may be matched wrongly")]


MOSTLY_AGREE = 95.0  # percent; a few end apart where a host was interrupted
ONE_STEP = "all figures are of one step, which does not show whether the same rank is always late"
QUEUED_FIRST = (
    "the first step is left out: GPUs were still running what was launched before the capture began"
)
LATE_FIRST = (
    "the first step is left out: a rank waited much longer in it than in any other, as where "
    "capturing begins later on one rank"
)
LONGER = 1.1  # times the longest of the other steps: from there on the first are not of them
UNUSUAL = 1.5  # times the longest wait of the other steps: from there on the first is not of them
FEW_STEPS = 4  # up to so many, a fault of some steps may be in the first by chance


def findings_of(
    ranks: Sequence[ReducedRank], clocks: Clocks, costs: Costs, left_out: list[Finding]
) -> list[Finding]:
    """Findings on what the ranks do not share: missing ranks, collectives, steps, matches."""
    findings = []
    world = max((rank.world_size or 0 for rank in ranks), default=0)
    first, last = (0, world - 1) if world else (ranks[0].rank, ranks[-1].rank)
    there = {rank.rank for rank in ranks}
    if missing := [number for number in range(first, last + 1) if number not in there]:
        whole = f"{world} ranks" if world else f"ranks {first} to {last}"
        what = (
            f"of {whole} these are missing: {list_numbers(missing)}; time spent waiting for them "
            "counts as transfer"
        )
        findings.append(Finding("warning", what))
    apart = [rank for rank, known in zip(ranks, clocks.known, strict=True) if not known]
    if apart and costs.is_matched:
        numbers = [rank.rank for rank in apart]
        several = len(apart) > 1
        who = f"ranks {list_numbers(numbers)} share" if several else f"rank {numbers[0]} shares"
        what = f"{who} no collective with the others, so the report does not say whom they wait for"
        if several and all(len(rank.collectives.start_ns) for rank in apart):
            what += "; if there are two runs, name the files of one"
        findings.append(Finding("warning", what))
    common = len(common_iterations(ranks))
    longest = max(rank.steps for rank in ranks)
    if longest > common:
        findings.append(Finding("note", other_windows(ranks, common, longest)))
    if len(costs.iterations) == 1:
        findings.append(Finding("warning", ONE_STEP, "capture several steps"))
    findings += left_out
    if count := costs.waits.matched.unmatched:
        total = sum(len(rank.collectives.start_ns) for rank in ranks)
        findings.append(
            Finding(
                "note" if count < 0.1 * total else "warning",
                f"{count:,} of {total:,} collectives were found on one rank only",
            )
        )
    return findings
