"""Verdict on the ranks: which one is waited for, if any, and what that costs. Called by summary.

1. Ranks are sorted by how long they wait themselves, since a late rank waits least. The largest
   difference between two neighbours separates the late ranks, at most half of all, from the others.
   The late ranks have to be late in the same steps; otherwise the one that costs most alone is
   taken. Their cost is what mending them would gain (Costs.gained_ns).
2. They are the straggler if that cost is at least 2 % of the step, exceeds the uncertainty of the
   clocks, and is steady: three times what all others cost (waits.Waits), or more than they cost in
   each of at least five steps. Costs that ranks cause in turns are jitter, which is reported from
   2 % of the step on too.
3. `cause` determines what holds the late ranks up.
"""

from dataclasses import dataclass

import numpy as np

from profiling.analysis.ranks.cause import straggler_of
from profiling.analysis.ranks.costs import WORTH_TELLING, Costs
from profiling.analysis.ranks.power_limit import limits_all_gpus
from profiling.analysis.ranks.rank_records import RanksVerdict, Straggler
from profiling.analysis.verdict.health import CAPTURE_AGAIN

COMMUNICATING = 0.15  # share of a step in exposed transfers that makes the verdict communication
DOUBTFUL = 0.15  # share of a step by which the ends of collectives contradict each other
TOGETHER = 0.5  # share of the cost of several ranks during which each of them has to be late
STEADY = 3.0  # times what the others cost: from there on it is no jitter
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


@dataclass(frozen=True)
class Judgement:
    verdict: RanksVerdict
    evidence: list[str]
    straggler: Straggler | None = None
    jitter_ms_per_step: float | None = None


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
        return Judgement("unknown", ["No collective of one rank was found on another rank."])
    everyone = range(len(costs.ranks))
    if (doubt_ms := costs.doubt_ms(everyone)) >= DOUBTFUL * costs.step_ms:
        return Judgement("unknown", [NOT_TOGETHER.format(doubt_ms)])
    late = late_ranks(costs)
    late_ns = costs.waits.cost_ns(late, costs.iterations)
    others_ns = costs.waits.in_turns_ns(costs.iterations, late)
    gained_ns = costs.gained_ns(late)
    late_ms, others_ms = costs.mean_ms(gained_ns), costs.mean_ms(others_ns)
    in_turns_ms = costs.mean_ms(costs.waits.in_turns_ns(costs.iterations))
    steady = costs.mean_ms(late_ns) >= STEADY * others_ms
    steady |= len(late_ns) >= EVERY and bool(np.all(late_ns > others_ns))
    is_straggler = costs.is_significant(late_ms, late) and steady
    jitter_ms = others_ms if is_straggler else in_turns_ms
    evidence = []
    if is_straggler:
        straggler = straggler_of(costs, late, gained_ns)
        return Judgement("straggler", straggler.evidence, straggler, jitter_ms)
    if costs.is_significant(jitter_ms, everyone):
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


def without_straggler(costs: Costs, jitter_ms: float) -> Judgement:
    """Decide between communication and balanced, by the exposed transfers of the median rank."""
    transfer = costs.waits.exposed_ns - costs.waits.exposed_wait_ns
    a_step = costs.waits.sum_by_step(transfer, costs.iterations).mean(axis=0) / 1e6
    ms = float(np.median(a_step))
    evidence = [f"In turns, the ranks cost one another {jitter_ms:.2f} ms per step."]
    if jitter_ms >= WORTH_TELLING * costs.step_ms:
        doubt_ms = costs.doubt_ms(range(len(costs.ranks)))
        evidence = [
            f"The captures do not show whether a rank holds the others up: {jitter_ms:.2f} ms "
            f"per step is less than the uncertainty of the clocks, {doubt_ms:.2f} ms."
        ]
    if ms < COMMUNICATING * costs.step_ms:
        return Judgement("balanced", evidence, None, jitter_ms)
    share = 100 * ms / costs.step_ms
    evidence.append(f"Transfers that no kernel hides take {ms:.2f} ms per step ({share:.0f} %).")
    return Judgement("communication", evidence, None, jitter_ms)


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
