"""The gradients of kernels.attention for long sequences, in Gluon, for Hopper GPUs.

They are for heads of width 64, any multiple of 128 tokens from 512 on, bfloat16 and no dropout.
There are two kernels, and each computes the scores itself: one has blocks of queries, sums up dQ
and stores what the other one needs of each row; the other has blocks of keys, and sums up dK and
dV. So all sums stay in registers, only inputs go through shared memory, and nothing is added
atomically: results have the same bits each time.

Programs are persistent: each takes one block of 128 rows after the other. Two groups of four warps
have 64 of the rows each. One warp loads the tiles of 64 rows that the groups pass over into a ring
of STAGES, ahead of both groups and into the next block. A group starts the products for the scores
of a tile, then those that add the tile before to its sums; while they run it computes exponentials.

docs/kernels.md has what ptxas needs: the left operand of a product, which is in registers, is
computed while no product runs, and no product runs at the end of a loop. The wait for the next tile
keeps exponentials before the wait for products: without that branch ptxas moves them after it.

Names are as in kernels.attention.in_gluon; NB is the number of blocks of 128 rows of a head, c
counts the tiles of a program.
"""

import math

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from kernels.attention.in_gluon import (
    FLAT,
    IN_COLUMNS,
    IN_ROWS,
    LEFT,
    MMA,
    PROGRAMS,
    B,
    barriers,
    blocks,
    describe,
    store,
)
from kernels.names_gluon import block_barrier, tma_load

STAGES = 6

A_WARP = gl.constexpr(gl.BlockedLayout([2], [32], [1], [0]))


@gluon.jit
def place_in_round(t):
    """Number of this program's block in round t, over all heads.

    Every second round goes backwards: the program with the longest block of a round has the
    shortest of the next.
    """
    program, programs = gl.program_id(0), gl.num_programs(0)
    return t * programs + (programs - 1 - program if t % 2 else program)


@gluon.jit
def rounds(heads, NB: gl.constexpr):
    """Number of blocks of this program."""
    all_have = heads * NB // gl.num_programs(0)
    return all_have + (place_in_round(all_have) < heads * NB).to(gl.int32)


@gluon.jit
def block_of(t, heads):
    """Head, and number in it, of the block of round t; 0 is the longest, and taken first."""
    n = place_in_round(t)
    return n % heads, n // heads


@gluon.jit
def wait_full(full, c, STAGES: gl.constexpr, pred=True):
    mbarrier.wait(full.index(c % STAGES), c // STAGES & 1, pred=pred)


@gluon.jit
def wait_empty(empty, c, STAGES: gl.constexpr):
    mbarrier.wait(empty.index(c % STAGES), c // STAGES & 1 ^ 1)


@gluon.jit
def times_rows_of(X, c, left, STAGES: gl.constexpr):
    """Start the product left @ X[c].T, without a wait for it."""
    zero = gl.zeros([B, B], gl.float32, MMA)
    right = X.index(c % STAGES).permute((1, 0))
    return warpgroup_mma(left, right, zero, use_acc=False, is_async=True)


@gluon.jit
def numbers_of_rows(X, c, STAGES: gl.constexpr):
    return gl.expand_dims(X.index(c % STAGES).load(IN_COLUMNS), 0)


@gluon.jit
def load_two(x, X, bar, row, column, first):
    """Load a block of 128 rows as two tiles: X[first] and the next."""
    for n in gl.static_range(2):
        tma_load(x, [row + n * B, column], bar, X.index(first + n))


@gluon.jit
def backward_causal_attention_triton_queries(
    q, k, v, out, dout, LSE, DELTA, DQKV, heads, scale, to_logits,
    H: gl.constexpr, NB: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Compute dQ, and DELTA (B * H, T), the sums of output x gradient."""
    own = blocks(4), blocks(4), blocks(4)
    ring = blocks(STAGES), blocks(STAGES)
    own_bars = barriers(2, 1), barriers(2, 2)
    bars = barriers(STAGES, 1), barriers(STAGES, 2)
    fence_async_shared()
    block_barrier()
    gl.warp_specialize([
        (gradients_of_queries, (LSE, DELTA, DQKV, own, ring, own_bars, bars, heads, scale,
                                to_logits, 0, H, NB, STAGES)),
        (gradients_of_queries, (LSE, DELTA, DQKV, own, ring, own_bars, bars, heads, scale,
                                to_logits, 1, H, NB, STAGES)),
        (load_for_queries, (q, k, v, out, dout, own, ring, own_bars, bars, heads, H, NB, STAGES)),
    ], [4, 1], [240, 24])  # fmt: skip


@gluon.jit
def load_for_queries(
    q, k, v, out, dout, own, ring, own_bars, bars, heads,
    H: gl.constexpr, NB: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Load blocks of queries, and for each its tiles of keys and values, the diagonal one first."""
    Q, OUT, DOUT = own
    K, V = ring
    full, empty = bars
    c = 0
    for t in range(rounds(heads, NB)):
        head, n = block_of(t, heads)
        i = NB - 1 - n
        row, column = head // H * (2 * NB * B), head % H * B
        wait_empty(own_bars[1], t, 2)
        arrived = own_bars[0].index(t % 2)
        mbarrier.expect(arrived, 6 * q.block_type.nbytes)
        load_two(q, Q, arrived, row + 2 * i * B, column, t % 2 * 2)
        load_two(dout, DOUT, arrived, row + 2 * i * B, column, t % 2 * 2)
        load_two(out, OUT, arrived, row + 2 * i * B, column, t % 2 * 2)
        for back in range(2 * i + 2):
            at = row + (2 * i + 1 - back) * B
            wait_empty(empty, c, STAGES)
            arrived = full.index(c % STAGES)
            mbarrier.expect(arrived, 2 * k.block_type.nbytes)
            tma_load(k, [at, column], arrived, K.index(c % STAGES))
            tma_load(v, [at, column], arrived, V.index(c % STAGES))
            c += 1


@gluon.jit
def gradients_of_queries(
    LSE, DELTA, DQKV, own, ring, own_bars, bars, heads, scale, to_logits,
    g: gl.constexpr, H: gl.constexpr, NB: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Compute dQ of group g's 64 queries of each block.

    The first group does not see the last 64 of the block's keys.
    """
    Q, OUT, DOUT = own
    K, V = ring
    full, empty = bars
    STRIDE: gl.constexpr = 3 * H * B
    rows = gl.arange(0, B, layout=IN_ROWS)
    unmasked = gl.expand_dims(rows, 1) >= gl.expand_dims(gl.arange(0, B, layout=IN_COLUMNS), 0)
    c = 0
    for t in range(rounds(heads, NB)):
        head, n = block_of(t, heads)
        i = 2 * (NB - 1 - n) + g
        at = head * (2 * NB * B) + i * B + rows
        lse = gl.expand_dims(gl.load(LSE + at), 1)
        wait_full(own_bars[0], t, 2)
        q, out, dout = Q.index(t % 2 * 2 + g), OUT.index(t % 2 * 2 + g), DOUT.index(t % 2 * 2 + g)
        delta = gl.sum(out.load(MMA).to(gl.float32) * dout.load(MMA).to(gl.float32), 1)
        gl.store(DELTA + at, delta)
        delta = gl.expand_dims(delta, 1)
        if g == 0:
            wait_full(full, c, STAGES)
            mbarrier.arrive(empty.index(c % STAGES), count=1)
            c += 1
        wait_full(full, c, STAGES)
        s = times_rows_of(K, c, q, STAGES)
        dp = times_rows_of(V, c, dout, STAGES)
        s, dp = warpgroup_mma_wait(0, deps=[s, dp])
        p = gl.where(unmasked, gl.exp2(s * scale - lse), 0.0)
        ds = p * (dp - delta)
        dq = gl.zeros([B, B], gl.float32, MMA)
        wait_full(full, c + 1, STAGES, i > 0)
        for j in range(i):
            ds_left = gl.convert_layout(ds.to(gl.bfloat16), LEFT)
            s = times_rows_of(K, c + 1, q, STAGES)
            dp = times_rows_of(V, c + 1, dout, STAGES)
            dq = warpgroup_mma(ds_left, K.index(c % STAGES), dq, is_async=True)
            s, dp = warpgroup_mma_wait(1, deps=[s, dp])
            p = gl.exp2(s * scale - lse)
            ds = p * (dp - delta)
            wait_full(full, c + 2, STAGES, j + 1 < i)
            dq, ds = warpgroup_mma_wait(0, deps=[dq, ds])
            block_barrier()
            mbarrier.arrive(empty.index(c % STAGES), count=1)
            c += 1
        ds_left = gl.convert_layout(ds.to(gl.bfloat16), LEFT)
        dq = warpgroup_mma(ds_left, K.index(c % STAGES), dq, is_async=True)
        dq = warpgroup_mma_wait(0, deps=[dq])
        block_barrier()
        mbarrier.arrive(empty.index(c % STAGES), count=1)
        mbarrier.arrive(own_bars[1].index(t % 2), count=1)
        c += 1
        start = (head // H).to(gl.int64) * (2 * NB * B * STRIDE) + head % H * B
        store(DQKV, start + i * (B * STRIDE), dq * to_logits, STRIDE)


@gluon.jit
def backward_causal_attention_triton_keys(
    q, k, v, dout, LSE, DELTA, DQKV, heads, scale, to_logits,
    H: gl.constexpr, NB: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Compute dK and dV. Scores lie transposed, (keys, queries): the left operand of both sums."""
    own = blocks(4), blocks(4)
    ring = blocks(STAGES), blocks(STAGES)
    rows = (
        gl.allocate_shared_memory(gl.float32, [STAGES, B], FLAT),
        gl.allocate_shared_memory(gl.float32, [STAGES, B], FLAT),
    )
    own_bars = barriers(2, 1), barriers(2, 2)
    bars = barriers(STAGES, 1), barriers(STAGES, 2)
    fence_async_shared()
    block_barrier()
    gl.warp_specialize([
        (gradients_of_keys, (DQKV, own, ring, rows, own_bars, bars, heads, scale, to_logits,
                             0, H, NB, STAGES)),
        (gradients_of_keys, (DQKV, own, ring, rows, own_bars, bars, heads, scale, to_logits,
                             1, H, NB, STAGES)),
        (load_for_keys, (q, k, v, dout, LSE, DELTA, own, ring, rows, own_bars, bars, heads,
                         H, NB, STAGES)),
    ], [4, 1], [240, 24])  # fmt: skip


@gluon.jit
def load_for_keys(
    q, k, v, dout, LSE, DELTA, own, ring, rows, own_bars, bars, heads,
    H: gl.constexpr, NB: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Load blocks of keys and values, and for each its tiles of queries.

    LSE and DELTA go through registers: a tile's are loaded while it waits for its place.
    """
    K, V = own
    Q, DOUT = ring
    L, D = rows
    full, empty = bars
    within = gl.arange(0, B, layout=A_WARP)
    c = 0
    for t in range(rounds(heads, NB)):
        head, n = block_of(t, heads)
        row, column = head // H * (2 * NB * B), head % H * B
        wait_empty(own_bars[1], t, 2)
        arrived = own_bars[0].index(t % 2)
        mbarrier.expect(arrived, 4 * k.block_type.nbytes)
        load_two(k, K, arrived, row + 2 * n * B, column, t % 2 * 2)
        load_two(v, V, arrived, row + 2 * n * B, column, t % 2 * 2)
        for i in range(2 * n, 2 * NB):
            at = head * (2 * NB * B) + i * B + within
            lse, delta = gl.load(LSE + at), gl.load(DELTA + at)
            wait_empty(empty, c, STAGES)
            L.index(c % STAGES).store(lse)
            D.index(c % STAGES).store(delta)
            block_barrier()
            at = row + i * B
            arrived = full.index(c % STAGES)
            mbarrier.expect(arrived, 2 * q.block_type.nbytes)
            tma_load(q, [at, column], arrived, Q.index(c % STAGES))
            tma_load(dout, [at, column], arrived, DOUT.index(c % STAGES))
            c += 1


@gluon.jit
def gradients_of_keys(
    DQKV, own, ring, rows, own_bars, bars, heads, scale, to_logits,
    g: gl.constexpr, H: gl.constexpr, NB: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Compute dK and dV of group g's 64 keys of each block.

    The first 64 of the block's queries do not see the second group's keys.
    """
    K, V = own
    Q, DOUT = ring
    L, D = rows
    full, empty = bars
    STRIDE: gl.constexpr = 3 * H * B
    j_rows = gl.expand_dims(gl.arange(0, B, layout=IN_ROWS), 1)
    unmasked = gl.expand_dims(gl.arange(0, B, layout=IN_COLUMNS), 0) >= j_rows
    c = 0
    for t in range(rounds(heads, NB)):
        head, n = block_of(t, heads)
        j = 2 * n + g
        if g == 1:
            wait_full(full, c, STAGES)
            mbarrier.arrive(empty.index(c % STAGES), count=1)
            c += 1
        wait_full(own_bars[0], t, 2)
        k, v = K.index(t % 2 * 2 + g), V.index(t % 2 * 2 + g)
        wait_full(full, c, STAGES)
        s = times_rows_of(Q, c, k, STAGES)
        dp = times_rows_of(DOUT, c, v, STAGES)
        lse, delta = numbers_of_rows(L, c, STAGES), numbers_of_rows(D, c, STAGES)
        s, dp = warpgroup_mma_wait(0, deps=[s, dp])
        p = gl.where(unmasked, gl.exp2(s * scale - lse), 0.0)
        ds = p * (dp - delta)
        dk = gl.zeros([B, B], gl.float32, MMA)
        dv = dk
        wait_full(full, c + 1, STAGES, j + 1 < 2 * NB)
        for i in range(j + 1, 2 * NB):
            p_left = gl.convert_layout(p.to(gl.bfloat16), LEFT)
            ds_left = gl.convert_layout(ds.to(gl.bfloat16), LEFT)
            s = times_rows_of(Q, c + 1, k, STAGES)
            dp = times_rows_of(DOUT, c + 1, v, STAGES)
            dv = warpgroup_mma(p_left, DOUT.index(c % STAGES), dv, is_async=True)
            dk = warpgroup_mma(ds_left, Q.index(c % STAGES), dk, is_async=True)
            lse, delta = numbers_of_rows(L, c + 1, STAGES), numbers_of_rows(D, c + 1, STAGES)
            s, dp = warpgroup_mma_wait(2, deps=[s, dp])
            p = gl.exp2(s * scale - lse)
            ds = p * (dp - delta)
            wait_full(full, c + 2, STAGES, i + 1 < 2 * NB)
            dv, dk, p, ds = warpgroup_mma_wait(0, deps=[dv, dk, p, ds])
            block_barrier()
            mbarrier.arrive(empty.index(c % STAGES), count=1)
            c += 1
        p_left = gl.convert_layout(p.to(gl.bfloat16), LEFT)
        ds_left = gl.convert_layout(ds.to(gl.bfloat16), LEFT)
        dv = warpgroup_mma(p_left, DOUT.index(c % STAGES), dv, is_async=True)
        dk = warpgroup_mma(ds_left, Q.index(c % STAGES), dk, is_async=True)
        dv, dk = warpgroup_mma_wait(0, deps=[dv, dk])
        block_barrier()
        mbarrier.arrive(empty.index(c % STAGES), count=1)
        mbarrier.arrive(own_bars[1].index(t % 2), count=1)
        c += 1
        start = (head // H).to(gl.int64) * (2 * NB * B * STRIDE) + head % H * B
        start += j * (B * STRIDE)
        store(DQKV, start + H * B, dk * to_logits, STRIDE)
        store(DQKV, start + 2 * H * B, dv, STRIDE)


def launch_backward(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, dqkv: Tensor
) -> None:
    """Write the gradients to dqkv (B, T, 3, H, D); lse is (B * H, T), the rest (B, T, H, D)."""
    sequences, T, H, D = q.shape
    heads, NB = sequences * H, T // (2 * B.value)
    delta = torch.empty_like(lse)
    q, k, v, out, dout = map(describe, (q, k, v, out, dout))
    grid = (min(PROGRAMS, heads * NB),)
    scales = math.log2(math.e) / math.sqrt(D), 1 / math.sqrt(D)
    how = dict(H=H, NB=NB, STAGES=STAGES, num_warps=4)
    backward_causal_attention_triton_queries[grid](
        q, k, v, out, dout, lse, delta, dqkv, heads, *scales, **how
    )
    backward_causal_attention_triton_keys[grid](
        q, k, v, dout, lse, delta, dqkv, heads, *scales, **how
    )
