"""The kernel of kernels.cross_entropy in Triton, and its launch.

A row has the logits of a token. Exponents have base 2, as the hardware's. With TRITON_INTERPRET=1
in the environment it runs on a CPU, slowly: for tests.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 16384  # logits of a row at a time
WARPS = 16  # of a whole block; narrower rows have fewer
NARROW = 256  # logits at most of rows of which a program has several
NARROW_LOGITS, NARROW_WARPS = 2048, 4  # of such a program


@triton.jit
def narrow_cross_entropy_triton(
    LOGITS, TARGETS, LOSSES, rows, columns, stride, to_base_2, ignored,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """As cross_entropy_triton, ROWS rows at once: they are read once, and stay in registers."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    at = LOGITS + row[:, None].to(tl.int64) * stride + column[None, :]
    inside = (row < rows)[:, None] & (column < stride)[None, :]
    target = tl.load(TARGETS + row, mask=row < rows, other=ignored)
    counts = target != ignored
    x = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    x = tl.where(column[None, :] < columns, x, -float("inf"))
    is_target = column[None, :] == target[:, None]
    at_target = tl.sum(tl.where(is_target, x, 0.0), 1)
    most = tl.max(x, 1) * to_base_2
    lse = most + tl.log2(tl.sum(tl.exp2(x * to_base_2 - most[:, None]), 1))
    tl.store(LOSSES + row, tl.where(counts, lse / to_base_2 - at_target, 0.0), mask=row < rows)
    lse = tl.where(counts, lse, float("inf"))  # of a token that does not count no gradient is left
    softmax = tl.exp2(x * to_base_2 - lse[:, None])
    gradient = tl.where(is_target & counts[:, None], softmax - 1, softmax)
    tl.store(at, gradient.to(LOGITS.dtype.element_ty), mask=inside)


@triton.jit
def cross_entropy_triton(
    LOGITS, TARGETS, LOSSES, columns, stride, to_base_2, ignored, BLOCK: tl.constexpr
):
    """A row of LOGITS becomes its softmax, less 1 at the target; zeros behind `columns`.

    The row is read twice, but the second time out of the cache.
    """
    row = tl.program_id(0)
    start = LOGITS + row.to(tl.int64) * stride
    target = tl.load(TARGETS + row)
    counts = target != ignored
    at_target = tl.load(start + target, mask=counts, other=0.0).to(tl.float32)
    most = -float("inf")
    total = 0.0
    for first in range(0, columns, BLOCK):
        column = first + tl.arange(0, BLOCK)
        x = tl.load(start + column, mask=column < columns, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(most, tl.max(x, 0) * to_base_2)
        total = total * tl.exp2(most - higher) + tl.sum(tl.exp2(x * to_base_2 - higher), 0)
        most = higher
    lse = most + tl.log2(total)
    tl.store(LOSSES + row, tl.where(counts, lse / to_base_2 - at_target, 0.0))
    lse = tl.where(counts, lse, float("inf"))  # of a token that does not count no gradient is left
    tl.debug_barrier()  # every warp has read the target's logit
    for first in range(0, stride, BLOCK):
        column = first + tl.arange(0, BLOCK)
        x = tl.load(start + column, mask=column < columns, other=-float("inf")).to(tl.float32)
        softmax = tl.exp2(x * to_base_2 - lse)
        tl.store(start + column, softmax.to(LOGITS.dtype.element_ty), mask=column < stride)
    tl.debug_barrier()  # what lies at the target is written once more
    softmax = tl.exp2(at_target * to_base_2 - lse)
    tl.store(start + target, (softmax - 1).to(LOGITS.dtype.element_ty), mask=counts)


def launch(logits: Tensor, targets: Tensor, columns: int, ignored: int) -> Tensor:
    """logits (N, at least `columns`) become their gradients; returns the losses, (N)."""
    assert logits.is_contiguous()
    rows, stride = logits.shape
    losses = torch.empty(rows, dtype=torch.float32, device=logits.device)
    if stride <= NARROW:
        block = triton.next_power_of_2(stride)
        held = max(1, NARROW_LOGITS // block)
        narrow_cross_entropy_triton[(triton.cdiv(rows, held),)](
            logits, targets, losses, rows, columns, stride, math.log2(math.e), ignored,
            ROWS=held, BLOCK=block, num_warps=NARROW_WARPS,
        )  # fmt: skip
        return losses
    block = min(triton.next_power_of_2(stride), BLOCK)
    cross_entropy_triton[(rows,)](
        logits, targets, losses, columns, stride, math.log2(math.e), ignored, BLOCK=block,
        num_warps=max(1, WARPS * block // BLOCK),
    )  # fmt: skip
    return losses
