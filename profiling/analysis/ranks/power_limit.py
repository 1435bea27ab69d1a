"""What ranks that wait are ahead by their clocks, where power limits hold all GPUs down.

Called by cause. A GPU that waits draws less power, and computes at a higher clock for it: products
and attention take as much less time, kernels that memory bounds take the same. Once nobody is
waited for all draw alike, and their clocks fall to about that of the rank that is late now. So
what the others are ahead by their clocks is in what the late rank costs, and mending it does not
give it back. (Two H200s, GPT-2 124M, clocks 6 % apart: products 4 to 6 % apart, AdamW by nothing.)
"""

from profiling.analysis.ranks.costs import Costs
from profiling.analysis.ranks.reduce import ReducedRank

PRODUCTS = ("gemm", "convolution", "attention")  # families that take as long as the clock has them


def limits_all_gpus(costs: Costs) -> bool:
    """Whether power limits hold down the clocks of all ranks' GPUs, as far as is known."""
    clocks = [rank.gpu_clock for rank in costs.ranks]
    return all(clock is not None and clock.held_down_by == "power" for clock in clocks)


def clock_gain_ms(
    costs: Costs, late: int, others: list[int], longer_ms: float, extra_ms: float
) -> float:
    """By how many ms a step the least of the others is ahead of the late one by its clock.

    `longer_ms`: that the late one computes longer. What clocks alone do not explain of it is more
    work, and a reason to wait; so no more than this: 0 where its clock is all that is wrong with
    it. Nor is it more than what is left without launches that the others have not, `extra_ms`: the
    rest was measured on all of them. 0 also where power limits do not hold all.
    """
    clock = costs.ranks[late].gpu_clock
    if clock is None or not limits_all_gpus(costs):
        return 0.0
    ahead = min(
        products_ms(rank) * clock_excess(rank, clock.sm_mhz) for rank in ranks_at(costs, others)
    )
    return min(ahead, max(0.0, longer_ms - max(ahead, extra_ms)))


def ranks_at(costs: Costs, numbers: list[int]) -> list[ReducedRank]:
    return [costs.ranks[number] for number in numbers]


def products_ms(rank: ReducedRank) -> float:
    """Of a step, without what collectives slow."""
    ns = sum(work.ns for work in rank.kernels.values() if work.family in PRODUCTS)
    return ns / rank.steps / 1e6


def clock_excess(rank: ReducedRank, than_mhz: float) -> float:
    """As a share of the other clock; 0 where it is not higher."""
    return max(0.0, rank.gpu_clock.sm_mhz / than_mhz - 1) if rank.gpu_clock else 0.0
