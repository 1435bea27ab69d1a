"""What holds the late rank up: the part of the step, the phase, and the kernels behind it.

The cause is the part of the step, of causes.PARTS less communication, that takes the late rank
longer than the median of the others by most. Longer kernels are explained by what ran (`work`).
"""

from collections.abc import Callable

import numpy as np

from profiling.analysis.ranks.costs import WORTH_TELLING, Costs
from profiling.analysis.ranks.power_limit import PRODUCTS, ahead_ms
from profiling.analysis.ranks.records import LongerKernel, Straggler, Work
from profiling.analysis.ranks.reduce import ReducedRank
from profiling.analysis.ranks.work import more_ms, most_longer, why_longer
from profiling.analysis.verdict.advice import lines
from profiling.analysis.verdict.diagnosis import CLOSE
from profiling.causes import PART, VERDICT
from profiling.kernel_names import function_name

ALSO = 0.2  # of what it costs: another part that is longer
NAMED = 0.02  # of what it costs: what clocks make of it
SLOWER_CLOCK = 0.01  # by which a GPU's is told apart from the others'
MOST_ADVICE = 2  # lines of what to try
MOSTLY = 0.5  # of a wait for the GPU, what the host did longer behind it
HOST = ("data", "cpu")
GPU_VERDICTS = ("gpu_compute", "gpu_memory", "gpu_latency", "gpu")


def straggler_of(costs: Costs, late: list[int], gained_ns: np.ndarray) -> Straggler:
    """`late`: the one that costs most alone first; `gained_ns`: of these, by Costs.gained_ns."""
    late_ms = costs.mean_ms(gained_ns)
    first, others = late[0], [n for n in range(len(costs.ranks)) if n not in late]
    rank = costs.ranks[first]
    longer_ms = longer_parts(costs, first, others)
    part = max(longer_ms, key=lambda name: longer_ms[name])
    phase = longest_phase(costs, first, others) if part == "compute" else None
    typical = costs.ranks[median_rank(costs, others)]
    work = why_longer(rank, typical) if part == "compute" else None
    computes_ms = longer_ms.get("compute", 0.0)
    ahead = ahead_ms(costs, first, others, computes_ms, more_ms(rank, typical))
    in_steps = int(np.count_nonzero(gained_ns > WORTH_TELLING * costs.step_ms * 1e6))
    because = cause(costs, first, others, part, longer_ms)
    whose = "its GPU" if len(late) == 1 else f"rank {rank.rank}'s GPU"
    why = what_is_longer(part, longer_ms[part], phase)
    evidence = [f"{held_up(costs, late, late_ms, in_steps)}: {whose} {why}."]
    evidence += [
        f"Also {whose} {what_is_longer(name, ms, phase)}."
        for name, ms in sorted(longer_ms.items(), key=lambda item: -item[1])
        if name != part and ms >= ALSO * late_ms
    ]
    kernels = most_longer(rank, typical) if work else []
    evidence += [f"{WORK[work]}{kernels_said(kernels, work)}"] if work else []
    evidence += [clocks_said(costs, first, others)] if work == "slower_kernels" else []
    slowed_ms = slowed_by_waits_ms(costs, others)
    evidence += [SLOWED.format(slowed_ms)] if slowed_ms >= ALSO * late_ms else []
    gains_ms = max(0.0, late_ms - ahead)
    evidence += [LIMITED.format(ahead, gains_ms)] if ahead >= NAMED * late_ms else []
    return Straggler(
        rank=rank.rank,
        with_ranks=[costs.ranks[number].rank for number in late[1:]],
        costs_ms_per_step=late_ms,
        gains_ms_per_step=gains_ms,
        in_steps=in_steps,
        of_steps=len(gained_ns),
        because=because,
        part=part,
        longer_ms=longer_ms[part],
        phase=phase,
        work=work,
        kernels=kernels,
        evidence=evidence,
        next=next_steps(rank, because, work),
    )


UNEVEN: dict[Work, str] = {
    "more_kernels": "Find what launches these kernels on rank {} and not on the others: its own "
    "report names the owner of each.",
    "larger_kernels": "Share the work out evenly: the same kernels have more to do on rank {}.",
    "slower_kernels": "Measure rank {}'s GPU by itself: python -m profiling device.",
}


def next_steps(late: ReducedRank, because: str, work: Work | None) -> list[str]:
    """What to try. What a line says of all of a step is not said of what makes the rank late."""
    if work:
        return [UNEVEN[work].format(late.rank)]
    advice = lines(because, late.run) if because in VERDICT else []
    return [line for line in advice if "{" not in line][:MOST_ADVICE]


WORK: dict[Work, str] = {
    "more_kernels": "It launches more kernels than the others.",
    "larger_kernels": "It launches the same kernels over larger grids: its share is larger.",
    "slower_kernels": "It runs the same kernels over the same grids, and each takes longer.",
}


def kernels_said(kernels: list[LongerKernel], work: Work) -> str:
    """Behind what the work is: the kernels by name, how many more, and how much longer."""
    said = []
    for kernel in kernels:
        told = f"{kernel.longer_ms:.2f} ms"
        more = work == "more_kernels" and kernel.more > 0
        told = f"{kernel.more:.3g} more a step, {told}" if more else f"{told} a step"
        said.append(f"{function_name(kernel.name)} ({told})")
    return f" Most of it: {', '.join(said)}." if said else ""


SLOWED = (
    "The others' waits are hidden by kernels, but not free: the waiting collectives hold "
    "multiprocessors, and slow these kernels down by {:.2f} ms a step."
)


LIMITED = (
    "All GPUs are at their power limits, and who waits draws less power: at this rank's clock the "
    "others would take {:.2f} ms longer. So expect to gain {:.2f} ms."
)


def clocks_said(costs: Costs, first: int, others: list[int]) -> str:
    """Whether its GPU's clock tells why the same kernels take longer there."""
    mine = costs.ranks[first].gpu_clock
    theirs = [clock.sm_mhz for n in others if (clock := costs.ranks[n].gpu_clock)]
    if mine is None or not theirs:
        return "Look at its clocks, temperature and power, and at what else runs on that GPU."
    median_mhz = float(np.median(theirs))
    if mine.sm_mhz >= (1 - SLOWER_CLOCK) * median_mhz:
        return (
            f"Over the run its clock was {mine.said}, the others' {median_mhz:.0f}: that is not "
            "why. Look at what else runs on that GPU."
        )
    return f"Over the run its clock was {mine.said}; the others' {median_mhz:.0f}."


def slowed_by_waits_ms(costs: Costs, others: list[int]) -> float:
    """What waits hidden by kernels make these longer, on the rank that loses least by it."""
    slowed_ns = costs.waits.slowed_by_wait_ns
    return min(costs.of_rank_ms(slowed_ns, number) or 0.0 for number in others)


def held_up(costs: Costs, late: list[int], late_ms: float, in_steps: int) -> str:
    numbers = [costs.ranks[number].rank for number in late]
    steps = len(costs.iterations)
    who = f"Rank {numbers[0]} holds" if len(late) == 1 else f"Ranks {and_last(numbers)} hold"
    where = "" if in_steps == steps else f", in {in_steps} of {steps} steps"
    return f"{who} the others up by {late_ms:.2f} ms a step{where}"


def what_is_longer(part: str, ms: float, phase: str | None) -> str:
    if part == "compute":
        where = f", most of it in {phase}" if phase else ""
        return f"computes {ms:.2f} ms longer{where}"
    verdict = PART[part].verdict
    if not PART[part].cause or verdict is None:
        return f"spends {ms:.2f} ms longer on {PART[part].meaning}"
    return f"waits {ms:.2f} ms longer for {VERDICT[verdict].title}"


def and_last(numbers: list[int]) -> str:
    """2, 6 and 7"""
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def cause(costs: Costs, first: int, others: list[int], part: str, longer: dict[str, float]) -> str:
    """The verdict: as in the report of one capture `host` if two of its reasons lie close."""
    verdict = PART[part].verdict
    if verdict is None:
        own = costs.ranks[first].verdict
        return own if own in GPU_VERDICTS else longer_kernels(costs, first, others)
    close = [name for name, ms in longer.items() if ms >= CLOSE * longer[part]]
    verdicts = {named for name in close if (named := PART[name].verdict)}
    several = len(verdicts) > 1 and all(VERDICT[name].host for name in verdicts)
    return "host" if several and not VERDICT[verdict].sure else verdict


def longer_kernels(costs: Costs, first: int, others: list[int]) -> str:
    """gpu_compute where it is mostly products that take the rank longer, else gpu_memory."""
    mine, theirs = costs.ranks[first], costs.ranks[median_rank(costs, others)]

    def ns_of(rank: ReducedRank, products: bool) -> float:
        kernels = rank.kernels.values()
        return sum(k.ns for k in kernels if (k.family in PRODUCTS) == products) / rank.steps

    products, others_ns = (ns_of(mine, of) - ns_of(theirs, of) for of in (True, False))
    return "gpu_compute" if products >= others_ns else "gpu_memory"


def longer_parts(costs: Costs, first: int, others: list[int]) -> dict[str, float]:
    """By how many ms a step each part of the rank is longer than the median of the others.

    All ranks wait for their GPUs alike. What a rank's host does longer is why it is late, though
    without the wait it would have been hidden, and the rank's own report blames the wait.
    """
    found = longer(costs.unslowed_ms, first, others)
    found.pop("communication", None)
    waits_ms = found.get("synchronization", 0.0)
    did = {name: ms for name, ms in longer(costs.host_ms, first, others).items() if name in HOST}
    most = max(did, key=lambda name: did[name], default=None)
    if most and waits_ms == max(found.values()) and did[most] >= MOSTLY * waits_ms:
        found |= {"synchronization": max(0.0, waits_ms - did[most]), most: did[most]}
    return found


def longer(
    ms_of: Callable[[int], dict[str, float]], first: int, others: list[int]
) -> dict[str, float]:
    theirs = [ms_of(number) for number in others]
    return {
        name: ms - float(np.median([parts.get(name, 0.0) for parts in theirs]))
        for name, ms in ms_of(first).items()
    }


def longest_phase(costs: Costs, first: int, others: list[int]) -> str | None:
    """The phase whose kernels take longest beyond the others'; None without phases."""

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
    """The one that computes a median time."""
    order = sorted(numbers, key=lambda number: costs.unslowed_ms(number)["compute"])
    return order[len(order) // 2]
