"""The gradients of kernels.attention for long sequences, in Gluon, for Hopper GPUs.

Heads of width 64, any multiple of 128 tokens from 512 on, bfloat16, no dropout. Two kernels, and
each makes the scores for itself: one has blocks of queries, sums up dQ and leaves what the other
one needs of each row; the other has blocks of keys, and sums up dK and dV. So all sums stay in
registers, nothing but inputs goes through shared memory, and nothing is added atomically: the same
bits each time.

A program stays, and takes one block of 128 rows after the other. Two groups of four warps have 64
of the rows each, in registers; one warp loads, ahead of both and of the next block too, what they
pass over, in a ring of STAGES tiles of 64 rows. While one group makes exponentials the other one
multiplies.

Names as in kernels.attention_gluon; NB are the blocks of 128 of a head, c counts the tiles of a
program.
"""

import math

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from kernels.attention_gluon import (
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

TOGETHER = 1 << 20  # heads whose blocks are taken in turns
STAGES = 6
K_LEFT = True

A_WARP = gl.constexpr(gl.BlockedLayout([2], [32], [1], [0]))


@gluon.jit
def place_in_turn(turn):
    """There and back again: who had the longest block of a turn has the shortest of the next."""
    program, programs = gl.program_id(0), gl.num_programs(0)
    return turn * programs + (programs - 1 - program if turn % 2 else program)


@gluon.jit
def turns(heads, NB: gl.constexpr):
    """How many blocks this program has."""
    all_have = heads * NB // gl.num_programs(0)
    return all_have + (place_in_turn(all_have) < heads * NB).to(gl.int32)


@gluon.jit
def block_of(turn, heads, NB: gl.constexpr, TOGETHER: gl.constexpr):
    """A head, and which of its blocks: 0 is the longest, and the first to be taken."""
    n = place_in_turn(turn)
    first = n // (TOGETHER * NB) * TOGETHER
    n -= first * NB
    together = gl.minimum(TOGETHER, heads - first)
    return first + n % together, n // together


@gluon.jit
def wait_full(full, c, STAGES: gl.constexpr, pred=True):
    mbarrier.wait(full.index(c % STAGES), c // STAGES & 1, pred=pred)


@gluon.jit
def wait_empty(empty, c, STAGES: gl.constexpr):
    mbarrier.wait(empty.index(c % STAGES), c // STAGES & 1 ^ 1)


@gluon.jit
def times_rows_of(X, c, left, STAGES: gl.constexpr):
    """left @ X[c].T, begun."""
    zero = gl.zeros([B, B], gl.float32, MMA)
    right = X.index(c % STAGES).permute((1, 0))
    return warpgroup_mma(left, right, zero, use_acc=False, is_async=True)


@gluon.jit
def numbers_of_rows(X, c, STAGES: gl.constexpr):
    return gl.expand_dims(X.index(c % STAGES).load(IN_COLUMNS), 0)


@gluon.jit
def load_rows(x, X, bar, row, column, first, N: gl.constexpr):
    """N tiles into X[first:]."""
    for n in gl.static_range(N):
        tma.async_copy_global_to_shared(x, [row + n * B, column], bar, X.index(first + n))


@gluon.jit
def backward_causal_attention_triton_queries(
    q, k, v, out, dout, LSE, DELTA, DQKV, heads, scale, to_logits,
    H: gl.constexpr, NB: gl.constexpr, STAGES: gl.constexpr, TOGETHER: gl.constexpr,
):  # fmt: skip
    """dQ, and DELTA, (B * H, T): the sums of output x gradient."""
    own = blocks(2), blocks(2), blocks(2)
    ring = blocks(STAGES), blocks(STAGES)
    own_bars = barriers(1, 1), barriers(1, 2)
    bars = barriers(STAGES, 1), barriers(STAGES, 2)
    fence_async_shared()
    gl.thread_barrier()
    gl.warp_specialize([
        (gradients_of_queries, (LSE, DELTA, DQKV, own, ring, own_bars, bars, heads, scale,
                                to_logits, 0, H, NB, STAGES, TOGETHER)),
        (gradients_of_queries, (LSE, DELTA, DQKV, own, ring, own_bars, bars, heads, scale,
                                to_logits, 1, H, NB, STAGES, TOGETHER)),
        (load_for_queries, (q, k, v, out, dout, own, ring, own_bars, bars, heads,
                            H, NB, STAGES, TOGETHER)),
    ], [4, 1], [240, 24])  # fmt: skip


@gluon.jit
def load_for_queries(
    q, k, v, out, dout, own, ring, own_bars, bars, heads,
    H: gl.constexpr, NB: gl.constexpr, STAGES: gl.constexpr, TOGETHER: gl.constexpr,
):  # fmt: skip
    Q, OUT, DOUT = own
    K, V = ring
    full, empty = bars
    c = 0
    for t in range(turns(heads, NB)):
        head, n = block_of(t, heads, NB, TOGETHER)
        i = NB - 1 - n
        row, column = head // H * (2 * NB * B), head % H * B
        wait_empty(own_bars[1], t, 1)
        mine = own_bars[0].index(0)
        mbarrier.expect(mine, 6 * q.block_type.nbytes)
        load_rows(q, Q, mine, row + 2 * i * B, column, 0, 2)
        load_rows(dout, DOUT, mine, row + 2 * i * B, column, 0, 2)
        load_rows(out, OUT, mine, row + 2 * i * B, column, 0, 2)
        for back in range(2 * i + 2):
            j = 2 * i + 1 - back
            wait_empty(empty, c, STAGES)
            arrived = full.index(c % STAGES)
            mbarrier.expect(arrived, 2 * k.block_type.nbytes)
            tma.async_copy_global_to_shared(k, [row + j * B, column], arrived, K.index(c % STAGES))
            tma.async_copy_global_to_shared(v, [row + j * B, column], arrived, V.index(c % STAGES))
            c += 1


@gluon.jit
def gradients_of_queries(
    LSE, DELTA, DQKV, own, ring, own_bars, bars, heads, scale, to_logits,
    g: gl.constexpr, H: gl.constexpr, NB: gl.constexpr, STAGES: gl.constexpr,
    TOGETHER: gl.constexpr,
):  # fmt: skip
    """Of 64 queries of each block. The first group does not see the last of the block's keys."""
    Q, OUT, DOUT = own
    K, V = ring
    full, empty = bars
    STRIDE: gl.constexpr = 3 * H * B
    rows = gl.arange(0, B, layout=IN_ROWS)
    unmasked = gl.expand_dims(rows, 1) >= gl.expand_dims(gl.arange(0, B, layout=IN_COLUMNS), 0)
    c = 0
    for t in range(turns(heads, NB)):
        head, n = block_of(t, heads, NB, TOGETHER)
        i = 2 * (NB - 1 - n) + g
        at = head * (2 * NB * B) + i * B + rows
        lse = gl.expand_dims(gl.load(LSE + at), 1)
        wait_full(own_bars[0], t, 1)
        delta = gl.sum(
            OUT.index(g).load(MMA).to(gl.float32) * DOUT.index(g).load(MMA).to(gl.float32), 1
        )  # fmt: skip
        q, dout = Q.index(g).load(LEFT), DOUT.index(g).load(LEFT)
        gl.thread_barrier()
        mbarrier.arrive(own_bars[1].index(0), count=1)
        gl.store(DELTA + at, delta)
        delta = gl.expand_dims(delta, 1)
        if g == 0:
            wait_full(full, c, STAGES)
            mbarrier.arrive(empty.index(c % STAGES), count=1)
            c += 1
        wait_full(full, c, STAGES)
        s = times_rows_of(K, c, q, STAGES)
        dp = times_rows_of(V, c, dout, STAGES)
        s = warpgroup_mma_wait(1, deps=[s])
        p = gl.where(unmasked, gl.exp2(s * scale - lse), 0.0)
        dp = warpgroup_mma_wait(0, deps=[dp])
        ds = p * (dp - delta)
        dq = gl.zeros([B, B], gl.float32, MMA)
        wait_full(full, c + 1, STAGES, i > 0)
        for j in range(i):
            ds_left = gl.convert_layout(ds.to(gl.bfloat16), LEFT)
            s = times_rows_of(K, c + 1, q, STAGES)
            dp = times_rows_of(V, c + 1, dout, STAGES)
            dq = warpgroup_mma(ds_left, K.index(c % STAGES), dq, is_async=True)
            s = warpgroup_mma_wait(2, deps=[s])
            p = gl.exp2(s * scale - lse)
            wait_full(full, c + 1, STAGES)
            dp = warpgroup_mma_wait(1, deps=[dp])
            ds = p * (dp - delta)
            wait_full(full, c + 2, STAGES, j + 1 < i)
            dq, ds = warpgroup_mma_wait(0, deps=[dq, ds])
            gl.thread_barrier()
            mbarrier.arrive(empty.index(c % STAGES), count=1)
            c += 1
        ds_left = gl.convert_layout(ds.to(gl.bfloat16), LEFT)
        dq = warpgroup_mma(ds_left, K.index(c % STAGES), dq, is_async=True)
        dq = warpgroup_mma_wait(0, deps=[dq])
        gl.thread_barrier()
        mbarrier.arrive(empty.index(c % STAGES), count=1)
        c += 1
        start = (head // H).to(gl.int64) * (2 * NB * B * STRIDE) + head % H * B
        store(DQKV, start + i * (B * STRIDE), dq * to_logits, STRIDE)


@gluon.jit
def backward_causal_attention_triton_keys(
    q, k, v, dout, LSE, DELTA, DQKV, heads, scale, to_logits,
    H: gl.constexpr, NB: gl.constexpr, STAGES: gl.constexpr, TOGETHER: gl.constexpr,
    K_LEFT: gl.constexpr,
):  # fmt: skip
    """dK and dV; scores lie transposed, (keys, queries): what both sums want on their left."""
    own = blocks(4), blocks(4)
    ring = blocks(STAGES), blocks(STAGES)
    rows = (
        gl.allocate_shared_memory(gl.float32, [STAGES, B], FLAT),
        gl.allocate_shared_memory(gl.float32, [STAGES, B], FLAT),
    )
    own_bars = barriers(2, 1), barriers(2, 2)
    bars = barriers(STAGES, 1), barriers(STAGES, 2)
    fence_async_shared()
    gl.thread_barrier()
    gl.warp_specialize([
        (gradients_of_keys, (DQKV, own, ring, rows, own_bars, bars, heads, scale, to_logits,
                             0, H, NB, STAGES, TOGETHER, K_LEFT)),
        (gradients_of_keys, (DQKV, own, ring, rows, own_bars, bars, heads, scale, to_logits,
                             1, H, NB, STAGES, TOGETHER, K_LEFT)),
        (load_for_keys, (q, k, v, dout, LSE, DELTA, own, ring, rows, own_bars, bars, heads,
                         H, NB, STAGES, TOGETHER)),
    ], [4, 1], [240, 24])  # fmt: skip


@gluon.jit
def load_for_keys(
    q, k, v, dout, LSE, DELTA, own, ring, rows, own_bars, bars, heads,
    H: gl.constexpr, NB: gl.constexpr, STAGES: gl.constexpr, TOGETHER: gl.constexpr,
):  # fmt: skip
    """The numbers of rows go through registers, each tile's while it waits for its place."""
    K, V = own
    Q, DOUT = ring
    L, D = rows
    full, empty = bars
    within = gl.arange(0, B, layout=A_WARP)
    c = 0
    for t in range(turns(heads, NB)):
        head, n = block_of(t, heads, NB, TOGETHER)
        row, column = head // H * (2 * NB * B), head % H * B
        wait_empty(own_bars[1], t, 2)
        mine = own_bars[0].index(t % 2)
        mbarrier.expect(mine, 4 * k.block_type.nbytes)
        load_rows(k, K, mine, row + 2 * n * B, column, t % 2 * 2, 2)
        load_rows(v, V, mine, row + 2 * n * B, column, t % 2 * 2, 2)
        for i in range(2 * n, 2 * NB):
            at = head * (2 * NB * B) + i * B + within
            lse, delta = gl.load(LSE + at), gl.load(DELTA + at)
            wait_empty(empty, c, STAGES)
            L.index(c % STAGES).store(lse)
            D.index(c % STAGES).store(delta)
            gl.thread_barrier()
            arrived = full.index(c % STAGES)
            mbarrier.expect(arrived, 2 * q.block_type.nbytes)
            tma.async_copy_global_to_shared(q, [row + i * B, column], arrived, Q.index(c % STAGES))
            tma.async_copy_global_to_shared(
                dout, [row + i * B, column], arrived, DOUT.index(c % STAGES)
            )  # fmt: skip
            c += 1


@gluon.jit
def gradients_of_keys(
    DQKV, own, ring, rows, own_bars, bars, heads, scale, to_logits,
    g: gl.constexpr, H: gl.constexpr, NB: gl.constexpr, STAGES: gl.constexpr,
    TOGETHER: gl.constexpr, K_LEFT: gl.constexpr,
):  # fmt: skip
    """Of 64 keys of each block. The first of the block's queries do not see the second group's."""
    K, V = own
    Q, DOUT = ring
    L, D = rows
    full, empty = bars
    STRIDE: gl.constexpr = 3 * H * B
    j_rows = gl.expand_dims(gl.arange(0, B, layout=IN_ROWS), 1)
    unmasked = gl.expand_dims(gl.arange(0, B, layout=IN_COLUMNS), 0) >= j_rows
    c = 0
    for t in range(turns(heads, NB)):
        head, n = block_of(t, heads, NB, TOGETHER)
        j = 2 * n + g
        wait_full(own_bars[0], t, 2)
        k, v = K.index(t % 2 * 2 + g), V.index(t % 2 * 2 + g)
        if K_LEFT:
            k = k.load(LEFT)
        if g == 1:
            wait_full(full, c, STAGES)
            mbarrier.arrive(empty.index(c % STAGES), count=1)
            c += 1
        wait_full(full, c, STAGES)
        s = times_rows_of(Q, c, k, STAGES)
        dp = times_rows_of(DOUT, c, v, STAGES)
        lse, delta = numbers_of_rows(L, c, STAGES), numbers_of_rows(D, c, STAGES)
        s = warpgroup_mma_wait(1, deps=[s])
        p = gl.where(unmasked, gl.exp2(s * scale - lse), 0.0)
        dp = warpgroup_mma_wait(0, deps=[dp])
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
            gl.thread_barrier()
            mbarrier.arrive(empty.index(c % STAGES), count=1)
            c += 1
        p_left = gl.convert_layout(p.to(gl.bfloat16), LEFT)
        ds_left = gl.convert_layout(ds.to(gl.bfloat16), LEFT)
        dv = warpgroup_mma(p_left, DOUT.index(c % STAGES), dv, is_async=True)
        dk = warpgroup_mma(ds_left, Q.index(c % STAGES), dk, is_async=True)
        dv, dk = warpgroup_mma_wait(0, deps=[dv, dk])
        gl.thread_barrier()
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
    """All but lse are (B, T, H, D), lse is (B * H, T); writes dqkv (B, T, 3, H, D)."""
    sequences, T, H, D = q.shape
    heads, NB = sequences * H, T // (2 * B.value)
    delta = torch.empty_like(lse)
    tiles = dict(zip("qkvod", map(describe, (q, k, v, out, dout)), strict=True))
    grid = (min(PROGRAMS, heads * NB),)
    scales = math.log2(math.e) / math.sqrt(D), 1 / math.sqrt(D)
    how = dict(H=H, NB=NB, STAGES=STAGES, TOGETHER=TOGETHER, num_warps=4)
    backward_causal_attention_triton_queries[grid](
        *(tiles[name] for name in "qkvod"), lse, delta, dqkv, heads, *scales, **how
    )
    backward_causal_attention_triton_keys[grid](
        *(tiles[name] for name in "qkvd"), lse, delta, dqkv, heads, *scales, **how, K_LEFT=K_LEFT
    )
