"""Words for what holds the late rank up: the evidence, and what to try. Called by cause."""

import numpy as np

from profiling.analysis.ranks.cost_range import CostRange
from profiling.analysis.ranks.costs import Costs
from profiling.analysis.ranks.rank_records import LongerKernel, Straggler, Work
from profiling.analysis.ranks.reduce import ReducedRank
from profiling.analysis.ranks.work import OTHER_WORK
from profiling.analysis.verdict.advice import advice_templates
from profiling.shared.causes import PART, VERDICT
from profiling.shared.kernel_names import function_name

ALSO = 0.2  # share of the cost from which on another longer part is mentioned
NAMED = 0.02  # share of the cost from which on the effect of clocks, or of hosts, is mentioned
SLOWER_CLOCK = 0.01  # share by which a GPU's clock has to be below the others' to count as slower
MOST_ADVICE = 2  # number of lines on what to try, at most


def longer_lines(late: Straggler, longer_ms: dict[str, float]) -> list[str]:
    """Lines on who is waited for, and in which of causes.PARTS its step is longer."""
    whose = f"rank {late.rank}'s GPU" if late.with_ranks else "its GPU"
    why = longer_text(late.part, late.longer_ms, late.phase)
    return [f"{delay_text(late)}: {whose} {why}."] + [
        f"Also {whose} {longer_text(name, ms, late.phase)}."
        for name, ms in sorted(longer_ms.items(), key=lambda item: -item[1])
        if name != late.part and ms >= ALSO * late.costs_ms_per_step
    ]


def range_lines(late: Straggler, between: CostRange) -> list[str]:
    """Line on what moves the cost without a profiler, where that is much; so tools may differ."""
    enough_ms = ALSO * late.costs_ms_per_step
    reasons = []
    if between.chance_ms >= enough_ms:
        reasons.append(chance_text(late, between))
    if between.hidden_ms >= enough_ms:
        reasons.append(
            f"the others' hosts, which capturing may slow, hold them up too, and this may hide "
            f"{between.hidden_ms:.2f} ms"
        )
    if between.lengthened_ms >= max(enough_ms, between.chance_ms):
        reasons.append(
            f"a captured step takes {between.lengthened_ms:.2f} ms longer than those before and "
            "after the capture"
        )
    if between.cut_ms >= enough_ms or between.high_ms < late.costs_ms_per_step:
        reasons.append("steps before and after the capture leave no time for more")
    if not reasons:
        return []
    low_ms, high_ms = late.costs_between_ms
    range_ms = f"{low_ms:.2f} to {high_ms:.2f} ms per step"
    return [f"Without a profiler the cost is {range_ms}: {'; '.join(reasons)}."]


def chance_text(late: Straggler, between: CostRange) -> str:
    """Phrase on what capturing, or hosts that differ by chance, may be of the cost.

    More work of a GPU is there all the same, but slow hosts may hide it.
    """
    if late.work in ("more_kernels", "larger_kernels"):
        slow = "which capturing slows" if between.by_capturing else "which differ by chance"
        return f"the hosts, {slow}, may hide {between.chance_ms:.2f} ms of this work"
    if between.by_capturing:
        return (
            f"capturing lengthens the host's work, and may have made {between.chance_ms:.2f} ms "
            "of the lateness"
        )
    return (
        f"hosts with the same work differ, which may be {between.chance_ms:.2f} ms of the lateness"
    )


def delay_text(late: Straggler) -> str:
    numbers = [late.rank, *late.with_ranks]
    who = f"Ranks {join_numbers(numbers)} delay" if late.with_ranks else f"Rank {late.rank} delays"
    some = late.in_steps < late.of_steps
    where = f", in {late.in_steps} of {late.of_steps} steps" if some else ""
    per = "per step" if late.of_steps > 1 else "in the only step that all ranks have"
    return f"{who} the others by {late.costs_ms_per_step:.2f} ms {per}{where}"


def join_numbers(numbers: list[int]) -> str:
    """Enumeration such as "2, 6 and 7"."""
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def longer_text(part: str, ms: float, phase: str | None) -> str:
    if part == "compute":
        where = f", most of it in {phase}" if phase else ""
        return f"computes {ms:.2f} ms longer{where}"
    verdict = PART[part].verdict
    if not PART[part].cause or verdict is None:
        return f"spends {ms:.2f} ms longer on {PART[part].title}"
    return f"waits {ms:.2f} ms longer for {VERDICT[verdict].title}"


def work_lines(late: Straggler, costs: Costs, first: int, others: list[int]) -> list[str]:
    """Lines on why it computes longer, or, if launches are late, on whether there are more."""
    if late.part == "launch":
        return [launches_line(costs.ranks[first], [costs.ranks[n] for n in others])]
    if late.work is None:
        return []
    texts = [f"{WORK[late.work]}{kernels_text(late.kernels, late.work)}"]
    return texts + [clocks_line(costs, first, others)] * (late.work == "slower_kernels")


WORK: dict[Work, str] = {
    "more_kernels": "It launches more kernels than the others.",
    "larger_kernels": "It launches the same kernels with larger grids, so it has more work.",
    "slower_kernels": "It runs the same kernels with the same grids, but each takes longer.",
}


def kernels_text(kernels: list[LongerKernel], work: Work) -> str:
    """Continuation that names kernels, how many more there are, and how much longer they take."""
    texts = []
    for kernel in kernels:
        amount = f"{kernel.longer_ms:.2f} ms"
        more = work == "more_kernels" and kernel.more > 0
        amount = f"{kernel.more:.3g} more per step, {amount}" if more else f"{amount} per step"
        texts.append(f"{function_name(kernel.name)} ({amount})")
    return f" Mainly: {', '.join(texts)}." if texts else ""


def launches_line(late: ReducedRank, others: list[ReducedRank]) -> str:
    mine, theirs = late.launches, sorted(rank.launches for rank in others)
    least, most = theirs[0], theirs[-1]
    they = f"{least:.0f}" if most - least < 1 else f"{least:.0f} to {most:.0f}"
    if mine > (1 + OTHER_WORK) * most:
        return f"Its host launches more kernels: {mine:.0f} per step, the others {they}."
    return (
        f"Its host launches no more kernels than the others ({mine:.0f} per step, the others "
        f"{they}), so the host is slower: check the clock of its CPU and what else runs there."
    )


def clocks_line(costs: Costs, first: int, others: list[int]) -> str:
    """Line on whether its GPU's clock explains why the same kernels take longer there."""
    mine = costs.ranks[first].gpu_clock
    theirs = [clock.sm_mhz for n in others if (clock := costs.ranks[n].gpu_clock)]
    if mine is None or not theirs:
        return "Check the GPU's clocks, temperature and power, and what else runs on it."
    median_mhz = float(np.median(theirs))
    if mine.sm_mhz >= (1 - SLOWER_CLOCK) * median_mhz:
        return (
            f"Over the run its clock was {mine.text}, and the others ran at {median_mhz:.0f}, so "
            "the clock is not the reason. Check what else runs on that GPU."
        )
    return f"Over the run its clock was {mine.text}; the others ran at {median_mhz:.0f}."


def hosts_lines(late: Straggler, costs: Costs, numbers: list[int], waited_ms: float) -> list[str]:
    """Line on what the others' own hosts keep them from gaining, where that is much."""
    host_ms = costs.slowest_host_ms(numbers)
    if host_ms is None or waited_ms - late.costs_ms_per_step < ALSO * waited_ms:
        return []
    if late.part == "compute":
        return [LIMITED_BY_WORK.format(waited_ms, host_ms.mean())]
    return [LIMITED_BY_HOSTS.format(waited_ms, host_ms.mean())]


LIMITED_BY_HOSTS = (
    "The others wait {:.2f} ms per step for it, but would not gain all of that: the slowest of "
    "their own hosts takes {:.2f} ms per step. Idle time that it would cause is not counted."
)
LIMITED_BY_WORK = (
    "The others wait {:.2f} ms per step for it, most of it because of hosts that come late in "
    "turns: the slowest of their own hosts takes {:.2f} ms per step."
)


def waits_lines(late: Straggler, costs: Costs, others: list[int]) -> list[str]:
    slowed_ms = slowed_by_waits_ms(costs, others)
    return [SLOWED.format(slowed_ms)] if slowed_ms >= ALSO * late.costs_ms_per_step else []


SLOWED = (
    "Kernels hide the waits of the other ranks, but the waits still cost time: the waiting "
    "collectives occupy multiprocessors and slow these kernels down by {:.2f} ms per step."
)


def slowed_by_waits_ms(costs: Costs, others: list[int]) -> float:
    """Time in ms per step by which hidden waits slow kernels, on the rank that loses least."""
    slowed_ns = costs.waits.slowed_by_wait_ns
    return min(costs.mean_of_rank_ms(slowed_ns, number) or 0.0 for number in others)


def limit_lines(late: Straggler, limited_ms: float) -> list[str]:
    """Line on power limits; `limited_ms` is the part of the cost that mending does not gain."""
    if limited_ms < NAMED * late.costs_ms_per_step:
        return []
    return [LIMITED.format(limited_ms, late.gains_ms_per_step)]


LIMITED = (
    "All GPUs are at their power limits, and a waiting GPU draws less power: at this rank's "
    "clock the others would take {:.2f} ms longer. So expect to gain {:.2f} ms."
)


UNEVEN: dict[Work, str] = {
    "more_kernels": "Find what launches these kernels on rank {} but not on the others: the report "
    "of this rank names the owner of each kernel.",
    "larger_kernels": "Distribute the work evenly: the same kernels have more work on rank {}.",
    "slower_kernels": "Measure the GPU of rank {} alone: python -m profiling device.",
}


def next_steps(late: ReducedRank, because: str, work: Work | None) -> list[str]:
    """Lines on what to try.

    Advice with a placeholder ("{") is left out, since its value describes the whole step and not
    what makes the rank late.
    """
    if work:
        return [UNEVEN[work].format(late.rank)]
    advice = advice_templates(because, late.run) if because in VERDICT else []
    return [line for line in advice if "{" not in line][:MOST_ADVICE]
