"""Momentum, norms and updates of Muon's matrices in Triton, around products that cuBLAS computes.

Weights, gradients, momentum and copies stay in place, and a table has their addresses. For the
products the matrices of one shape are written to one stack, (N, C, D) bfloat16 with C <= D: those
with more rows than columns are transposed. A program has a square of one matrix. With
TRITON_INTERPRET=1 in the environment the kernels run on a CPU.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.optimizers.adamw_triton import ALIGNED, KINDS, float32_at

SIDE, WARPS = 64, 8  # side of a square, warps of its program
SCALED, SCALED_WARPS, SUM = 8192, 8, 256  # numbers of a program, and sums that it reads at a time


@dataclass(frozen=True)
class Stack:
    """N matrices whose shape is (C, D) or, transposed, (D, C).

    `table` (6, N) int64 on the device has the addresses of weights, momentum and copies (0: none),
    the number of the parameter that the matrix is part of, the byte at which it begins in that
    parameter's gradient, and 1 if it is transposed.
    """

    table: Tensor
    C: int
    D: int

    def __len__(self) -> int:
        return self.table.size(1)

    def multiple(self, aligned: bool) -> int:
        """Number of elements that a thread may read at once."""
        return ALIGNED if aligned and self.C % ALIGNED == self.D % ALIGNED == 0 else 1


@triton.jit
def place(TABLE, n, number, square, C, D, SIDE: tl.constexpr, ALIGNED: tl.constexpr):
    """Square of matrix `number` as it lies in memory.

    Returns whether the matrix is transposed, the square's rows and columns, which of its numbers
    are inside of the matrix, and the offset of each.
    """
    turned = tl.load(TABLE + 5 * n + number) != 0
    across = tl.cdiv(D, SIDE)
    upper, left = (square // across) * SIDE, (square % across) * SIDE  # in the stack
    row = tl.where(turned, left, upper) + tl.arange(0, SIDE)
    column = tl.where(turned, upper, left) + tl.arange(0, SIDE)
    width = tl.multiple_of(tl.where(turned, C, D), ALIGNED)
    inside = (row < tl.where(turned, D, C))[:, None] & (column < width)[None, :]
    return turned, row, column, inside, row[:, None] * width + column[None, :]


@triton.jit
def muon_momentum_triton(
    GRADIENTS, TABLE, n, X, SQUARES, FACTORS, C, D, MOMENTUM: tl.constexpr, SIDE: tl.constexpr,
    ALIGNED: tl.constexpr,
):  # fmt: skip
    """Update the momentum; store the input of the products in the stack X, and sums of its squares.

    SQUARES has a sum for each program's square.
    """
    square, number = tl.program_id(0), tl.program_id(1)
    factor = tl.load(FACTORS)
    if tl.load(FACTORS + 1) != 0.0:
        turned, row, column, inside, i = place(TABLE, n, number, square, C, D, SIDE, ALIGNED)
        gradient = tl.load(GRADIENTS + tl.load(TABLE + 3 * n + number))
        gradient += tl.load(TABLE + 4 * n + number)
        G = tl.multiple_of(gradient.to(tl.pointer_type(tl.float32)), 4 * ALIGNED) + i
        M = float32_at(TABLE + n, number, ALIGNED) + i
        g = tl.load(G, mask=inside, other=0.0) * factor
        m = tl.load(M, mask=inside, other=0.0)
        m += (g - m) * (1.0 - MOMENTUM)
        tl.store(M, m, mask=inside)
        x = m + (g - m) * (1.0 - MOMENTUM)  # Nesterov momentum
        tl.store(SQUARES + number * tl.num_programs(0) + square, tl.sum(tl.sum(x * x, 1), 0))
        X += number.to(tl.int64) * C * D
        if turned:
            other = (column < C)[:, None] & (row < D)[None, :]
            tl.store(
                X + column[:, None] * D + row[None, :], tl.trans(x).to(tl.bfloat16), mask=other
            )
        else:
            tl.store(X + i, x.to(tl.bfloat16), mask=inside)


@triton.jit
def muon_scale_triton(X, SQUARES, squares, size, BLOCK: tl.constexpr, SUM: tl.constexpr):
    """Divide each matrix of the stack by its norm."""
    number = tl.program_id(1)
    sums = tl.zeros([SUM], tl.float32)
    for first in range(0, squares, SUM):
        square = first + tl.arange(0, SUM)
        sums += tl.load(SQUARES + number * squares + square, mask=square < squares, other=0.0)
    norm = tl.sqrt(tl.sum(sums, 0))
    X += number.to(tl.int64) * size
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < size, other=0.0).to(tl.float32)
    tl.store(X + i, (x / (norm + 1e-7)).to(tl.bfloat16), mask=i < size)


@triton.jit
def muon_update_triton(
    TABLE, n, X, FACTORS, LR, C, D, SCALE: tl.constexpr, DECAY: tl.constexpr, KIND: tl.constexpr,
    SIDE: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """Update weights and their copies by the stack X, the result of the products."""
    square, number = tl.program_id(0), tl.program_id(1)
    if tl.load(FACTORS + 1) != 0.0:
        turned, row, column, inside, i = place(TABLE, n, number, square, C, D, SIDE, ALIGNED)
        X += number.to(tl.int64) * C * D
        if turned:
            other = (column < C)[:, None] & (row < D)[None, :]
            x = tl.trans(tl.load(X + column[:, None] * D + row[None, :], mask=other, other=0.0))
        else:
            x = tl.load(X + i, mask=inside, other=0.0)
        P = float32_at(TABLE, number, ALIGNED) + i
        lr = tl.load(LR)
        p = tl.load(P, mask=inside, other=0.0) * (1.0 - lr * DECAY)
        p -= lr * SCALE * x.to(tl.float32)
        tl.store(P, p, mask=inside)
        if KIND is not None:
            copy = tl.load(TABLE + 2 * n + number)
            if copy != 0:
                COPY = tl.multiple_of(copy.to(tl.pointer_type(KIND)), 2 * ALIGNED)
                tl.store(COPY + i, p.to(KIND), mask=inside)


def normed_momentum(
    stack: Stack, gradients: Tensor, aligned: bool, factors: Tensor, momentum: float
) -> Tensor:
    """Add gradients to the momentum; returns Nesterov's, each matrix of norm 1, (N, C, D) bfloat16.

    gradients (n,) int64 are addresses; `aligned`: all are multiples of 16. factors (2,) are the
    factor of gradients and whether there is an update: if not, nothing is changed, and the result
    has no meaning.
    """
    n, size = len(stack), stack.C * stack.D
    squares = triton.cdiv(stack.C, SIDE) * triton.cdiv(stack.D, SIDE)
    x = torch.empty((n, stack.C, stack.D), dtype=torch.bfloat16, device=factors.device)
    sums = torch.empty((n, squares), device=factors.device)
    muon_momentum_triton[(squares, n)](
        gradients, stack.table, n, x, sums, factors, stack.C, stack.D, MOMENTUM=momentum, SIDE=SIDE,
        ALIGNED=stack.multiple(aligned), num_warps=WARPS,
    )  # fmt: skip
    muon_scale_triton[(triton.cdiv(size, SCALED), n)](
        x, sums, squares, size, BLOCK=SCALED, SUM=SUM, num_warps=SCALED_WARPS
    )
    return x


def update(
    stack: Stack, x: Tensor, factors: Tensor, lr: Tensor, scale: float, decay: float,
    copies: torch.dtype | None,
) -> None:  # fmt: skip
    """Decay weights and subtract lr * scale * x, (N, C, D) bfloat16; write their copies, if any."""
    squares = triton.cdiv(stack.C, SIDE) * triton.cdiv(stack.D, SIDE)
    muon_update_triton[(squares, len(stack))](
        stack.table, len(stack), x, factors, lr, stack.C, stack.D, SCALE=scale, DECAY=decay,
        KIND=None if copies is None else KINDS[copies], SIDE=SIDE, ALIGNED=stack.multiple(True),
        num_warps=WARPS,
    )  # fmt: skip
