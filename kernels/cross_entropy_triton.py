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
    block = min(triton.next_power_of_2(stride), BLOCK)
    cross_entropy_triton[(rows,)](
        logits, targets, losses, columns, stride, math.log2(math.e), ignored, BLOCK=block,
        num_warps=max(1, WARPS * block // BLOCK),
    )  # fmt: skip
    return losses
