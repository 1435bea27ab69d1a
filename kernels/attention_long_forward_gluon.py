"""The forward of kernels.attention for long sequences in Gluon, for Hopper GPUs.

Heads of width 64, bfloat16, no dropout. A tile is GROUPS blocks of 64 queries of a head; a group of
four warps has one of them and passes over the keys before it, from the last to the first, so that
only its first block of keys needs a mask. One more warp loads: queries, and keys and values into
rings, which all groups read. A group's softmax lies behind its own product with the values before,
and behind the other groups' products.

Names as in kernels.attention_triton; r counts blocks of 64 queries, n blocks of N keys, t the tiles
of a program, `at` all blocks of keys of a program. A barrier `full` says that a block has arrived,
`empty` that all are done with it. The parity of a barrier tells a phase from the next one only.
"""

import math

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
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

B = gl.constexpr(64)  # queries of a group, and the width of a head
OUT_MMA = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16]))


@gluon.jit
def barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    made = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(COUNT):
        mbarrier.init(made.index(i), count=ARRIVALS)
    return made


@gluon.jit
def tile_of(t):
    """The program's tile t: there and back, for tiles become shorter."""
    p, programs = gl.program_id(0), gl.num_programs(0)
    return t * programs + (programs - 1 - p if t & 1 else p)


@gluon.jit
def turns(tiles):
    """How many tiles this program has."""
    whole = tiles // gl.num_programs(0)
    return whole + (tile_of(whole) < tiles).to(gl.int32)


@gluon.jit
def last_block(tile, heads, T, GROUPS: gl.constexpr):
    """The last of the tile's blocks of queries: the longest tiles come first."""
    return T // B - 1 - tile // heads * GROUPS


@gluon.jit
def keys_before(r, N: gl.constexpr):
    """How many blocks of keys queries r see."""
    return (r * B + B + N - 1) // N


@gluon.jit
def load(q, k, v, Q, K, V, q_bars, kv_bars, tiles, heads, T, H: gl.constexpr):
    """Queries once all products with the ones before are made, keys and values from the last."""
    GROUPS: gl.constexpr = Q.shape[0]
    STAGES: gl.constexpr = K.shape[0]
    N: gl.constexpr = K.shape[1]
    q_full, q_empty = q_bars
    full, empty = kv_bars
    at = 0
    for t in range(turns(tiles)):
        tile = tile_of(t)
        head, last = tile % heads, last_block(tile, heads, T, GROUPS)
        row, column = head // H * T, head % H * B
        for g in gl.static_range(GROUPS):
            mbarrier.wait(q_empty.index(g), (t & 1) ^ 1)
            mbarrier.expect(q_full.index(g), q.block_type.nbytes)
            at_q = [row + gl.maximum(last - g, 0) * B, column]
            tma.async_copy_global_to_shared(q, at_q, q_full.index(g), Q.index(g))
        blocks = keys_before(last, N)
        for n in range(blocks):
            slot = at % STAGES
            mbarrier.wait(empty.index(slot), (at // STAGES & 1) ^ 1)
            mbarrier.expect(full.index(slot), 2 * k.block_type.nbytes)
            at_k = [row + (blocks - 1 - n) * N, column]
            tma.async_copy_global_to_shared(k, at_k, full.index(slot), K.index(slot))
            tma.async_copy_global_to_shared(v, at_k, full.index(slot), V.index(slot))
            at += 1


@gluon.jit
def pack(p):
    """Two bfloat16 in each 32 bits: else the compiler gives each a register of its own."""
    low, high = p.reshape([p.shape[0], p.shape[1] // 2, 2]).split()
    return gl.inline_asm_elementwise(
        "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,r,r", [low, high],
        dtype=gl.int32, is_pure=True, pack=1,
    )  # fmt: skip


@gluon.jit
def unpack(packed, LAYOUT: gl.constexpr):
    low = packed.to(gl.int16).to(gl.bfloat16, bitcast=True)
    high = (packed >> 16).to(gl.int16).to(gl.bfloat16, bitcast=True)
    both = gl.join(low, high).reshape([packed.shape[0], packed.shape[1] * 2])
    return gl.convert_layout(both, LAYOUT)


@gluon.jit
def attend(
    o, LSE, Q, K, V, OUT, q_bars, kv_bars, tiles, heads, T, scale,
    g: gl.constexpr, H: gl.constexpr,
):  # fmt: skip
    """Group g's queries of each tile."""
    STAGES: gl.constexpr = K.shape[0]
    N: gl.constexpr = K.shape[1]
    MMA: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16])
    LEFT: gl.constexpr = gl.DotOperandLayout(0, OUT_MMA, 2)
    OUT_ROWS: gl.constexpr = gl.SliceLayout(1, OUT_MMA)
    q_full, q_empty = q_bars
    full, empty = kv_bars
    q = Q.index(g)
    zero = gl.zeros([B, N], gl.float32, MMA)
    at = 0
    for t in range(turns(tiles)):
        tile = tile_of(t)
        head, last = tile % heads, last_block(tile, heads, T, Q.shape[0])
        r = gl.maximum(last - g, 0)  # where no block is left, the first one is made once more
        blocks = keys_before(r, N)
        for _ in range(keys_before(last, N) - blocks):  # which other groups need
            mbarrier.wait(full.index(at % STAGES), at // STAGES & 1)
            mbarrier.arrive(empty.index(at % STAGES), count=1)
            at += 1
        mbarrier.wait(q_full.index(g), t & 1)
        mbarrier.wait(full.index(at % STAGES), at // STAGES & 1)
        k = K.index(at % STAGES).permute((1, 0))
        s = warpgroup_mma(q, k, zero, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(0, deps=[s])
        i = r * B + gl.arange(0, B, layout=gl.SliceLayout(1, MMA))
        j = (blocks - 1) * N + gl.arange(0, N, layout=gl.SliceLayout(0, MMA))
        s = gl.where(gl.expand_dims(i, 1) >= gl.expand_dims(j, 0), s, -float("inf"))
        most = gl.max(s, 1) * scale
        p = gl.exp2(gl.fma(s, scale, -gl.expand_dims(most, 1)))
        total = gl.sum(p, 1)
        packed = pack(p)
        out = gl.zeros([B, B], gl.float32, OUT_MMA)
        for _ in range(1, blocks):
            slot, other = at % STAGES, (at + 1) % STAGES
            mbarrier.wait(full.index(other), (at + 1) // STAGES & 1)
            k = K.index(other).permute((1, 0))
            s = warpgroup_mma(q, k, zero, use_acc=False, is_async=True)
            out = warpgroup_mma(unpack(packed, LEFT), V.index(slot), out, is_async=True)
            s = warpgroup_mma_wait(1, deps=[s])
            higher = gl.maximum(most, gl.max(s, 1) * scale)
            shrunk = gl.exp2(most - higher)
            p = gl.exp2(gl.fma(s, scale, -gl.expand_dims(higher, 1)))
            total = total * shrunk + gl.sum(p, 1)
            most = higher
            # long true: a branch, which keeps the compiler from waiting for the product first
            mbarrier.wait(full.index(slot), at // STAGES & 1)
            out, packed, p, total = warpgroup_mma_wait(0, deps=[out, packed, p, total])
            packed = pack(p)
            mbarrier.arrive(empty.index(slot), count=1)
            out = out * gl.expand_dims(gl.convert_layout(shrunk, OUT_ROWS), 1)
            at += 1
        mbarrier.arrive(q_empty.index(g), count=1)
        out = warpgroup_mma(unpack(packed, LEFT), V.index(at % STAGES), out, is_async=True)
        out, packed = warpgroup_mma_wait(0, deps=[out, packed])
        mbarrier.arrive(empty.index(at % STAGES), count=1)
        at += 1
        out = out * gl.expand_dims(gl.convert_layout(1 / total, OUT_ROWS), 1)
        tma.store_wait(0)  # of the tile before
        OUT.index(g).store(out.to(gl.bfloat16))
        fence_async_shared()
        tma.async_copy_shared_to_global(o, [head // H * T + r * B, head % H * B], OUT.index(g))
        gl.store(LSE + head * T + i, most + gl.log2(total))
    tma.store_wait(0)


@gluon.jit
def forward_causal_attention_triton_gluon(
    q, k, v, o, LSE, heads, T, scale,
    H: gl.constexpr, GROUPS: gl.constexpr, STAGES: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """q, k, v and o are (B * T, H * 64); LSE, (B * H, T), the logarithm of each row's sum."""
    KEYS: gl.constexpr = [STAGES] + k.block_type.shape
    Q = gl.allocate_shared_memory(gl.bfloat16, [GROUPS, B, B], q.layout)
    K = gl.allocate_shared_memory(gl.bfloat16, KEYS, k.layout)
    V = gl.allocate_shared_memory(gl.bfloat16, KEYS, v.layout)
    OUT = gl.allocate_shared_memory(gl.bfloat16, [GROUPS, B, B], o.layout)
    q_bars = barriers(GROUPS, 1), barriers(GROUPS, 1)
    kv_bars = barriers(STAGES, 1), barriers(STAGES, GROUPS)
    tiles = (T // B + GROUPS - 1) // GROUPS * heads
    fence_async_shared()
    gl.thread_barrier()
    if GROUPS == 2:
        gl.warp_specialize([
            (attend, (o, LSE, Q, K, V, OUT, q_bars, kv_bars, tiles, heads, T, scale, 0, H)),
            (attend, (o, LSE, Q, K, V, OUT, q_bars, kv_bars, tiles, heads, T, scale, 1, H)),
            (load, (q, k, v, Q, K, V, q_bars, kv_bars, tiles, heads, T, H)),
        ], [4, 1], [REGISTERS, 24])  # fmt: skip
    elif GROUPS == 3:
        gl.warp_specialize([
            (attend, (o, LSE, Q, K, V, OUT, q_bars, kv_bars, tiles, heads, T, scale, 0, H)),
            (attend, (o, LSE, Q, K, V, OUT, q_bars, kv_bars, tiles, heads, T, scale, 1, H)),
            (attend, (o, LSE, Q, K, V, OUT, q_bars, kv_bars, tiles, heads, T, scale, 2, H)),
            (load, (q, k, v, Q, K, V, q_bars, kv_bars, tiles, heads, T, H)),
        ], [4, 4, 1], [REGISTERS, REGISTERS, 24])  # fmt: skip
    else:
        gl.warp_specialize([
            (attend, (o, LSE, Q, K, V, OUT, q_bars, kv_bars, tiles, heads, T, scale, 0, H)),
            (attend, (o, LSE, Q, K, V, OUT, q_bars, kv_bars, tiles, heads, T, scale, 1, H)),
            (attend, (o, LSE, Q, K, V, OUT, q_bars, kv_bars, tiles, heads, T, scale, 2, H)),
            (attend, (o, LSE, Q, K, V, OUT, q_bars, kv_bars, tiles, heads, T, scale, 3, H)),
            (load, (q, k, v, Q, K, V, q_bars, kv_bars, tiles, heads, T, H)),
        ], [4, 4, 4, 1], [REGISTERS, REGISTERS, REGISTERS, 24])  # fmt: skip


def describe(x: Tensor, rows: int) -> TensorDescriptor:
    """Of (B, T, H, D) with heads side by side: blocks of a head's rows."""
    sequences, T, H, D = x.shape
    block = [rows, D]
    layout = gl.NVMMASharedLayout.get_default_for(block, gl.bfloat16)
    return TensorDescriptor(x, [sequences * T, H * D], [x.stride(1), 1], block, layout)


GROUPS, N, STAGES, REGISTERS, PROGRAMS = 3, 128, 4, 160, 132


def launch_forward(q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor) -> None:
    """q, k, v and out are (B, T, H, D), lse is (B * H, T); writes out and lse."""
    sequences, T, H, D = q.shape
    heads = sequences * H
    tiles = -(T // -B.value // GROUPS) * heads
    forward_causal_attention_triton_gluon[(min(PROGRAMS, tiles),)](
        describe(q, B.value), describe(k, N), describe(v, N), describe(out, B.value), lse, heads, T,
        math.log2(math.e) / math.sqrt(D),
        H=H, GROUPS=GROUPS, STAGES=STAGES, REGISTERS=REGISTERS, num_warps=4,
    )  # fmt: skip
