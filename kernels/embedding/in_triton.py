"""The kernels of kernels.embedding in Triton, and their launches.

TABLE has a row for each id and POSITIONS one for each place in a sequence; x is their sum after
dropout, h its norm; d before a name is its gradient. Rows are tokens, with C columns each. With
TRITON_INTERPRET=1 in the environment the kernels run on a CPU, slowly: for tests.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.dropout.in_triton import dropped, threshold
from kernels.norm.in_triton import EPSILON, store_with_norm, sum_over_programs

FORWARD_ROWS, FORWARD_WARPS = 1, 1  # in a program
SCALAR_ROWS, SCALAR_COLUMNS, SCALAR_WARPS = 4, 128, 2  # in a program; columns at a time
BACKWARD_PROGRAMS = 64  # a sequence's places are divided among so many, for each COLUMNS columns
BACKWARD_ROWS, COLUMNS = 16, 64  # tokens of a program at a time, from as many sequences as fit
BACKWARD_WARPS, BACKWARD_STAGES, BACKWARD_REGISTERS = 4, 1, 168  # at most so many for a thread
SUM_ROWS, SUM_WIDTH, SUM_WARPS = 64, 64, 4  # programs' sums that are read at a time
SUMMED = 8192  # ids times columns whose sums fit into a program


@triton.jit
def rows_of(TABLE, number, column, inside, C):
    """Load rows `number` of a table, (numbers, columns); zeros if it is None."""
    if TABLE is not None:
        at = TABLE + number[:, None] * C + column[None, :]
        rows = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    else:
        rows = tl.zeros([number.shape[0], column.shape[0]], tl.float32)
    return rows


@triton.jit
def forward_embedding_triton(
    IDX, TABLE, POSITIONS, WEIGHT, BIAS, SEED, X, H, MEAN, RSTD, rows, T, C,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, THRESHOLD: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """Compute x and its norm for ROWS rows; C columns in a block of WIDTH."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    inside = (row[:, None] < rows) & (column[None, :] < C)
    token = tl.load(IDX + row, mask=row < rows, other=0)
    x = rows_of(TABLE, token, column, inside, C) + rows_of(POSITIONS, row % T, column, inside, C)
    x = dropped(x, SEED, row, column, THRESHOLD)
    store_with_norm(x, X, H, MEAN, RSTD, WEIGHT, BIAS, row, column, rows, C, EPS)


@triton.jit
def backward_embedding_rows_triton(
    DH, IDX, TABLE, POSITIONS, MEAN, RSTD, WEIGHT, SEED, WHOLE, ALONG, rows, T,
    C: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, THRESHOLD: tl.constexpr,
):  # fmt: skip
    """Compute two means over a whole row, which the norm's gradient needs.

    WHOLE is the mean of h's gradient times the weight, ALONG the mean of that along the norm.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    token = tl.load(IDX + row, mask=row < rows, other=0)
    mean = tl.load(MEAN + row, mask=row < rows, other=0.0)
    rstd = tl.load(RSTD + row, mask=row < rows, other=0.0)
    whole = tl.zeros([ROWS, COLUMNS], tl.float32)
    along = tl.zeros([ROWS, COLUMNS], tl.float32)
    for first in tl.static_range(0, C, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        inside = (row[:, None] < rows) & (column[None, :] < C)
        at = row[:, None].to(tl.int64) * C + column[None, :]
        dh = tl.load(DH + at, mask=inside, other=0.0).to(tl.float32)
        x = rows_of(TABLE, token, column, inside, C)
        x += rows_of(POSITIONS, row % T, column, inside, C)
        x = dropped(x, SEED, row, column, THRESHOLD)
        weight = tl.load(WEIGHT + column, mask=column < C, other=0.0).to(tl.float32)
        scaled = dh * weight[None, :]  # 0 outside
        whole += scaled
        along += scaled * ((x - mean[:, None]) * rstd[:, None])
    tl.store(WHOLE + row, tl.sum(whole, 1) / C, mask=row < rows)
    tl.store(ALONG + row, tl.sum(along, 1) / C, mask=row < rows)


@triton.jit
def backward_embedding_triton(
    DX, DH, IDX, TABLE, POSITIONS, MEAN, RSTD, WHOLE, ALONG, WEIGHT, SEED, PARTIAL, DPOSITIONS,
    B, T, C, V, places,
    PLACES: tl.constexpr, SEQUENCES: tl.constexpr, COLUMNS: tl.constexpr, IDS: tl.constexpr,
    THRESHOLD: tl.constexpr, HAS_BIAS: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """Compute gradients for some columns of PLACES places in all sequences: a place has one owner.

    PARTIAL (V + 1 or 2, programs, C) gets what these tokens contribute to each id, to WEIGHT and to
    the norm's bias. Rows beyond the last have rstd and dx 0, so they add nothing; columns beyond
    the last are not stored.
    """
    own = tl.program_id(1)  # neighbouring programs read other columns of the same rows
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    number = tl.arange(0, SEQUENCES * PLACES)
    position = own * PLACES + number % PLACES
    ids = tl.arange(0, IDS)
    inside = (position[:, None] < T) & (column[None, :] < C)
    place = rows_of(POSITIONS, position, column, inside, C)
    weight = tl.load(WEIGHT + column, mask=column < C, other=0.0).to(tl.float32)
    dtable = tl.zeros([IDS, COLUMNS], tl.float32)
    dpositions = tl.zeros([SEQUENCES * PLACES, COLUMNS], tl.float32)
    dweight = tl.zeros([SEQUENCES * PLACES, COLUMNS], tl.float32)
    dbias = tl.zeros([SEQUENCES * PLACES, COLUMNS], tl.float32)
    for first in range(0, B, SEQUENCES):
        sequence = first + number // PLACES
        there = (sequence < B) & (position < T)
        row = sequence * T + position
        token = tl.load(IDX + row, mask=there, other=-1).to(tl.int32)
        dsum, dh, normed = gradients_of_rows(
            DX, DH, TABLE, MEAN, RSTD, WHOLE, ALONG, SEED, row, there, column, token, place, weight,
            C, THRESHOLD,
        )  # fmt: skip
        dweight += dh * normed
        if HAS_BIAS:
            dbias += dh
        if DPOSITIONS is not None:
            dpositions += dsum
        of_id = tl.where(ids[:, None] == token[None, :], 1.0, 0.0)
        dtable = add_to_ids(dtable, of_id.to(KIND), dsum, KIND)
    at_weight = store_by_id(PARTIAL, dtable, ids, own, column, C, V)
    tl.store(at_weight, tl.sum(dweight, 0), mask=column < C)
    if HAS_BIAS:
        tl.store(at_weight + tl.num_programs(1) * C, tl.sum(dbias, 0), mask=column < C)
    if DPOSITIONS is not None:
        by_place = tl.sum(tl.reshape(dpositions, (SEQUENCES, PLACES, COLUMNS)), 0)
        position = own * PLACES + tl.arange(0, PLACES)
        inside = (position[:, None] < places) & (column[None, :] < C)
        tl.store(DPOSITIONS + position[:, None] * C + column[None, :], by_place, mask=inside)


@triton.jit
def gradients_of_rows(
    DX, DH, TABLE, MEAN, RSTD, WHOLE, ALONG, SEED, row, there, column, token, place, weight, C,
    THRESHOLD: tl.constexpr,
):  # fmt: skip
    """Gradients of x before dropout and of h, and the norm without its weight: (rows, columns)."""
    inside = there[:, None] & (column[None, :] < C)
    at = row[:, None].to(tl.int64) * C + column[None, :]
    mean = tl.load(MEAN + row, mask=there, other=0.0)
    rstd = tl.load(RSTD + row, mask=there, other=0.0)
    whole = tl.load(WHOLE + row, mask=there, other=0.0)
    along = tl.load(ALONG + row, mask=there, other=0.0)
    dh = tl.load(DH + at, mask=inside, other=0.0).to(tl.float32)
    x = dropped(rows_of(TABLE, token, column, inside, C) + place, SEED, row, column, THRESHOLD)
    normed = (x - mean[:, None]) * rstd[:, None]
    dsum = (dh * weight[None, :] - whole[:, None] - normed * along[:, None]) * rstd[:, None]
    if DX is not None:
        dsum += tl.load(DX + at, mask=inside, other=0.0).to(tl.float32)
    return dropped(dsum, SEED, row, column, THRESHOLD), dh, normed


@triton.jit
def store_by_id(PARTIAL, dtable, ids, own, column, C, V):
    """Store the gradients of the ids; returns where the row after the last id is to be stored."""
    programs = tl.num_programs(1)
    at = (ids[:, None] * programs + own) * C + column[None, :]
    tl.store(PARTIAL + at, dtable, mask=(ids[:, None] < V) & (column[None, :] < C))
    return PARTIAL + (V * programs + own) * C + column


@triton.jit
def add_to_ids(total, of_id, rows, KIND: tl.constexpr):
    """Compute total (ids, columns) + of_id (ids, rows) @ rows on tensor cores, without lost digits.

    A float32 has the digits of three bfloat16, which are cut off one after the other; of_id has
    ones and zeros, and sums are float32.
    """
    for _ in tl.static_range(3):
        part = (rows.to(tl.uint32, bitcast=True) & 0xFFFF0000).to(tl.float32, bitcast=True)
        total = tl.dot(of_id, part.to(KIND), total)
        rows -= part
    return total


@triton.jit
def gradients_of_embedding_triton(
    PARTIAL, TOTAL, programs, C, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    sum_over_programs(PARTIAL, TOTAL, programs, C, ROWS, WIDTH)


def launch_forward(
    idx: Tensor, table: Tensor, positions: Tensor | None, weight: Tensor, bias: Tensor | None,
    seed: Tensor, dropout: float, dtype: torch.dtype, norm_dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Sum x (B, T, C) in `dtype`, its norm in `norm_dtype`, means and 1 / deviations (B * T)."""
    (B, T), C = idx.shape, table.size(1)
    x = table.new_empty(B, T, C, dtype=dtype)
    h = torch.empty_like(x, dtype=norm_dtype)
    mean = torch.empty(B * T, dtype=torch.float32, device=x.device)
    rstd = torch.empty_like(mean)
    forward_embedding_triton[(triton.cdiv(B * T, FORWARD_ROWS),)](
        idx.contiguous(), table, positions, weight, bias, seed, x, h, mean, rstd, B * T, T, C,
        ROWS=FORWARD_ROWS, WIDTH=triton.next_power_of_2(C), THRESHOLD=threshold(dropout),
        EPS=EPSILON, num_warps=FORWARD_WARPS,
    )  # fmt: skip
    return x, h, mean, rstd


def launch_backward(
    dx: Tensor | None, dh: Tensor, idx: Tensor, table: Tensor, positions: Tensor | None,
    mean: Tensor, rstd: Tensor, weight: Tensor, has_bias: bool, seed: Tensor, dropout: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of table, weight and bias, stacked as (V + 1 or 2, C), and of positions, (L, C).

    They are in float32. Without positions L is 0. `dx` is None if nobody but the norm read x.
    """
    (B, T), (V, C) = idx.shape, table.shape
    idx, dh = idx.contiguous(), dh.contiguous()
    dx = None if dx is None else dx.contiguous()
    whole, along = torch.empty_like(mean), torch.empty_like(mean)
    backward_embedding_rows_triton[(triton.cdiv(B * T, SCALAR_ROWS),)](
        dh, idx, table, positions, mean, rstd, weight, seed, whole, along, B * T, T, C,
        ROWS=SCALAR_ROWS, COLUMNS=SCALAR_COLUMNS, THRESHOLD=threshold(dropout),
        num_warps=SCALAR_WARPS,
    )  # fmt: skip
    places = T if positions is None else len(positions)
    owned = min(BACKWARD_ROWS, triton.next_power_of_2(triton.cdiv(places, BACKWARD_PROGRAMS)))
    dpositions = torch.empty((0 if positions is None else places, C), device=dh.device)
    ids = max(16, triton.next_power_of_2(V))
    columns = min(COLUMNS, SUMMED // ids, max(16, triton.next_power_of_2(C)))
    programs = triton.cdiv(places, owned)
    partial = torch.empty((V + 1 + has_bias, programs, C), device=dh.device)
    backward_embedding_triton[triton.cdiv(C, columns), programs](
        dx, dh, idx, table, positions, mean, rstd, whole, along, weight, seed, partial,
        None if positions is None else dpositions, B, T, C, V, places, PLACES=owned,
        SEQUENCES=BACKWARD_ROWS // owned, COLUMNS=columns, IDS=ids, THRESHOLD=threshold(dropout),
        HAS_BIAS=has_bias, KIND=tl.bfloat16 if dh.is_cuda else tl.float32,
        num_warps=BACKWARD_WARPS, num_stages=BACKWARD_STAGES, maxnreg=BACKWARD_REGISTERS,
    )  # fmt: skip
    total = torch.empty((V + 1 + has_bias, C), device=dh.device)
    gradients_of_embedding_triton[triton.cdiv(C, SUM_WIDTH), len(total)](
        partial, total, programs, C, ROWS=SUM_ROWS, WIDTH=SUM_WIDTH, num_warps=SUM_WARPS
    )
    return total, dpositions
