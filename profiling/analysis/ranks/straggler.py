"""Verdict on the ranks: which one is waited for, if any, and what that costs. Called by summary.

1. Ranks are sorted by how long they wait themselves, since a late rank waits least. The largest
   difference between two neighbours separates the late ranks, at most half of all, from the others.
   The late ranks have to be late in the same steps; otherwise the one that costs most alone is
   taken. Their cost is what mending them would gain (Costs.gained_ns).
2. They are the straggler if that cost is at least 3 % of the step, exceeds the uncertainty of the
   clocks or is that of the rank that is last in all of the collectives, and is steady: three times
   what all others cost (waits.Waits), or more than they cost in each of at least five steps. Costs
   that ranks cause in turns are jitter, which is reported from 2 % of the step on, unless exposed
   transfers are ten times as long: then communication is.
   A rank whose GPU has more work than the others' is late by that, however uneven the hosts are.
3. `cause` determines what holds the late ranks up, and `cost_range` what they cost without a
   profiler. `not_named` knows when that does not suffice to name somebody.
"""

from dataclasses import dataclass

import numpy as np

from profiling.analysis.ranks.cause import (
    Lateness,
    lateness_by_work,
    lateness_of,
    straggler_of,
)
from profiling.analysis.ranks.choice import list_numbers
from profiling.analysis.ranks.cost_range import transfer_range_ms
from profiling.analysis.ranks.costs import EQUAL_GPUS, WORTH_TELLING, Costs
from profiling.analysis.ranks.not_named import not_named
from profiling.analysis.ranks.power_limit import limits_all_gpus
from profiling.analysis.ranks.rank_records import RanksVerdict, Straggler
from profiling.analysis.verdict.health import CAPTURE_AGAIN

COMMUNICATING = 0.15  # share of a step in exposed transfers that makes the verdict communication
HIDES_JITTER = 10.0  # times what ranks cost in turns: exposed transfers are reported instead
DOUBTFUL = 0.15  # share of a step by which the ends of collectives contradict each other
TOGETHER = 0.5  # share of the cost of several ranks during which each of them has to be late
STEADY = 3.0  # times what the others cost: from there on it is no jitter
OUTWEIGHS = 2.0  # times by which a cost has to exceed what such ends contradict, to be believed
APART = 0.1  # share of the transfers from which on the range without a profiler is mentioned
MOST_SAID = 4  # at most so many ranks that lost kernels are named
EVERY = 5  # nor is it with this many steps, in each of which it exceeds what the others cost

LESS = (
    "All GPUs are at their power limits, so expect to gain less: a waiting GPU draws less power, "
    "and without the waits the clocks drop."
)
NOT_TOGETHER = (
    "The captures do not show which rank waits: collectives that should end together on all "
    "ranks end up to {:.2f} ms apart in a step. The ranks may form groups that the captures do "
    "not name."
)
NO_GROUPS = (
    "{} no process groups, sizes or sequence numbers of collectives. To find out, capture with "
    "torch.profiler of PyTorch 2.2 or newer, which records them, or name the ranks of one group."
)
NOT_ALIKE = (
    "What is missing are sequence numbers that agree. To find out, let all ranks meet "
    "(torch.distributed.barrier) right before the capture begins."
)
NO_MATCH = (
    "No collective of one rank was found on another rank.",
    "To find out, capture the same iterations on each rank, with their collectives.",
)
COPIES = (
    "The ranks exchange data by copies from GPU to GPU, without collectives, and copies do not "
    "show which rank waits.",
    "To find out, capture the same iterations with collectives: all_reduce=collective of train.py.",
)
FREE_STEPS = "Before and after the capture a step takes {}, in it {:.2f} ms."
HIDDEN_HOST = (
    "These transfers hide the hosts' work: the slowest host takes {:.2f} ms per step by itself, "
    "which a step without them would take, too, or less where no profiler lengthens it."
)


@dataclass(frozen=True)
class Judgement:
    verdict: RanksVerdict
    evidence: list[str]
    straggler: Straggler | None = None
    jitter_ms_per_step: float | None = None
    transfers_between_ms: tuple[float, float] | None = None  # as in RanksReport
    waits_known: bool = True  # False: the collectives were not matched, or contradict each other


def judge(costs: Costs) -> Judgement:
    """Decide between straggler, jitter, communication, balanced and unknown; see the module."""
    if lossy := [
        f"Rank {rank.rank}: {rank.no_verdict}." for rank in costs.ranks if rank.no_verdict
    ]:
        more = (
            [f"{len(lossy) - MOST_SAID} more ranks have the same problem."]
            if len(lossy) > MOST_SAID
            else []
        )
        return Judgement("unknown", [*lossy[:MOST_SAID], *more, f"To find out, {CAPTURE_AGAIN}."])
    if not costs.is_matched:
        return Judgement(
            "unknown", [*(COPIES if only_copy(costs) else NO_MATCH)], waits_known=False
        )
    everyone = range(len(costs.ranks))
    late = late_ranks(costs)
    late_ns = costs.waits.cost_ns(late, costs.iterations)
    others_ns = costs.waits.in_turns_ns(costs.iterations, late)
    lateness = lateness_of(costs, late)
    late_ms, others_ms = lateness.waited_ms, costs.mean_ms(others_ns)
    doubt_ms = costs.doubt_ms(everyone)
    if doubt_ms >= max(DOUBTFUL * costs.step_ms, late_ms / OUTWEIGHS):
        evidence = [NOT_TOGETHER.format(doubt_ms), missing_facts(costs)]
        return Judgement("unknown", evidence, waits_known=False)
    jitter_ms = costs.mean_ms(costs.waits.in_turns_ns(costs.iterations))
    steady = costs.mean_ms(late_ns) >= STEADY * others_ms
    steady |= len(late_ns) >= EVERY and bool(np.all(late_ns > others_ns))
    last = costs.is_last_in_all(late[0]) and late_ms >= WORTH_TELLING * costs.step_ms
    if steady and (last or costs.is_significant(late_ms, late)):
        return name_late(costs, lateness, others_ms)
    if with_more_work := late_by_work(costs, late):
        return named(costs, with_more_work, others_ms)
    evidence = []
    hides_ms = max(COMMUNICATING * costs.step_ms, HIDES_JITTER * jitter_ms)
    if costs.is_significant(jitter_ms, everyone) and exposed_transfer_ms(costs) < hides_ms:
        times = np.bincount(costs.alone_ns.argmax(axis=1), minlength=len(costs.ranks))
        most, steps = int(times.max()), len(costs.iterations)
        turns = (
            f"The last rank is not the same in each step. It costs the others {jitter_ms:.2f} ms, "
            "and "
        )
        if most < steps:
            evidence.append(f"{turns}no rank is the last in more than {most} of {steps} steps.")
        else:
            evidence.append(
                f"Rank {costs.ranks[int(times.argmax())].rank} costs the most, but other ranks "
                f"cost nearly as much in their turns, so no rank stands out: {jitter_ms:.2f} ms "
                "per step in total."
            )
        evidence += [LESS] if limits_all_gpus(costs) else []
        return Judgement("jitter", evidence, None, jitter_ms)
    return without_straggler(costs, jitter_ms)


def only_copy(costs: Costs) -> bool:
    """Whether all ranks communicate, but none by a collective."""
    return all(
        rank.communication_ns.any() and not len(rank.collectives.start_ns) for rank in costs.ranks
    )


def name_late(costs: Costs, lateness: Lateness, others_ms: float) -> Judgement:
    """Name the ranks that are steadily late, unless that is no more than noise or the profiler's.

    `others_ms` is what the other ranks cost in turns.
    """
    reason = not_named(costs, lateness)
    if reason is None:
        return named(costs, lateness, others_ms)
    if with_more_work := late_by_work(costs, lateness.late):
        return named(costs, with_more_work, others_ms)
    if reason.is_unknown:
        return Judgement("unknown", reason.evidence, None, others_ms)
    return without_straggler(costs, others_ms, reason.evidence)


def named(costs: Costs, lateness: Lateness, others_ms: float) -> Judgement:
    straggler = straggler_of(costs, lateness)
    return Judgement("straggler", straggler.evidence, straggler, others_ms)


def late_by_work(costs: Costs, late: list[int]) -> Lateness | None:
    """Lateness of the rank by more work of its GPU, where that is much; else None."""
    if len(costs.iterations) < EVERY:
        return None
    lateness = lateness_by_work(costs, late)
    if lateness and costs.mean_ms(lateness.gained_ns) >= EQUAL_GPUS * costs.step_ms:
        return lateness
    return None


def missing_facts(costs: Costs) -> str:
    """Sentence on what the captures lack to match the collectives, and how to capture it."""
    unnamed = [
        rank.rank
        for rank in costs.ranks
        if len(rank.collectives.start_ns) and not rank.collectives.has_groups_or_numbers
    ]
    if not unnamed:
        return NOT_ALIKE
    several = len(unnamed) > 1
    who = f"{'The captures of ranks' if several else 'The capture of rank'} {list_numbers(unnamed)}"
    return NO_GROUPS.format(f"{who} {'name' if several else 'names'}")


def without_straggler(
    costs: Costs, jitter_ms: float, evidence: list[str] | None = None
) -> Judgement:
    """Decide between communication and balanced, by the exposed transfers of the median rank; it
    is unknown where `jitter_ms` is much, but less than the clocks' error.

    `evidence` says why nobody is late, if not because of `jitter_ms`.
    """
    if evidence is None:
        evidence = [f"In turns, the ranks cost one another {jitter_ms:.2f} ms per step."]
    doubt_ms = costs.doubt_ms(range(len(costs.ranks)))
    in_doubt = WORTH_TELLING * costs.step_ms <= jitter_ms <= doubt_ms
    if in_doubt:
        evidence = [
            f"The captures do not show whether a rank delays the others: {jitter_ms:.2f} ms "
            f"per step is less than the uncertainty of the clocks, {doubt_ms:.2f} ms."
        ]
    ms = exposed_transfer_ms(costs)
    if ms < COMMUNICATING * costs.step_ms:
        return Judgement("unknown" if in_doubt else "balanced", evidence, None, jitter_ms)
    share = 100 * ms / costs.step_ms
    evidence.append(f"Transfers that no kernel hides take {ms:.2f} ms per step ({share:.0f} %).")
    between_ms = transfer_range_ms(costs, ms)
    if between_ms and max(ms - between_ms[0], between_ms[1] - ms) >= APART * ms:
        evidence.append(transfer_range_line(costs, between_ms, ms))
    return Judgement("communication", evidence, None, jitter_ms, between_ms)


def transfer_range_line(costs: Costs, between_ms: tuple[float, float], exposed_ms: float) -> str:
    """Sentences on why transfers cost less, or more, than they take in the captured steps."""
    facts = []
    if costs.free_step_range_ms is not None:
        free_text = "{:.2f} to {:.2f} ms".format(*costs.free_step_range_ms)
        facts.append(FREE_STEPS.format(free_text, costs.mean_step_ms))
    host_ms, left_ms = costs.slowest_host_ms([]), costs.most_to_gain_ms([])
    if host_ms is not None and left_ms is not None and left_ms < exposed_ms:
        facts.append(HIDDEN_HOST.format(float(host_ms.mean())))
    range_text = "{:.2f} to {:.2f} ms".format(*between_ms)
    return " ".join([*facts, f"So without a profiler they cost {range_text} per step."])


def exposed_transfer_ms(costs: Costs) -> float:
    """Transfers per step that no kernel hides, without waits, on the median rank."""
    transfer = costs.waits.exposed_ns - costs.waits.exposed_wait_ns
    a_step = costs.waits.sum_by_step(transfer, costs.iterations).mean(axis=0) / 1e6
    return float(np.median(a_step))


def late_ranks(costs: Costs) -> list[int]:
    """Columns of the late ranks, beginning with the one that costs most alone.

    These are the ranks that wait least, up to the largest difference between two neighbours. If
    they are not late in the same steps, it is only the one that costs most alone.
    """
    waited = costs.waits.sum_by_step(costs.waits.lost_wait_ns, costs.iterations)
    order = np.argsort(waited.sum(axis=0), kind="stable")
    # nothing is known of ranks without a matched collective
    has = np.count_nonzero(costs.waits.matched.there, axis=0) > 0
    order = order[has[order]]
    steps = np.diff(waited.sum(axis=0)[order])[: max(1, len(order) // 2)]
    late = order[: int(np.argmax(steps)) + 1]
    others = np.setdiff1d(order, late)
    sooner = np.maximum(waited[:, others].min(axis=1)[:, None] - waited[:, late], 0).sum(axis=0)
    if np.all(sooner >= TOGETHER * costs.waits.cost_ns(late, costs.iterations).sum()):
        return sorted(late.tolist(), key=lambda number: -costs.alone_ns[:, number].sum())
    return [int(costs.alone_ns.sum(axis=0).argmax())]
