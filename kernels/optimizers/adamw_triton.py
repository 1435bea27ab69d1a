"""Clipping, AdamW and the copies of weights in Triton, over all parameters at once: three launches.

Each parameter, its gradient and its moments are separate tensors. One table has their addresses,
another cuts them into blocks, and each program has a block. Names are AdamW's: p is a weight, g its
gradient, m and v its moments. With TRITON_INTERPRET=1 in the environment the kernels run on a CPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, WARPS = 2048, 4  # elements of a program
SUM, SUM_WARPS = 1024, 4  # programs' sums that are read at a time
ALIGNED = 4  # elements that a thread reads at once if all sizes are multiples of it

KINDS = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


@dataclass(frozen=True)
class Blocks:
    """Table that cuts n tensors into blocks; on the device."""

    sizes: Tensor  # (n,) int64, number of elements of each tensor
    owners: Tensor  # (blocks,) int32, number of the block's tensor
    firsts: Tensor  # (blocks,) int64, number of the block's first element in its tensor
    aligned: bool  # whether all sizes are multiples of ALIGNED


@dataclass(frozen=True)
class Parts:
    """Layout of n gradients in parts from several ranks; each gradient is the mean of its parts."""

    count: int  # number of parts of each gradient
    strides: Tensor  # (n,) int64, elements from one part to the next; on the device
    dtype: torch.dtype  # dtype of the parts, which are added in float32


@dataclass(frozen=True)
class Rule:
    """Settings of AdamW and of clipping."""

    beta1: float
    beta2: float
    epsilon: float
    max_norm: float  # 0: no clipping
    copies: torch.dtype | None  # dtype of the weights' copies, or None without copies


@triton.jit
def float32_at(TABLE, number, ALIGNED: tl.constexpr):
    """Pointer to tensor `number` of TABLE, which begins at a multiple of ALIGNED elements."""
    return tl.multiple_of(tl.load(TABLE + number).to(tl.pointer_type(tl.float32)), 4 * ALIGNED)


@triton.jit
def gradient_of(
    GRADIENTS, STRIDES, number, i, inside,
    COUNT: tl.constexpr, PART: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """Elements i of a gradient: the mean of COUNT parts of type PART, added in their order."""
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
    """Store the sum of the squares of this program's block in SQUARES (blocks,)."""
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
    """Compute the gradients' norm and the factors of this update, in a single program.

    STEPS (n,) are incremented. FACTORS (2,) become the factor of gradients, and 1, or 0 for no
    update. RATES (3, n) become the factors of a weight, of m, and of the root of v.
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
    if FOUND_INF is not None:  # the gradient scaler's: updates after this one may be made again
        made = tl.load(FOUND_INF) == 0.0
    else:  # from the first norm that is not finite on, no update is made
        made = (skipped == 0.0) & (norm < float("inf"))
        tl.store(SKIPPED, skipped + tl.where(made, 0.0, 1.0))
    if MAX_NORM > 0:
        factor *= tl.minimum(MAX_NORM / (norm + 1e-6), 1.0)
    tl.store(FACTORS, factor)
    tl.store(FACTORS + 1, tl.where(made, 1.0, 0.0))

    step += tl.where(made, 1.0, 0.0)
    tl.store(STEPS + number, step, mask=number < n)
    lr, decay = tl.load(LR), tl.load(DECAYS + number, mask=number < n, other=0.0)
    step = step.to(tl.float64)  # in float32 1 - beta^step would have few digits
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
    # the last block first: its gradients were read last for the norm, and may still be in the cache
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
    """Cut tensors with these numbers of elements into blocks."""
    counts = torch.tensor([triton.cdiv(size, BLOCK) for size in sizes])
    owners = torch.repeat_interleave(torch.arange(len(sizes), dtype=torch.int32), counts)
    starts = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    firsts = (torch.arange(len(owners)) - starts) * BLOCK
    aligned = all(size % ALIGNED == 0 for size in sizes)
    return Blocks(torch.tensor(sizes).to(device), owners.to(device), firsts.to(device), aligned)


def squares_of(
    gradients: Tensor, aligned: bool, blocks: Blocks, parts: Parts | None = None
) -> Tensor:
    """Sum of the squares in each block, (blocks,).

    gradients (n,) int64 are the addresses of n vectors, or of the first of the `parts` of each, and
    `blocks` are those of these vectors; `aligned`: all begin at multiples of 16 bytes.
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
    """Factors (2,) of an update, that of gradients and 1, or 0 for no update; and its rates.

    The rates (3, n) of the n parameters that AdamW has are as in adamw_rates_triton. steps (n,) are
    incremented. The square of the norm is the sum of all squares plus `others`. decays are (n,),
    all other tensors are scalars on the device. With `found_inf` the update is made if that is 0;
    without it, if the norm is finite and `skipped`, the number of updates not made so far, is 0.
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
    """Update n parameters, which `blocks` cuts into blocks, in place.

    addresses (4, n) int64 are those of weights, their two moments and their copies, 0 for a weight
    without a copy. gradients (n,) are the addresses of gradients, or of the first of the `parts` of
    each. All tensors but copies and parts are float32.
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
