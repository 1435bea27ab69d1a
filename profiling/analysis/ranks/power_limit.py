"""Lead that waiting ranks owe to their clocks, where power limits hold down all GPUs.

Called by cause. A GPU that waits draws less power and therefore computes at a higher clock: matrix
products and attention take proportionally less time, kernels that are bound by memory take the
same. Once no rank is waited for, all GPUs draw the same power, and their clocks fall to about that
of the rank that is late now. So a part of what the late rank costs is only the others' lead by
their clocks, and mending the late rank does not give that part back. (Two H200s, GPT-2 124M, clocks
6 % apart: products 4 to 6 % apart, AdamW by nothing.)
"""

from profiling.analysis.ranks.costs import Costs
from profiling.analysis.ranks.reduce import ReducedRank

PRODUCTS = ("gemm", "convolution", "attention")  # families whose time follows the clock


def limits_all_gpus(costs: Costs) -> bool:
    """Whether power limits are known to hold down the clocks of all ranks' GPUs."""
    clocks = [rank.gpu_clock for rank in costs.ranks]
    return all(clock is not None and clock.held_down_by == "power" for clock in clocks)


def clock_gain_ms(
    costs: Costs, late: int, others: list[int], longer_ms: float, extra_ms: float
) -> float:
    """Time in ms per step that the others gain merely because waiting lets their clocks rise.

    It is the smallest value over the others, and 0 unless power limits hold down all GPUs.
    `longer_ms` is how much longer the late rank computes, and `extra_ms` the part of that in
    launches that the others do not have. The part of `longer_ms` that clocks do not explain is more
    work, which is why the others wait at all. So the result is no more than that part: it is 0
    where the late rank's clock is all that is wrong with it. Nor is it more than `longer_ms`
    without `extra_ms`, because only the other launches were measured on all ranks.
    """
    clock = costs.ranks[late].gpu_clock
    if clock is None or not limits_all_gpus(costs):
        return 0.0
    ahead = min(
        products_ms(rank) * clock_excess(rank, clock.sm_mhz)
        for rank in (costs.ranks[number] for number in others)
    )
    return min(ahead, max(0.0, longer_ms - max(ahead, extra_ms)))


def products_ms(rank: ReducedRank) -> float:
    """Time of products and attention in ms per step, without what collectives add to it."""
    ns = sum(work.ns for work in rank.kernels.values() if work.family in PRODUCTS)
    return ns / rank.steps / 1e6


def clock_excess(rank: ReducedRank, than_mhz: float) -> float:
    """Excess of the rank's GPU clock over `than_mhz`, as a share of that; 0 if not higher."""
    return max(0.0, rank.gpu_clock.sm_mhz / than_mhz - 1) if rank.gpu_clock else 0.0
