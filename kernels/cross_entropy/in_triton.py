"""The kernel of kernels.cross_entropy in Triton, and its launch.

A row has the logits of a token. Exponents have base 2, as the hardware's. With TRITON_INTERPRET=1
in the environment the kernel runs on a CPU, slowly: for tests.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.gluon import has_gluon

# Rows of WIDE logits or more are read by many warps: then few rows are in work at once, and the
# second read of each hits the cache.
WIDE = 16384
WIDE_BLOCK, WIDE_WARPS = 8192, 32
BLOCK, WARPS = 2048, 4  # for other rows; those narrower than BLOCK get fewer warps
NEIGHBOURS = 8  # logits that a thread loads at once, 16 bytes, and sums up by itself
NARROW = 256  # most logits of a row for which a program takes several rows
NARROW_LOGITS, NARROW_WARPS = 2048, 4  # for such a program


@triton.jit
def narrow_cross_entropy_triton(
    LOGITS, TARGETS, LOSSES, rows, columns, stride, to_base_2, ignored,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the same as cross_entropy_triton for ROWS rows, read once into registers."""
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
    lse = tl.where(counts, lse, float("inf"))  # so that an ignored token's gradient is 0
    softmax = tl.exp2(x * to_base_2 - lse[:, None])
    gradient = tl.where(is_target & counts[:, None], softmax - 1, softmax)
    tl.store(at, gradient.to(LOGITS.dtype.element_ty), mask=inside)


@triton.jit
def last_logits(start, column, columns, stride):
    """Load the last logits of a row, with -inf after `columns`.

    Loads are masked by the stride: masked by an odd number of columns, each would be of 2 bytes.
    """
    x = tl.load(start + column, mask=column < stride, other=-float("inf"))
    return tl.where(column < columns, x, -float("inf"))


@triton.jit
def add_exponentials(x, most, total, to_base_2, NEIGHBOURS: tl.constexpr):
    """Add a block of logits to the maxima and sums, of which each thread has its own.

    Nothing is exchanged between threads.
    """
    x = tl.reshape(x.to(tl.float32), (x.shape[0] // NEIGHBOURS, NEIGHBOURS))
    higher = tl.maximum(most, tl.max(x, 1) * to_base_2)
    exponentials = tl.exp2(x * to_base_2 - higher[:, None])
    return higher, total * tl.exp2(most - higher) + tl.sum(exponentials, 1)


@triton.jit
def cross_entropy_triton(
    LOGITS, TARGETS, LOSSES, columns, stride, to_base_2, ignored,
    BLOCK: tl.constexpr, NEIGHBOURS: tl.constexpr,
):  # fmt: skip
    """Replace a row of LOGITS by its softmax, less 1 at the target, with zeros after `columns`.

    The row is read twice, but the second time from the cache. Only the part after the last whole
    block is masked.
    """
    row = tl.program_id(0)
    start = LOGITS + row.to(tl.int64) * stride
    target = tl.load(TARGETS + row)
    counts = target != ignored
    at_target = tl.load(start + target, mask=counts, other=0.0).to(tl.float32)
    most = tl.full([BLOCK // NEIGHBOURS], -3e38, tl.float32)  # finite: -inf - -inf is no number
    total = tl.zeros([BLOCK // NEIGHBOURS], tl.float32)
    lane = tl.arange(0, BLOCK)
    whole = columns // BLOCK * BLOCK
    for first in range(0, whole, BLOCK):
        x = tl.load(start + first + lane)
        most, total = add_exponentials(x, most, total, to_base_2, NEIGHBOURS)
    if whole < columns:
        x = last_logits(start, whole + lane, columns, stride)
        most, total = add_exponentials(x, most, total, to_base_2, NEIGHBOURS)
    highest = tl.max(most, 0)
    lse = highest + tl.log2(tl.sum(total * tl.exp2(most - highest), 0))
    tl.store(LOSSES + row, tl.where(counts, lse / to_base_2 - at_target, 0.0))
    lse = tl.where(counts, lse, float("inf"))  # so that an ignored token's gradient is 0
    tl.debug_barrier()  # every warp has read the target's logit
    for first in range(0, whole, BLOCK):
        softmax = tl.exp2(tl.load(start + first + lane).to(tl.float32) * to_base_2 - lse)
        tl.store(start + first + lane, softmax.to(LOGITS.dtype.element_ty))
    for first in range(whole, stride, BLOCK):
        x = last_logits(start, first + lane, columns, stride).to(tl.float32)
        softmax = tl.exp2(x * to_base_2 - lse).to(LOGITS.dtype.element_ty)
        tl.store(start + first + lane, softmax, mask=first + lane < stride)
    tl.debug_barrier()  # the target's gradient is written once more
    softmax = tl.exp2(at_target * to_base_2 - lse)
    tl.store(start + target, (softmax - 1).to(LOGITS.dtype.element_ty), mask=counts)


def launch(logits: Tensor, targets: Tensor, columns: int, ignored: int) -> Tensor:
    """Losses (N); the logits (N, at least `columns`) are replaced by their gradients."""
    assert logits.is_contiguous()
    rows, stride = logits.shape
    losses = torch.empty(rows, dtype=torch.float32, device=logits.device)
    if has_gluon(logits.device):
        from kernels.cross_entropy import in_gluon

        if in_gluon.fits(logits):
            in_gluon.launch(logits, targets, losses, columns, ignored)
            return losses
    if stride <= NARROW:
        block = triton.next_power_of_2(stride)
        rows_at_once = max(1, NARROW_LOGITS // block)
        narrow_cross_entropy_triton[(triton.cdiv(rows, rows_at_once),)](
            logits, targets, losses, rows, columns, stride, math.log2(math.e), ignored,
            ROWS=rows_at_once, BLOCK=block, num_warps=NARROW_WARPS,
        )  # fmt: skip
        return losses
    most, warps = (WIDE_BLOCK, WIDE_WARPS) if stride >= WIDE else (BLOCK, WARPS)
    block = min(triton.next_power_of_2(stride), most)
    warps = max(1, warps * block // most)
    cross_entropy_triton[(rows,)](
        logits, targets, losses, columns, stride, math.log2(math.e), ignored, BLOCK=block,
        NEIGHBOURS=min(NEIGHBOURS, max(1, block // (32 * warps))), num_warps=warps,
    )  # fmt: skip
    return losses
