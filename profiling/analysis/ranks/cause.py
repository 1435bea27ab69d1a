"""Cause of a rank's lateness: the part of the step, the phase, and the kernels responsible.

The cause is that part of the step (causes.PARTS without communication) that exceeds the median of
the other ranks by most, without idle time that the others' hosts would cause too (own_host). Longer
compute is explained by the kernels that ran (`work`), and `cause_said` puts all of it into words.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from profiling.analysis.ranks.cause_said import (
    NAMED,
    hosts_lines,
    limit_lines,
    longer_lines,
    next_steps,
    range_lines,
    waits_lines,
    work_lines,
)
from profiling.analysis.ranks.cost_range import CostRange, cost_range
from profiling.analysis.ranks.costs import EQUAL_GPUS, WORTH_TELLING, Costs
from profiling.analysis.ranks.power_limit import PRODUCTS, clock_gain_ms
from profiling.analysis.ranks.rank_records import Straggler
from profiling.analysis.ranks.reduce import ReducedRank
from profiling.analysis.ranks.work import extra_launches_ms, most_longer_kernels, why_longer
from profiling.analysis.verdict.diagnosis import CLOSE
from profiling.shared.causes import BUSY_GPU_VERDICTS, PART, VERDICT, is_of_host

MOSTLY = 0.5  # share of a longer wait for the GPU that longer host work has to explain
IN_NEARLY_EACH_STEP = 0.9  # share of the steps in which a rank with more work has more
HOST = ("data", "cpu")


@dataclass(frozen=True)
class Lateness:
    """Cost of the late ranks, and the part of the first one's step that is longer."""

    late: list[int]  # their columns, the one that costs most alone first
    gained_ns: np.ndarray  # (iterations,) that mending them would gain
    waited_ms: float  # per step, that the others wait for them; their own hosts may keep it
    longer_ms: dict[str, float]  # of longer_parts
    part: str  # the longest of them
    range: CostRange


def lateness_of(costs: Costs, late: list[int]) -> Lateness:
    """Measure the lateness of these columns, the one that costs most alone first."""
    others = [n for n in range(len(costs.ranks)) if n not in late]
    gained_ns, whole_ms = costs.gained_ns(late), longer_parts(costs, late[0], others)
    longer_ms = without_common_idle(costs, late, whole_ms)
    part = max(longer_ms, key=lambda name: longer_ms[name])
    longer = {name: ms for name, ms in longer_ms.items() if ms > 0}
    most_ms = costs.mean_ms(gained_ns)
    if longer_ms != whole_ms:  # the others wait for what was cut, too
        most_ms = min(most_ms, sum(longer.values()))
    host_leaves_ms = costs.most_to_gain_ms(late)
    if not is_of_host(part):  # what hosts differ by is not this part's
        of_host_ms = sum(ms for name, ms in longer.items() if is_of_host(name))
        by_chance_ms = min(of_host_ms, costs.hosts_differ_ms(late))
        most_ms -= by_chance_ms if by_chance_ms >= NAMED * costs.mean_ms(gained_ns) else 0.0
    elif host_leaves_ms is not None:
        most_ms = min(most_ms, host_leaves_ms)
    return limited_lateness(costs, late, gained_ns, longer_ms, part, most_ms)


def lateness_by_work(costs: Costs, late: list[int]) -> Lateness | None:
    """Lateness of a single rank whose GPU has more work than the others' have; None: it has not.

    Such work is there in nearly each step, by more than equal GPUs differ, however uneven the hosts
    are; if the others have theirs in other steps, nobody has more. It costs no more than it takes.
    """
    others = [n for n in range(len(costs.ranks)) if n not in late]
    rank, typical = costs.ranks[late[0]], costs.ranks[median_rank(costs, others)]
    if len(late) > 1 or why_longer(rank, typical) not in ("more_kernels", "larger_kernels"):
        return None
    own_ns, *others_ns = (
        costs.ranks[n].parts_ns["compute"][costs.steps_of(costs.ranks[n])]
        for n in (late[0], *others)
    )
    more_ns = own_ns - np.median(others_ns, axis=0)
    if np.mean(more_ns > EQUAL_GPUS * costs.step_ms * 1e6) < IN_NEARLY_EACH_STEP:
        return None
    longer_ms = longer_parts(costs, late[0], others)
    gained_ns = costs.gained_ns(late)
    return limited_lateness(costs, late, gained_ns, longer_ms, "compute", longer_ms["compute"])


def limited_lateness(
    costs: Costs,
    late: list[int],
    gained_ns: np.ndarray,
    longer_ms: dict[str, float],
    part: str,
    most_ms: float,
) -> Lateness:
    """Lateness that `part` makes. Of what the others wait, no more than `most_ms` can be gained."""
    waited_ms = costs.mean_ms(gained_ns)
    if waited_ms > max(0.0, most_ms):
        gained_ns = gained_ns * (max(0.0, most_ms) / waited_ms)
    between = cost_range(costs, late, gained_ns, waited_ms, part, longer_ms)
    return Lateness(late, gained_ns, waited_ms, longer_ms, part, between)


def straggler_of(costs: Costs, lateness: Lateness) -> Straggler:
    """Describe the late ranks: what they cost, why they are late, and what to try."""
    late, gained_ns = lateness.late, lateness.gained_ns
    longer_ms, part, between = lateness.longer_ms, lateness.part, lateness.range
    late_ms = costs.mean_ms(gained_ns)
    first, others = late[0], [n for n in range(len(costs.ranks)) if n not in late]
    rank, typical = costs.ranks[first], costs.ranks[median_rank(costs, others)]
    work = why_longer(rank, typical) if part == "compute" else None
    computes_ms = longer_ms.get("compute", 0.0)
    limited_ms = clock_gain_ms(costs, first, others, computes_ms, extra_launches_ms(rank, typical))
    because = cause(costs, first, others, part, longer_ms)
    if work in ("more_kernels", "larger_kernels"):  # the others' kernels do not tell
        because = verdict_by_kernels(costs, first, others)
    straggler = Straggler(
        rank=rank.rank,
        with_ranks=[costs.ranks[number].rank for number in late[1:]],
        costs_ms_per_step=late_ms,
        costs_between_ms=(between.low_ms, between.high_ms),
        gains_ms_per_step=max(0.0, late_ms - limited_ms),
        in_steps=int(np.count_nonzero(gained_ns > WORTH_TELLING * costs.step_ms * 1e6)),
        of_steps=len(gained_ns),
        because=because,
        part=part,
        longer_ms=longer_ms[part],
        phase=longest_phase(costs, first, others) if part == "compute" else None,
        work=work,
        kernels=most_longer_kernels(rank, typical) if work else [],
        evidence=[],
        next=next_steps(rank, because, work),
    )
    evidence = [
        *longer_lines(straggler, longer_ms),
        *work_lines(straggler, costs, first, others),
        *hosts_lines(straggler, costs, late, lateness.waited_ms),
        *waits_lines(straggler, costs, others),
        *limit_lines(straggler, limited_ms),
        *range_lines(straggler, between),
    ]
    return replace(straggler, evidence=evidence)


def cause(costs: Costs, first: int, others: list[int], part: str, longer: dict[str, float]) -> str:
    """Verdict on `part`; `host`, as in a report, if two host causes lie close together."""
    verdict = PART[part].verdict
    if verdict is None:
        own = costs.ranks[first].verdict
        return own if own in BUSY_GPU_VERDICTS else verdict_by_kernels(costs, first, others)
    close = [name for name, ms in longer.items() if ms >= CLOSE * longer[part]]
    verdicts = {named for name in close if (named := PART[name].verdict)}
    several = len(verdicts) > 1 and all(VERDICT[name].host for name in verdicts)
    return "host" if several and not VERDICT[verdict].sure else verdict


def verdict_by_kernels(costs: Costs, first: int, others: list[int]) -> str:
    """Verdict gpu_compute if mostly products take longer on the rank, else gpu_memory."""
    mine, theirs = costs.ranks[first], costs.ranks[median_rank(costs, others)]

    def ns_of(rank: ReducedRank, products: bool) -> float:
        kernels = rank.kernels.values()
        return sum(k.ns for k in kernels if (k.family in PRODUCTS) == products) / rank.steps

    products, others_ns = (ns_of(mine, of) - ns_of(theirs, of) for of in (True, False))
    return "gpu_compute" if products >= others_ns else "gpu_memory"


def longer_parts(costs: Costs, first: int, others: list[int]) -> dict[str, float]:
    """Excess of each part of the rank's step over the median of the others, in ms per step.

    All ranks wait for their GPUs alike. So if the wait is the largest excess and longer work of the
    host explains most of it, that work is why the rank is late, and the excess is moved to it. The
    rank's own report blames the wait, because without the wait the work would have been hidden.
    """
    longer_ms = beyond_median(costs.unslowed_ms, first, others)
    longer_ms.pop("communication", None)
    waits_ms = longer_ms.get("synchronization", 0.0)
    host_longer_ms = {
        name: ms for name, ms in beyond_median(costs.host_ms, first, others).items() if name in HOST
    }
    most = max(host_longer_ms, key=lambda name: host_longer_ms[name], default=None)
    if most and waits_ms == max(longer_ms.values()) and host_longer_ms[most] >= MOSTLY * waits_ms:
        longer_ms |= {
            "synchronization": max(0.0, waits_ms - host_longer_ms[most]),
            most: host_longer_ms[most],
        }
    return longer_ms


def without_common_idle(
    costs: Costs, late: list[int], longer_ms: dict[str, float]
) -> dict[str, float]:
    """`longer_ms` without idle time that the others' hosts only hide behind their waits.

    The host's parts together are no longer than its own time for a step exceeds the slowest of the
    others'. What is cut are the parts that slow hosts lengthen.
    """
    mine_ms, theirs_ms = costs.own_host_ms(late[0]), costs.slowest_host_ms(late)
    if mine_ms is None or theirs_ms is None:
        return longer_ms
    of_host = {name: max(ms, 0.0) for name, ms in longer_ms.items() if is_of_host(name)}
    evenly = {name: ms for name, ms in of_host.items() if is_slow_host(costs, late, name)}
    others_ms = sum(of_host.values()) - sum(evenly.values())
    left_ms = max(0.0, float(mine_ms.mean() - theirs_ms.mean()) - others_ms)
    share = min(1.0, left_ms / (sum(evenly.values()) or 1.0))
    return longer_ms | {name: share * ms for name, ms in evenly.items() if ms > 0}


def is_slow_host(costs: Costs, late: list[int], part: str) -> bool:
    """Whether the part is longer on the late rank if its host is slower at the same work."""
    if part == "synchronization" and costs.waits_more(late[0]):
        return False
    return is_of_host(part) and PART[part].lengthened


def beyond_median(
    ms_of: Callable[[int], dict[str, float]], first: int, others: list[int]
) -> dict[str, float]:
    """Excess of each part of rank `first` over the median of the others; `ms_of` is per rank."""
    theirs = [ms_of(number) for number in others]
    return {
        name: ms - float(np.median([parts.get(name, 0.0) for parts in theirs]))
        for name, ms in ms_of(first).items()
    }


def longest_phase(costs: Costs, first: int, others: list[int]) -> str | None:
    """Phase whose kernels exceed the median of the others by most; None without phases."""

    def mean_ns(number: int, phase: str) -> float:
        rank = costs.ranks[number]
        ns = rank.phase_ns.get(phase)
        return 0.0 if ns is None else float(ns[costs.steps_of(rank)].mean())

    longer_ns = {
        phase: mean_ns(first, phase) - float(np.median([mean_ns(n, phase) for n in others]))
        for phase in costs.ranks[first].phase_ns
    }
    return max(longer_ns, key=lambda phase: longer_ns[phase], default=None)


def median_rank(costs: Costs, numbers: list[int]) -> int:
    """Rank with the median compute time among `numbers`."""
    order = sorted(numbers, key=lambda number: costs.unslowed_ms(number)["compute"])
    return order[len(order) // 2]
