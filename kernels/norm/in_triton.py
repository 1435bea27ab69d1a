"""The kernels of kernels.norm in Triton, and their launches.

x is the residual stream, y is added to it after dropout, h is the norm of their sum; d before a
name is its gradient. Rows are tokens, with C columns each. With TRITON_INTERPRET=1 in the
environment the kernels run on a CPU, slowly: for tests.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.dropout.in_triton import dropped, threshold

# rows of a program at a time; with one warp the sums over a row need no barrier
FORWARD_ROWS, FORWARD_WARPS = 1, 1
BACKWARD_ROWS, BACKWARD_WARPS, BACKWARD_STAGES = 2, 2, 3  # stages: blocks that are loaded ahead
BACKWARD_PROGRAMS = 528  # each sums the gradients of the weights over its own rows
SUM_ROWS, SUM_WIDTH, SUM_WARPS = 1024, 8, 8  # these sums that are read at a time
EPSILON = 1e-5


@triton.jit
def store_with_norm(
    x, X, H, MEAN, RSTD, WEIGHT, BIAS, row, column, rows, C, EPS: tl.constexpr
):  # fmt: skip
    """Store rows x of the residual stream, their norm, and the means and 1 / deviations.

    BIAS may be None.
    """
    inside = (row[:, None] < rows) & (column[None, :] < C)
    at = row[:, None].to(tl.int64) * C + column[None, :]
    tl.store(X + at, x.to(X.dtype.element_ty), mask=inside)
    mean = tl.sum(x, 1) / C
    centered = tl.where(inside, x - mean[:, None], 0.0)
    rstd = tl.rsqrt(tl.sum(centered * centered, 1) / C + EPS)
    weight = tl.load(WEIGHT + column, mask=column < C, other=0.0).to(tl.float32)
    h = centered * rstd[:, None] * weight[None, :]
    if BIAS is not None:
        h += tl.load(BIAS + column, mask=column < C, other=0.0).to(tl.float32)[None, :]
    tl.store(H + at, h.to(H.dtype.element_ty), mask=inside)
    tl.store(MEAN + row, mean, mask=row < rows)
    tl.store(RSTD + row, rstd, mask=row < rows)


@triton.jit
def forward_layer_norm_of_sum_triton(
    X, Y, WEIGHT, BIAS, SEED, SUM, H, MEAN, RSTD, rows, C,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, THRESHOLD: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """Compute SUM = X + dropout(Y) and its norm for ROWS rows; C columns in a block of WIDTH."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    inside = (row[:, None] < rows) & (column[None, :] < C)
    at = row[:, None].to(tl.int64) * C + column[None, :]
    x = tl.load(X + at, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(Y + at, mask=inside, other=0.0).to(tl.float32)
    x += dropped(y, SEED, row, column, THRESHOLD)
    x = x.to(SUM.dtype.element_ty).to(tl.float32)  # backward reads it so
    store_with_norm(x, SUM, H, MEAN, RSTD, WEIGHT, BIAS, row, column, rows, C, EPS)


@triton.jit
def backward_layer_norm_of_sum_triton(
    DSUM, DH, SUM, MEAN, RSTD, WEIGHT, SEED, DX, DY, DWEIGHT, DBIAS, rows, C,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, THRESHOLD: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_DSUM: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Compute the gradients for every n-th block of rows, of n programs.

    DWEIGHT and DBIAS are (programs, C), to be summed. DY is None if it equals DX. A program sums
    the weights' gradients over its blocks, and over rows only at the end, where warps have to wait
    for each other.
    """
    column = tl.arange(0, WIDTH)
    weight = tl.load(WEIGHT + column, mask=column < C, other=0.0).to(tl.float32)
    dweight = tl.zeros([ROWS, WIDTH], tl.float32)
    dbias = tl.zeros([ROWS, WIDTH], tl.float32)
    blocks = tl.cdiv(rows, ROWS)
    for block in tl.range(tl.program_id(0), blocks, tl.num_programs(0), num_stages=STAGES):
        row = block * ROWS + tl.arange(0, ROWS)
        inside = (row[:, None] < rows) & (column[None, :] < C)
        at = row[:, None].to(tl.int64) * C + column[None, :]
        x = tl.load(SUM + at, mask=inside, other=0.0).to(tl.float32)
        dh = tl.load(DH + at, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(MEAN + row, mask=row < rows, other=0.0)
        rstd = tl.load(RSTD + row, mask=row < rows, other=0.0)
        normed = tl.where(inside, (x - mean[:, None]) * rstd[:, None], 0.0)
        dweight += dh * normed
        if HAS_BIAS:
            dbias += dh
        scaled = dh * weight[None, :]
        along = tl.sum(scaled * normed, 1) / C
        whole = tl.sum(scaled, 1) / C
        dx = (scaled - whole[:, None] - normed * along[:, None]) * rstd[:, None]
        if HAS_DSUM:
            dx += tl.load(DSUM + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(DX + at, dx.to(DX.dtype.element_ty), mask=inside)
        if DY is not None:
            dy = dropped(dx, SEED, row, column, THRESHOLD)
            tl.store(DY + at, dy.to(DY.dtype.element_ty), mask=inside)
    at_column = tl.program_id(0) * C + column
    tl.store(DWEIGHT + at_column, tl.sum(dweight, 0), mask=column < C)
    if HAS_BIAS:
        tl.store(DBIAS + at_column, tl.sum(dbias, 0), mask=column < C)


@triton.jit
def gradients_of_layer_norm_weights_triton(
    PARTIAL, TOTAL, programs, C, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    sum_over_programs(PARTIAL, TOTAL, programs, C, ROWS, WIDTH)


@triton.jit
def sum_over_programs(PARTIAL, TOTAL, programs, C, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Sum PARTIAL (n, programs, C) over programs to TOTAL (n, C), in the same order each time."""
    column = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    first = tl.program_id(1).to(tl.int64) * programs
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    for start in range(0, programs, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row[:, None] < programs) & (column[None, :] < C)
        at = (first + row[:, None]) * C + column[None, :]
        total += tl.load(PARTIAL + at, mask=inside, other=0.0)
    tl.store(TOTAL + tl.program_id(1) * C + column, tl.sum(total, 0), mask=column < C)


def launch_forward(
    x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None, seed: Tensor, dropout: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sum and norm of x and y (..., C), in their dtypes, and means and 1 / deviations (rows)."""
    C = x.size(-1)
    rows = x.numel() // C
    x, y = x.contiguous(), y.contiguous()
    total, h = torch.empty_like(x), torch.empty_like(y)
    mean = torch.empty(rows, dtype=torch.float32, device=x.device)
    rstd = torch.empty_like(mean)
    forward_layer_norm_of_sum_triton[(triton.cdiv(rows, FORWARD_ROWS),)](
        x, y, weight, bias, seed, total, h, mean, rstd, rows, C, ROWS=FORWARD_ROWS,
        WIDTH=triton.next_power_of_2(C), THRESHOLD=threshold(dropout), EPS=EPSILON,
        num_warps=FORWARD_WARPS,
    )  # fmt: skip
    return total, h, mean, rstd


def launch_backward(
    dsum: Tensor | None, dh: Tensor, total: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor,
    has_bias: bool, seed: Tensor, dropout: float, separate: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of x, like `total`, of y, like `dh`, and of weight and bias, (1 or 2, C) float32.

    `dsum` is None if nobody but the norm read the sum. If `separate` is false, y's gradient equals
    x's and is returned empty.
    """
    C = total.size(-1)
    rows = total.numel() // C
    dsum, dh = None if dsum is None else dsum.contiguous(), dh.contiguous()
    dx, dy = torch.empty_like(total), dh.new_empty(dh.shape if separate else 0)
    programs = min(BACKWARD_PROGRAMS, triton.cdiv(rows, BACKWARD_ROWS))
    partial = torch.empty((1 + has_bias, programs, C), dtype=torch.float32, device=total.device)
    backward_layer_norm_of_sum_triton[(programs,)](
        dsum, dh, total, mean, rstd, weight, seed, dx, dy if separate else None,
        partial[0], partial[-1], rows, C,
        ROWS=BACKWARD_ROWS, WIDTH=triton.next_power_of_2(C), THRESHOLD=threshold(dropout),
        HAS_BIAS=has_bias, HAS_DSUM=dsum is not None, STAGES=BACKWARD_STAGES,
        num_warps=BACKWARD_WARPS,
    )  # fmt: skip
    dparameters = torch.empty((1 + has_bias, C), dtype=torch.float32, device=total.device)
    gradients_of_layer_norm_weights_triton[triton.cdiv(C, SUM_WIDTH), 1 + has_bias](
        partial, dparameters, programs, C, ROWS=SUM_ROWS, WIDTH=SUM_WIDTH, num_warps=SUM_WARPS
    )
    return dx, dy, dparameters
