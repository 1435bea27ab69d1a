"""The kernels of kernels.embedding_rows in Triton. With TRITON_INTERPRET=1 they run on a CPU.

Some ids have thousands of rows, most have a few. So an id's rows are summed in parts, each by a
program of its own, and a second kernel adds up the parts of an id that has several.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.embedding_rows.sorted_ids import PART, SortedIds

COLUMNS, TOKENS, WARPS = 512, 16, 4  # columns and rows that a program adds at once
PROGRAMS = 4096  # at most, for each COLUMNS columns


@triton.jit
def add_to_row(TABLE, id, total, column, C, factor):
    place = TABLE + id.to(tl.int64) * C + column
    known = tl.load(place, mask=column < C, other=0.0)
    tl.store(place, known + factor * total, mask=column < C)


@triton.jit
def slot_of(at, start, PART: tl.constexpr):
    """Row of PARTS for the part that begins at `at`.

    The last part of an id and the first of the next may begin within the same PART rows; no other
    two parts do.
    """
    return 2 * (at // PART) + (at == start).to(tl.int64)


@triton.jit
def embedding_rows_parts_triton(
    TABLE, ROWS, IDS, ORDER, STARTS, BEGINS, PARTS, rows, C, factor,
    PART: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Sum some parts. A sum goes to TABLE if it is the only part of its id, else to PARTS."""
    number = tl.program_id(0)
    at = tl.load(BEGINS + number)
    while at < rows:
        mine, start = tl.load(IDS + at), tl.load(STARTS + at)
        column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
        total = tl.zeros((WIDTH,), tl.float32)
        end = tl.minimum(at + PART, rows)
        row = at + tl.arange(0, TOKENS)
        has = tl.load(IDS + row, mask=row < end, other=-1) == mine
        while tl.max(has.to(tl.int32), 0) > 0:
            place = tl.load(ORDER + row, mask=has, other=0)
            inside = has[:, None] & (column[None, :] < C)
            block = tl.load(ROWS + place[:, None] * C + column[None, :], mask=inside, other=0.0)
            total += tl.sum(block.to(tl.float32), 0)
            row += TOKENS
            has = tl.load(IDS + row, mask=row < end, other=-1) == mine
        behind = tl.load(IDS + at + PART, mask=at + PART < rows, other=-1)
        if (at == start) & (behind != mine):
            add_to_row(TABLE, mine, total, column, C, factor)
        else:
            tl.store(PARTS + slot_of(at, start, PART) * C + column, total, mask=column < C)
        number += tl.num_programs(0)
        at = tl.load(BEGINS + number, mask=number < rows, other=rows)


@triton.jit
def embedding_rows_sum_triton(
    TABLE, IDS, STARTS, PARTS, rows, C, factor,
    PART: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Add up the parts of an id that has several, in the program of its first multiple of PART."""
    at = tl.program_id(0).to(tl.int64) * PART
    start, mine = tl.load(STARTS + at), tl.load(IDS + at)
    behind = tl.load(IDS + start + PART, mask=start + PART < rows, other=-1)
    if (at - start < PART) & (behind == mine):
        column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
        total = tl.zeros((WIDTH,), tl.float32)
        part = start + tl.arange(0, TOKENS) * PART
        has = tl.load(IDS + part, mask=part < rows, other=-1) == mine
        while tl.max(has.to(tl.int32), 0) > 0:
            place = PARTS + slot_of(part, start, PART)[:, None] * C + column[None, :]
            inside = has[:, None] & (column[None, :] < C)
            total += tl.sum(tl.load(place, mask=inside, other=0.0), 0)
            part += TOKENS * PART
            has = tl.load(IDS + part, mask=part < rows, other=-1) == mine
        add_to_row(TABLE, mine, total, column, C, factor)


def launch(table: Tensor, rows: Tensor, by_id: SortedIds, factor: float) -> None:
    ids, order, starts, begins = by_id
    count, C = rows.shape
    width = min(COLUMNS, triton.next_power_of_2(C))
    blocks, across = triton.cdiv(count, PART), triton.cdiv(C, width)
    parts = table.new_empty(2 * blocks, C)
    with torch.cuda.device_of(table):
        embedding_rows_parts_triton[(min(count, PROGRAMS), across)](
            table, rows, ids, order, starts, begins, parts, count, C, factor,
            PART, TOKENS, width, num_warps=WARPS,
        )  # fmt: skip
        embedding_rows_sum_triton[(blocks, across)](
            table, ids, starts, parts, count, C, factor, PART, TOKENS, width, num_warps=WARPS
        )
