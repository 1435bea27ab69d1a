"""The kernel of kernels.cross_entropy in Gluon, Triton's lower language: a row in shared memory.

It is for wide rows, of which a multiprocessor holds two, and reads each once. All loads of a row
are started at once, and while one program computes or writes, the other one's row arrives.
"""

import math

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from kernels.names_gluon import block_barrier, pointer_load

PIECE, WARPS = 4096, 16  # logits of a row that are processed at a time
SHARED = 112 * 1024  # most bytes of a row, so that two fit
NARROWEST = 32768  # least logits of a row; measured with 50,304


def fits(logits: Tensor) -> bool:
    """Whether `launch` takes these logits (N, V)."""
    V = logits.size(1)
    return (
        logits.dtype in (torch.bfloat16, torch.float16)
        and logits.data_ptr() % 16 == 0
        and V % 16 == 0
        and V >= NARROWEST
        and 2 * PIECE * triton.cdiv(V, PIECE) <= SHARED
    )


@gluon.jit
def piece_of(PIECES, i: gl.constexpr, column, columns, LAYOUT: gl.constexpr, WHOLE: gl.constexpr):
    """Logits of piece i in shared memory, with -inf after `columns`."""
    x = PIECES.index(i).load(LAYOUT).to(gl.float32)
    if i >= WHOLE:
        x = gl.where(column < columns, x, -float("inf"))
    return x


@gluon.jit
def cross_entropy_triton_gluon(
    LOGITS, TARGETS, LOSSES, columns, stride, to_base_2, ignored,
    PIECE: gl.constexpr, COUNT: gl.constexpr, WHOLE: gl.constexpr,
):  # fmt: skip
    """Compute the same as kernels.cross_entropy.in_triton.

    A row has COUNT pieces, of which the first WHOLE lie entirely within `columns`.
    """
    W: gl.constexpr = gl.num_warps()
    KIND: gl.constexpr = LOGITS.dtype.element_ty
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 8], [32, 1], [W, 1], [1, 0])
    FLAT: gl.constexpr = gl.SwizzledSharedLayout(8, 1, 1, [1, 0])
    PIECES = gl.allocate_shared_memory(KIND, [COUNT, PIECE // 8, 8], FLAT)
    eight = gl.arange(0, PIECE // 8, gl.SliceLayout(1, LAYOUT))  # neighbours, a thread's own
    column = eight[:, None] * 8 + gl.arange(0, 8, gl.SliceLayout(0, LAYOUT))[None, :]
    row = gl.program_id(0)
    start = LOGITS + row.to(gl.int64) * stride
    for i in gl.static_range(COUNT):
        at = i * PIECE + column
        pointer_load(PIECES.index(i), start + at, mask=at < stride)
        async_copy.commit_group()
    target = gl.load(TARGETS + row)
    counts = target != ignored
    at_target = gl.load(start + target, mask=counts, other=0.0).to(gl.float32)
    most = gl.full([PIECE // 8], -3e38, gl.float32, gl.SliceLayout(1, LAYOUT))  # finite
    total = gl.full([PIECE // 8], 0.0, gl.float32, gl.SliceLayout(1, LAYOUT))
    for i in gl.static_range(COUNT):
        async_copy.wait_group(COUNT - 1 - i)
        x = piece_of(PIECES, i, i * PIECE + column, columns, LAYOUT, WHOLE)
        higher = gl.maximum(most, gl.max(x, 1) * to_base_2)
        exponentials = gl.exp2(x * to_base_2 - higher[:, None])
        total = total * gl.exp2(most - higher) + gl.sum(exponentials, 1)
        most = higher
    highest = gl.max(most, 0)
    lse = highest + gl.log2(gl.sum(total * gl.exp2(most - highest), 0))
    gl.store(LOSSES + row, gl.where(counts, lse / to_base_2 - at_target, 0.0))
    lse = gl.where(counts, lse, float("inf"))  # so that an ignored token's gradient is 0
    block_barrier()  # every warp has read the target's logit
    for i in gl.static_range(COUNT):
        at = i * PIECE + column
        softmax = gl.exp2(piece_of(PIECES, i, at, columns, LAYOUT, WHOLE) * to_base_2 - lse)
        gl.store(start + at, softmax.to(KIND), mask=at < stride)
    block_barrier()  # the target's gradient is written once more
    softmax = gl.exp2(at_target * to_base_2 - lse)
    gl.store(start + target, (softmax - 1).to(KIND), mask=counts)


def launch(logits: Tensor, targets: Tensor, losses: Tensor, columns: int, ignored: int) -> None:
    rows, stride = logits.shape
    cross_entropy_triton_gluon[(rows,)](
        logits, targets, losses, columns, stride, math.log2(math.e), ignored, PIECE=PIECE,
        COUNT=triton.cdiv(stride, PIECE), WHOLE=columns // PIECE, num_warps=WARPS,
    )  # fmt: skip
