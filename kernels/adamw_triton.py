"""Clipping, AdamW and the copies of weights in Triton, over all parameters at once: three launches.

Each parameter, its gradient and its moments are tensors of their own. A table has their addresses,
a second one cuts them into blocks, and a program has a block. Names are AdamW's: p a weight, g its
gradient, m and v its moments. With TRITON_INTERPRET=1 in the environment they run on a CPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, WARPS = 2048, 4  # elements of a program
SUM, SUM_WARPS = 1024, 4  # of the programs' sums, at a time
ALIGNED = 4  # elements: where all sizes are multiples of it, a thread reads so many at once

KINDS = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


@dataclass(frozen=True)
class Blocks:
    """Of n tensors, cut into blocks; on the device."""

    sizes: Tensor  # (n,) int64, elements
    owners: Tensor  # (blocks,) int32, the number of the tensor
    firsts: Tensor  # (blocks,) int64, the block's first element in it
    aligned: bool


@dataclass(frozen=True)
class Parts:
    """Of gradients that come from several ranks: of each n the mean of so many is meant."""

    count: int
    strides: Tensor  # (n,) int64, elements from one to the next; on the device
    dtype: torch.dtype  # they are added in float32


@dataclass(frozen=True)
class Rule:
    """What AdamW and clipping are told."""

    beta1: float
    beta2: float
    epsilon: float
    max_norm: float  # 0: nothing is clipped
    copies: torch.dtype | None  # of the weights' copies; None: there are none


@triton.jit
def float32_at(TABLE, number, ALIGNED: tl.constexpr):
    """Where the tensor of this number begins: at a multiple of ALIGNED elements."""
    return tl.multiple_of(tl.load(TABLE + number).to(tl.pointer_type(tl.float32)), 4 * ALIGNED)


@triton.jit
def gradient_of(
    GRADIENTS, STRIDES, number, i, inside,
    COUNT: tl.constexpr, PART: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """Elements i of it: the mean of COUNT parts of type PART, which are added in their order."""
    G = tl.load(GRADIENTS + number).to(tl.pointer_type(PART))
    G = tl.multiple_of(G, PART.primitive_bitwidth // 8 * ALIGNED) + i
    g = tl.load(G, mask=inside, other=0.0).to(tl.float32)
    if COUNT > 1:
        stride = tl.multiple_of(tl.load(STRIDES + number), ALIGNED)
        for part in tl.static_range(1, COUNT):
            g += tl.load(G + part * stride, mask=inside, other=0.0).to(tl.float32)
        g *= 1 / COUNT
    return g


@triton.jit
def adamw_squares_triton(
    GRADIENTS, STRIDES, SIZES, OWNERS, FIRSTS, SQUARES,
    COUNT: tl.constexpr, PART: tl.constexpr, BLOCK: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """The sum of a block's squares, (blocks,)."""
    block = tl.program_id(0)
    number = tl.load(OWNERS + block)
    i = tl.multiple_of(tl.load(FIRSTS + block), BLOCK) + tl.arange(0, BLOCK)
    size = tl.multiple_of(tl.load(SIZES + number), ALIGNED)
    g = gradient_of(GRADIENTS, STRIDES, number, i, i < size, COUNT, PART, ALIGNED)
    tl.store(SQUARES + block, tl.sum(g * g, 0))


@triton.jit
def adamw_rates_triton(
    SQUARES, OTHERS, STEPS, DECAYS, LR, GRAD_SCALE, FOUND_INF, SKIPPED, FACTORS, RATES, blocks, n,
    BETA1: tl.constexpr, BETA2: tl.constexpr, MAX_NORM: tl.constexpr,
    BLOCK: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """One program: the norm, whether this update is made, and what goes into it.

    STEPS (n,) are counted on. FACTORS become (what gradients are multiplied by, 1 or 0 for no
    update), RATES (3, n): what a weight is multiplied by, and m, and the root of v.
    """
    number = tl.arange(0, N)
    step = tl.load(STEPS + number, mask=number < n, other=1.0)
    skipped = tl.load(SKIPPED)
    tl.debug_barrier()  # every warp has read both
    sums = tl.zeros([BLOCK], tl.float32)
    for first in range(0, blocks, BLOCK):
        block = first + tl.arange(0, BLOCK)
        sums += tl.load(SQUARES + block, mask=block < blocks, other=0.0)
    factor = 1.0
    if GRAD_SCALE is not None:
        factor = 1.0 / tl.load(GRAD_SCALE)
    square = tl.sum(sums, 0)
    if OTHERS is not None:
        square += tl.load(OTHERS)
    norm = tl.sqrt(square) * factor
    if FOUND_INF is not None:  # of the scaler, which goes on behind it
        made = tl.load(FOUND_INF) == 0.0
    else:  # from the first bad norm on, none
        made = (skipped == 0.0) & (norm < float("inf"))
        tl.store(SKIPPED, skipped + tl.where(made, 0.0, 1.0))
    if MAX_NORM > 0:
        factor *= tl.minimum(MAX_NORM / (norm + 1e-6), 1.0)
    tl.store(FACTORS, factor)
    tl.store(FACTORS + 1, tl.where(made, 1.0, 0.0))

    step += tl.where(made, 1.0, 0.0)
    tl.store(STEPS + number, step, mask=number < n)
    lr, decay = tl.load(LR), tl.load(DECAYS + number, mask=number < n, other=0.0)
    step = step.to(tl.float64)  # 1 - beta^step has few digits in float32
    bias1 = 1.0 - tl.exp2(step * tl.log2(tl.full([N], BETA1, tl.float64)))
    bias2 = 1.0 - tl.exp2(step * tl.log2(tl.full([N], BETA2, tl.float64)))
    tl.store(RATES + number, 1.0 - lr * decay, mask=number < n)
    tl.store(RATES + n + number, (lr / bias1).to(tl.float32), mask=number < n)
    tl.store(RATES + 2 * n + number, (1.0 / tl.sqrt(bias2)).to(tl.float32), mask=number < n)


@triton.jit
def adamw_update_triton(
    WEIGHTS, GRADIENTS, STRIDES, MEANS, VARIANCES, COPIES, SIZES, OWNERS, FIRSTS, FACTORS, RATES, n,
    BETA1: tl.constexpr, BETA2: tl.constexpr, EPSILON: tl.constexpr, KIND: tl.constexpr,
    COUNT: tl.constexpr, PART: tl.constexpr, BLOCK: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    # the last block first: its gradients were read last for the norm, and may lie in the cache
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    factor = tl.load(FACTORS)
    if tl.load(FACTORS + 1) != 0.0:
        number = tl.load(OWNERS + block)
        i = tl.multiple_of(tl.load(FIRSTS + block), BLOCK) + tl.arange(0, BLOCK)
        inside = i < tl.multiple_of(tl.load(SIZES + number), ALIGNED)
        P = float32_at(WEIGHTS, number, ALIGNED) + i
        M = float32_at(MEANS, number, ALIGNED) + i
        V = float32_at(VARIANCES, number, ALIGNED) + i
        g = gradient_of(GRADIENTS, STRIDES, number, i, inside, COUNT, PART, ALIGNED) * factor
        p = tl.load(P, mask=inside, other=0.0) * tl.load(RATES + number)
        m = tl.load(M, mask=inside, other=0.0)
        v = tl.load(V, mask=inside, other=0.0)
        m += (g - m) * (1.0 - BETA1)
        v = v * BETA2 + g * g * (1.0 - BETA2)
        root = tl.sqrt(v) * tl.load(RATES + 2 * n + number) + EPSILON
        p -= tl.load(RATES + n + number) * m / root
        tl.store(P, p, mask=inside)
        tl.store(M, m, mask=inside)
        tl.store(V, v, mask=inside)
        if KIND is not None:
            copy = tl.load(COPIES + number)
            if copy != 0:
                COPY = tl.multiple_of(copy.to(tl.pointer_type(KIND)), 2 * ALIGNED)
                tl.store(COPY + i, p.to(KIND), mask=inside)


def blocks_of(sizes: Sequence[int], device: torch.device) -> Blocks:
    """Of tensors with so many elements."""
    counts = torch.tensor([triton.cdiv(size, BLOCK) for size in sizes])
    owners = torch.repeat_interleave(torch.arange(len(sizes), dtype=torch.int32), counts)
    starts = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    firsts = (torch.arange(len(owners)) - starts) * BLOCK
    aligned = all(size % ALIGNED == 0 for size in sizes)
    return Blocks(torch.tensor(sizes).to(device), owners.to(device), firsts.to(device), aligned)


def squares_of(
    gradients: Tensor, aligned: bool, blocks: Blocks, parts: Parts | None = None
) -> Tensor:
    """The sum of the squares in each block, (blocks,).

    gradients (n,) int64 are the addresses of n vectors, or of the first of `parts` of each,
    `blocks` theirs; `aligned`: all begin at 16 bytes.
    """
    count, multiple = len(blocks.owners), ALIGNED if aligned and blocks.aligned else 1
    squares = torch.empty(count, device=gradients.device)
    adamw_squares_triton[(count,)](
        gradients, parts and parts.strides, blocks.sizes, blocks.owners, blocks.firsts, squares,
        COUNT=parts.count if parts else 1, PART=KINDS[parts.dtype if parts else torch.float32],
        BLOCK=BLOCK, ALIGNED=multiple, num_warps=WARPS,
    )  # fmt: skip
    return squares


def clip(
    squares: Tensor, others: Tensor | None, steps: Tensor, decays: Tensor, lr: Tensor,
    grad_scale: Tensor | None, found_inf: Tensor | None, skipped: Tensor, rule: Rule,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """What gradients are multiplied by, and whether there is an update: 1 or 0, (2,).

    Behind it the rates of the n parameters that AdamW has, (3, n); their steps, (n,), are counted
    on. The square of the norm is the sum of all squares, those of `others` added. decays are (n,),
    the others scalars on the device. With `found_inf` the update is made where it is 0; without
    where the norm is finite and `skipped`, the updates that were not made, is 0.
    """
    n, device = len(steps), steps.device
    factors, rates = torch.empty(2, device=device), torch.empty((3, n), device=device)
    adamw_rates_triton[(1,)](
        squares, others, steps, decays, lr, grad_scale, found_inf, skipped, factors, rates,
        len(squares), n, BETA1=rule.beta1, BETA2=rule.beta2, MAX_NORM=rule.max_norm, BLOCK=SUM,
        N=triton.next_power_of_2(n), num_warps=SUM_WARPS,
    )  # fmt: skip
    return factors, rates


def update(
    addresses: Tensor, gradients: Tensor, aligned: bool, blocks: Blocks, factors: Tensor,
    rates: Tensor, rule: Rule, parts: Parts | None = None,
) -> None:  # fmt: skip
    """Updates n parameters in place, `blocks` are theirs.

    addresses (4, n) int64 are those of weights, their two moments and their copies, 0 where a
    weight has none, gradients (n,) those of gradients, or of the first of `parts` of each; all but
    copies and parts are float32.
    """
    weights, means, variances, copies = addresses
    count, multiple = len(blocks.owners), ALIGNED if aligned and blocks.aligned else 1
    adamw_update_triton[(count,)](
        weights, gradients, parts and parts.strides, means, variances, copies, blocks.sizes,
        blocks.owners, blocks.firsts, factors, rates, rates.size(1),
        COUNT=parts.count if parts else 1, PART=KINDS[parts.dtype if parts else torch.float32],
        BETA1=rule.beta1, BETA2=rule.beta2, EPSILON=rule.epsilon,
        KIND=None if rule.copies is None else KINDS[rule.copies], BLOCK=BLOCK, ALIGNED=multiple,
        num_warps=WARPS,
    )  # fmt: skip
