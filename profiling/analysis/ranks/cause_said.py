"""What holds the late rank up, in words: its evidence, and what to try. Called by cause."""

import numpy as np

from profiling.analysis.ranks.costs import Costs
from profiling.analysis.ranks.records import LongerKernel, Straggler, Work
from profiling.analysis.ranks.reduce import ReducedRank
from profiling.analysis.ranks.work import OTHER_WORK
from profiling.analysis.verdict.advice import lines
from profiling.causes import PART, VERDICT
from profiling.kernel_names import function_name

ALSO = 0.2  # of what it costs: another part that is longer
NAMED = 0.02  # of what it costs: what clocks make of it
SLOWER_CLOCK = 0.01  # by which a GPU's is told apart from the others'
MOST_ADVICE = 2  # lines of what to try


def longer_said(late: Straggler, longer_ms: dict[str, float]) -> list[str]:
    """Who is waited for, and in which parts its step is longer, by causes.PARTS."""
    whose = f"rank {late.rank}'s GPU" if late.with_ranks else "its GPU"
    why = what_is_longer(late.part, late.longer_ms, late.phase)
    return [f"{held_up(late)}: {whose} {why}."] + [
        f"Also {whose} {what_is_longer(name, ms, late.phase)}."
        for name, ms in sorted(longer_ms.items(), key=lambda item: -item[1])
        if name != late.part and ms >= ALSO * late.costs_ms_per_step
    ]


def held_up(late: Straggler) -> str:
    numbers = [late.rank, *late.with_ranks]
    who = f"Ranks {and_last(numbers)} hold" if late.with_ranks else f"Rank {late.rank} holds"
    some = late.in_steps < late.of_steps
    where = f", in {late.in_steps} of {late.of_steps} steps" if some else ""
    return f"{who} the others up by {late.costs_ms_per_step:.2f} ms a step{where}"


def and_last(numbers: list[int]) -> str:
    """2, 6 and 7"""
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def what_is_longer(part: str, ms: float, phase: str | None) -> str:
    if part == "compute":
        where = f", most of it in {phase}" if phase else ""
        return f"computes {ms:.2f} ms longer{where}"
    verdict = PART[part].verdict
    if not PART[part].cause or verdict is None:
        return f"spends {ms:.2f} ms longer on {PART[part].meaning}"
    return f"waits {ms:.2f} ms longer for {VERDICT[verdict].title}"


def work_said(late: Straggler, costs: Costs, first: int, others: list[int]) -> list[str]:
    """What its kernels say of it; where their launches are late, whether they are more."""
    if late.part == "launch":
        return [launches_said(costs.ranks[first], [costs.ranks[n] for n in others])]
    if late.work is None:
        return []
    said = [f"{WORK[late.work]}{kernels_said(late.kernels, late.work)}"]
    return said + [clocks_said(costs, first, others)] * (late.work == "slower_kernels")


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


def launches_said(late: ReducedRank, others: list[ReducedRank]) -> str:
    mine, theirs = late.launches, sorted(rank.launches for rank in others)
    least, most = theirs[0], theirs[-1]
    they = f"{least:.0f}" if most - least < 1 else f"{least:.0f} to {most:.0f}"
    if mine > (1 + OTHER_WORK) * most:
        return f"Its host launches more kernels: {mine:.0f} a step, the others' {they}."
    return (
        f"Its host launches no more kernels than the others' ({mine:.0f} a step, they {they}), so "
        "it is slower: look at its CPU's clock, and at what else runs there."
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
            f"Over the run its clock was {mine.text}, the others' {median_mhz:.0f}: that is not "
            "why. Look at what else runs on that GPU."
        )
    return f"Over the run its clock was {mine.text}; the others' {median_mhz:.0f}."


def waits_said(late: Straggler, costs: Costs, others: list[int]) -> list[str]:
    slowed_ms = slowed_by_waits_ms(costs, others)
    return [SLOWED.format(slowed_ms)] if slowed_ms >= ALSO * late.costs_ms_per_step else []


SLOWED = (
    "The others' waits are hidden by kernels, but not free: the waiting collectives hold "
    "multiprocessors, and slow these kernels down by {:.2f} ms a step."
)


def slowed_by_waits_ms(costs: Costs, others: list[int]) -> float:
    """What waits hidden by kernels make these longer, on the rank that loses least by it."""
    slowed_ns = costs.waits.slowed_by_wait_ns
    return min(costs.of_rank_ms(slowed_ns, number) or 0.0 for number in others)


def limit_said(late: Straggler, limited_ms: float) -> list[str]:
    """`limited_ms`: by how much mending it gains less than it costs."""
    if limited_ms < NAMED * late.costs_ms_per_step:
        return []
    return [LIMITED.format(limited_ms, late.gains_ms_per_step)]


LIMITED = (
    "All GPUs are at their power limits, and who waits draws less power: at this rank's clock the "
    "others would take {:.2f} ms longer. So expect to gain {:.2f} ms."
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
