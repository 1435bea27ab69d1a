"""The gradients of kernels.attention in Gluon, Triton's lower language, for Hopper GPUs.

They are for heads of width 64, sequences of 128 or 256 tokens, and bfloat16: a whole head lies in
shared memory, in blocks of 64 rows. A program takes every n-th head. One warp loads blocks, each as
soon as its place is free. Two groups of four warps divide a head's blocks so that both have the
same work: one of them has the first and the last of four blocks, the other the two between. Nothing
is added atomically, so that results have the same bits each time.

Names are as in kernels.attention.in_triton; NB is the number of blocks of a head, t counts the
heads of a program. A barrier `full` says that a block has arrived, `empty` that all are done with
it. The parity of a barrier only tells a phase from the next one.
"""

import math

from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels.dropout.in_triton import keys_of_rows, stays
from kernels.names_gluon import block_barrier, tma_load

PROGRAMS = 132  # at most: one fills a multiprocessor's shared memory, and an H100 or H200 has 132

B = gl.constexpr(64)  # rows of a block, and width of a head
MMA = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16]))  # a product's sums
LEFT = gl.constexpr(gl.DotOperandLayout(0, MMA.value, 2))  # a product's left operand
IN_ROWS = gl.constexpr(gl.SliceLayout(1, MMA.value))
IN_COLUMNS = gl.constexpr(gl.SliceLayout(0, MMA.value))
BLOCK = gl.constexpr(gl.NVMMASharedLayout.get_default_for([64, 64], gl.bfloat16))
FLAT = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [0]))
LOADED = gl.constexpr(gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0]))
# a product leaves two neighbours of a row in a thread; after two bits are exchanged within a warp
# it has eight, and four threads write 64 bytes
STORED = gl.constexpr(
    gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [0, 4], [8, 0], [0, 32]],
        [[0, 8], [0, 16], [1, 0], [2, 0], [4, 0]],
        [[16, 0], [32, 0]],
        [],
        [64, 64],
    )
)


@gluon.constexpr_function
def block_of(n, g, NB):
    """Block that is number n of group g: the last blocks come first, then the first ones."""
    return NB - 1 - g if n == 0 else g


@gluon.jit
def place_of(i, j, NB: gl.constexpr):
    """Place in shared memory of dS of queries i and keys j."""
    return j * NB - j * (j - 1) // 2 + i - j


@gluon.jit
def turns(heads):
    """Number of heads of this program."""
    return (heads - gl.program_id(0) + gl.num_programs(0) - 1) // gl.num_programs(0)


@gluon.jit
def blocks(COUNT: gl.constexpr):
    return gl.allocate_shared_memory(gl.bfloat16, [COUNT, B, B], BLOCK)


@gluon.jit
def barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr, ALONE: gl.constexpr = -1):
    """Make COUNT barriers that wait for ARRIVALS arrivals each, but number ALONE for one."""
    made = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(COUNT):
        mbarrier.init(made.index(i), count=1 if i == ALONE else ARRIVALS)
    return made


@gluon.jit
def places(STRIDE: gl.constexpr, LAYOUT: gl.constexpr):
    """Offsets of the numbers of a block from its first one, in elements."""
    rows = gl.arange(0, B, layout=gl.SliceLayout(1, LAYOUT))
    columns = gl.arange(0, B, layout=gl.SliceLayout(0, LAYOUT))
    return gl.expand_dims(rows, 1) * STRIDE + gl.expand_dims(columns, 0)


@gluon.jit
def store(X, start, x, STRIDE: gl.constexpr):
    """Store a block from the registers, rounded to bfloat16."""
    gl.store(X + start + places(STRIDE, STORED), gl.convert_layout(x.to(gl.bfloat16), STORED))


@gluon.jit
def backward_causal_attention_triton_gluon(
    q, k, v, dout, OUT, DOUT, LSE, SEED, DQKV, heads, scale, to_logits,
    H: gl.constexpr, NB: gl.constexpr, THRESHOLD: gl.constexpr,
):  # fmt: skip
    """Compute the gradients of this program's heads.

    The scores are computed once: dK and dV stay in registers, dS waits in shared memory for dQ.
    Four more warps compute what is one number a row, up to two heads ahead.
    """
    read = blocks(NB), blocks(NB), blocks(NB), blocks(NB)
    DS = blocks(NB * (NB + 1) // 2)
    rows = (
        gl.allocate_shared_memory(gl.float32, [2 * NB, B], FLAT),
        gl.allocate_shared_memory(gl.float32, [2 * NB, B], FLAT),
        gl.allocate_shared_memory(gl.uint32, [2 * NB, B], FLAT),
    )
    # only one group reads queries 0, only the other the last keys; each reads its own values
    q_bars = barriers(NB, 1), barriers(NB, 2, 0)
    k_bars = barriers(NB, 1), barriers(NB, 2, NB - 1)
    v_bars = barriers(NB, 1), barriers(NB, 1)
    r_bars = barriers(2 * NB, 1), barriers(2, 2)
    s_bars = barriers(1, 2), barriers(1, 2)
    bars = q_bars, k_bars, v_bars, r_bars, s_bars
    fence_async_shared()
    block_barrier()
    gl.warp_specialize([
        (make_gradients, (DQKV, read, DS, rows, bars, heads, scale, to_logits,
                          0, H, NB, THRESHOLD)),
        (make_gradients, (DQKV, read, DS, rows, bars, heads, scale, to_logits,
                          1, H, NB, THRESHOLD)),
        (make_rows, (OUT, DOUT, LSE, SEED, rows, r_bars, heads, H, NB, THRESHOLD)),
        (load_backward, (q, k, v, dout, read, q_bars, k_bars, v_bars, heads, H, NB)),
    ], [4, 4, 1], [208, 72, 24])  # fmt: skip


@gluon.jit
def load_backward(
    q, k, v, dout, read, q_bars, k_bars, v_bars, heads, H: gl.constexpr, NB: gl.constexpr
):  # fmt: skip
    """Load the blocks of all heads of this program.

    Those of the first head come in the order in which they are needed, those of the others in the
    order in which their places become free.
    """
    Q, K, V, DOUT = read
    for t in range(turns(heads)):
        head = gl.program_id(0) + t * gl.num_programs(0)
        row, column, parity = head // H * (NB * B), head % H * B, (t & 1) ^ 1
        if t == 0:
            for n in gl.static_range(NB // 2):
                for g in gl.static_range(2):
                    refill(k, K, k_bars, block_of(n, g, NB), row, column, parity)
                    refill_two(
                        q, dout, Q, DOUT, q_bars, block_of(n, g, NB), row, column, parity
                    )  # fmt: skip
                    refill(v, V, v_bars, block_of(n, g, NB), row, column, parity)
        else:
            for i in gl.static_range(NB // 2):
                refill(v, V, v_bars, NB - 1 - i, row, column, parity)
            for i in gl.static_range(NB):
                refill_two(q, dout, Q, DOUT, q_bars, i, row, column, parity)
            for i in gl.static_range(NB // 2):
                refill(v, V, v_bars, i, row, column, parity)
            for i in gl.static_range(NB):
                refill(k, K, k_bars, NB - 1 - i, row, column, parity)


@gluon.jit
def refill(x, X, bars, i: gl.constexpr, row, column, parity):
    """Load block i of the head that begins at (row, column), once its place is free."""
    full, empty = bars
    mbarrier.wait(empty.index(i), parity)
    mbarrier.expect(full.index(i), x.block_type.nbytes)
    tma_load(x, [row + i * B, column], full.index(i), X.index(i))


@gluon.jit
def refill_two(x, y, X, Y, bars, i: gl.constexpr, row, column, parity):
    """Load block i of both x and y, with one barrier."""
    full, empty = bars
    mbarrier.wait(empty.index(i), parity)
    mbarrier.expect(full.index(i), 2 * x.block_type.nbytes)
    tma_load(x, [row + i * B, column], full.index(i), X.index(i))
    tma_load(y, [row + i * B, column], full.index(i), Y.index(i))


@gluon.jit
def make_rows(
    OUT, DOUT, LSE, SEED, rows, bars, heads,
    H: gl.constexpr, NB: gl.constexpr, THRESHOLD: gl.constexpr,
):  # fmt: skip
    """Compute what is one number a row, for all heads of this program."""
    full, empty = bars
    seed = gl.load(SEED).to(gl.uint32) if THRESHOLD else 0
    within = places(H * B, LOADED)
    for t in range(turns(heads)):
        head = gl.program_id(0) + t * gl.num_programs(0)
        start = (head // H).to(gl.int64) * (NB * B * H * B) + head % H * B + within
        for n in gl.static_range(NB // 2):
            for g in gl.static_range(2):
                make_block_of_rows(
                    OUT + start, DOUT + start, LSE, seed, rows, full, empty, head, t,
                    block_of(n, g, NB), n + g == 0, H, NB, THRESHOLD,
                )  # fmt: skip


@gluon.jit
def make_block_of_rows(
    OUT, DOUT, LSE, seed, rows, full, empty, head, t, i: gl.constexpr, FIRST: gl.constexpr,
    H: gl.constexpr, NB: gl.constexpr, THRESHOLD: gl.constexpr,
):  # fmt: skip
    """Store -LSE, -sum of output x gradient, and the dropout hash's key for the rows of block i."""
    L, DELTA, KEY = rows
    kept: gl.constexpr = 1 - THRESHOLD / 2**32
    out = gl.load(OUT + i * (B * H * B)).to(gl.float32)
    dout = gl.load(DOUT + i * (B * H * B)).to(gl.float32)
    at = head * (NB * B) + i * B + gl.arange(0, B, layout=gl.SliceLayout(1, LOADED))
    lse = gl.load(LSE + at)
    delta = gl.sum(out * dout, 1) * kept
    slot = t & 1
    if FIRST:
        mbarrier.wait(empty.index(slot), ((t // 2) & 1) ^ 1)
    L.index(slot * NB + i).store(-lse)
    DELTA.index(slot * NB + i).store(-delta)
    if THRESHOLD:
        KEY.index(slot * NB + i).store(keys_of_rows(seed, at))
    block_barrier()
    mbarrier.arrive(full.index(slot * NB + i), count=1)


@gluon.jit
def make_gradients(
    DQKV, read, DS, rows, bars, heads, scale, to_logits,
    g: gl.constexpr, H: gl.constexpr, NB: gl.constexpr, THRESHOLD: gl.constexpr,
):  # fmt: skip
    """Compute the gradients of group g's blocks: of keys and values, then of queries.

    The queries' wait until both groups are done with keys and values.
    """
    r_empty = bars[3][1]
    s_full, s_empty = bars[4]
    kept: gl.constexpr = 1 - THRESHOLD / 2**32
    STRIDE: gl.constexpr = 3 * H * B
    for t in range(turns(heads)):
        head = gl.program_id(0) + t * gl.num_programs(0)
        start = (head // H).to(gl.int64) * (NB * B * STRIDE) + head % H * B
        mbarrier.wait(s_empty.index(0), (t & 1) ^ 1)
        for n in range(NB // 2):
            j = g + (1 - n) * (NB - 1 - 2 * g)
            last = n == NB // 2 - 1
            dk, dv = gradients_of_keys(read, DS, rows, bars, t, j, last, scale, NB, THRESHOLD)
            at = start + j * (B * STRIDE)
            store(DQKV, at + H * B, dk * (to_logits / kept), STRIDE)
            store(DQKV, at + 2 * H * B, dv * (1 / kept), STRIDE)
        fence_async_shared()
        block_barrier()
        mbarrier.arrive(r_empty.index(t & 1), count=1)
        mbarrier.arrive(s_full.index(0), count=1)
        mbarrier.wait(s_full.index(0), t & 1)
        for n in gl.static_range(NB // 2):
            dq = gradients_of_queries(
                DS, read[1], bars[1], t & 1, block_of(n, g, NB),
                0 if n == NB // 2 - 1 else g + 1, NB,
            )  # fmt: skip
            if n == NB // 2 - 1:
                mbarrier.arrive(s_empty.index(0), count=1)
            at = start + block_of(n, g, NB) * (B * STRIDE)
            store(DQKV, at, dq * (to_logits / kept), STRIDE)


@gluon.jit
def gradients_of_keys(
    read, DS, rows, bars, t, j, last, scale, NB: gl.constexpr, THRESHOLD: gl.constexpr
):  # fmt: skip
    """Compute dK and dV of block j, and store dS of it and each block of queries.

    Scores lie transposed, (keys, queries).
    """
    Q, K, V, DOUT = read
    L, DELTA, KEY = rows
    q_bars, k_bars, v_bars, r_bars, s_bars = bars
    parity = t & 1
    mbarrier.wait(k_bars[0].index(j), parity)
    mbarrier.wait(v_bars[0].index(j), parity)
    j_rows = gl.expand_dims(gl.arange(0, B, layout=IN_ROWS), 1)
    i_columns = gl.expand_dims(gl.arange(0, B, layout=IN_COLUMNS), 0)
    zero = gl.zeros([B, B], gl.float32, MMA)
    dk, dv = zero, zero
    for i in range(j, NB):
        at = parity * NB + i
        mbarrier.wait(r_bars[0].index(at), (t // 2) & 1)
        mbarrier.wait(q_bars[0].index(i), parity)
        q, dout = Q.index(i), DOUT.index(i)
        s = warpgroup_mma(K.index(j), q.permute((1, 0)), zero, use_acc=False, is_async=True)
        dp = warpgroup_mma(V.index(j), dout.permute((1, 0)), zero, use_acc=False, is_async=True)
        lse = L.index(at).load(IN_COLUMNS)
        s = warpgroup_mma_wait(1, deps=[s])
        p = gl.exp2(s * scale + gl.expand_dims(lse, 0))
        if i == j:
            p = gl.where(i_columns >= j_rows, p, 0.0)
        left = p
        if THRESHOLD:
            keys = gl.expand_dims(KEY.index(at).load(IN_COLUMNS), 0)
            left = gl.where(stays(keys, j * B + j_rows, THRESHOLD), p, 0.0)
        p_left = gl.convert_layout(left.to(gl.bfloat16), LEFT)
        dv = warpgroup_mma(p_left, dout, dv, is_async=True)
        p = p * gl.expand_dims(DELTA.index(at).load(IN_COLUMNS), 0)
        dp = warpgroup_mma_wait(1, deps=[dp])
        ds = gl.fma(left, dp, p).to(gl.bfloat16)  # p (dp - delta); -p delta of what is dropped
        ds_left = gl.convert_layout(ds, LEFT)
        dk = warpgroup_mma(ds_left, q, dk, is_async=True)
        DS.index(place_of(i, j, NB)).store(ds)
        dv, dk, p_left, ds_left = warpgroup_mma_wait(0, deps=[dv, dk, p_left, ds_left])
        block_barrier()
        mbarrier.arrive(q_bars[1].index(i), count=1, pred=last)
    mbarrier.arrive(v_bars[1].index(j), count=1)
    return dk, dv


@gluon.jit
def gradients_of_queries(
    DS, K, bars, parity, i: gl.constexpr, done: gl.constexpr, NB: gl.constexpr
):  # fmt: skip
    """Compute dQ of block i from dS and all keys up to it.

    The group does not need the blocks of keys from `done` on again: their places become free.
    """
    full, empty = bars
    dq = gl.zeros([B, B], gl.float32, MMA)
    for j in gl.static_range(i + 1):
        mbarrier.wait(full.index(j), parity)
        ds = DS.index(place_of(i, j, NB)).permute((1, 0))
        dq = warpgroup_mma(ds, K.index(j), dq, use_acc=j > 0, is_async=True)
    dq = warpgroup_mma_wait(0, deps=[dq])
    block_barrier()
    for j in gl.static_range(done, i + 1):
        mbarrier.arrive(empty.index(j), count=1)
    return dq


def describe(x: Tensor) -> TensorDescriptor:
    """Descriptor of blocks of a head's rows in x (B, T, H, D), whose heads lie side by side."""
    sequences, T, H, D = x.shape
    return TensorDescriptor(
        x, [sequences * T, H * D], [x.stride(1), 1], [B.value, B.value], BLOCK.value
    )  # fmt: skip


def launch_backward(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, seed: Tensor,
    dqkv: Tensor, threshold: int,
) -> None:  # fmt: skip
    """Write the gradients to dqkv (B, T, 3, H, D); lse is (B * H, T), the rest (B, T, H, D)."""
    sequences, T, H, D = q.shape
    heads = sequences * H
    backward_causal_attention_triton_gluon[(min(PROGRAMS, heads),)](
        *map(describe, (q, k, v, dout)), out, dout, lse, seed, dqkv, heads,
        math.log2(math.e) / math.sqrt(D), 1 / math.sqrt(D),
        H=H, NB=T // B.value, THRESHOLD=threshold, num_warps=4,
    )  # fmt: skip
