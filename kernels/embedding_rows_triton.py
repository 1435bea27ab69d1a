"""The kernel of kernels.embedding_rows in Triton. With TRITON_INTERPRET=1 it runs on a CPU."""

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE, WARPS = 16384, 8  # elements that a program adds at once


@triton.jit
def add_embedding_rows_triton(
    TABLE, ROWS, IDS, ORDER, rows, C, factor, TOKENS: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    """The first of the rows of an id adds all of them, TOKENS at a time, in their order."""
    first = tl.program_id(0)
    mine = tl.load(IDS + first)
    before = tl.load(IDS + first - 1, mask=first > 0, other=-1)
    if mine != before:
        column = tl.arange(0, WIDTH)
        total = tl.zeros((WIDTH,), tl.float32)
        row = first + tl.arange(0, TOKENS)
        has = tl.load(IDS + row, mask=row < rows, other=-1) == mine
        while tl.max(has.to(tl.int32), 0) > 0:
            at = tl.load(ORDER + row, mask=has, other=0)
            inside = has[:, None] & (column[None, :] < C)
            block = tl.load(ROWS + at[:, None] * C + column[None, :], mask=inside, other=0.0)
            total += tl.sum(block.to(tl.float32), 0)
            row += TOKENS
            has = tl.load(IDS + row, mask=row < rows, other=-1) == mine
        place = TABLE + mine * C + column
        known = tl.load(place, mask=column < C, other=0.0)
        tl.store(place, known + factor * total, mask=column < C)


def launch(table: Tensor, rows: Tensor, ids: Tensor, order: Tensor, factor: float) -> None:
    count, C = rows.shape
    width = triton.next_power_of_2(C)
    tokens = max(1, TILE // width)
    with torch.cuda.device_of(table):
        add_embedding_rows_triton[(count,)](
            table, rows, ids, order, count, C, factor, tokens, width, num_warps=WARPS
        )
