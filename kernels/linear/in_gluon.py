"""The product of kernels.linear and kernels.mlp in Gluon, Triton's lower language, for Hopper GPUs.

It is y = x W^T or x W, followed by GELU or multiplied by GELU's derivative. cuBLAS reads the weight
once more for each tile of x; at a depth of 384 that is most of what it reads. Here a program keeps
its columns of the weight in shared memory. One warp loads first these, then tiles of x into a ring.
Two groups of four warps take the tiles in turn: while one multiplies, the other finishes its tile.
"""

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
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels.linear.tiles import GELU, Stream, Tile
from kernels.names_gluon import tma_load


def fits(
    x: Tensor, weight: Tensor, transposed: bool, tile: Tile | Stream, u: Tensor | None
) -> bool:
    """Whether `launch` takes these, here or in kernels.linear.in_gluon_streamed; else cuBLAS
    does."""
    N, K = weight.shape if transposed else weight.shape[::-1]
    read = [x, weight] if u is None else [x, weight, u]
    return (
        all(tensor.dtype == torch.bfloat16 and tensor.is_contiguous() for tensor in read)
        and all(tensor.data_ptr() % 16 == 0 for tensor in read)
        and x.numel() > 0
        and max(x.numel(), x.numel() // K * N) < 2**31
        and x.numel() // K % tile.rows == 0
        and K % tile.chunk == 0
        and N % tile.columns == 0
    )


@gluon.jit
def gelu(u):
    """GELU as max(u, 0) - |u| Q(|u|), where Q is the share of a normal distribution above |u|.

    The logarithm of Q to base 2 is a polynomial, right to 3e-4 of Q.
    """
    a = gl.abs(u)
    q = -0.000233251641 * a + 0.0048697679
    q = q * a - 0.0445989312
    q = q * a - 0.469681335
    q = q * a - 1.14626067
    q = q * a - 1.00035899
    return gl.maximum(u, 0.0) - a * gl.exp2(q)


@gluon.jit
def gelu_backward(dg, u):
    """Gradient dg GELU'(u): below 0, GELU' is (0.7518 - |u|) 2^q with a polynomial q.

    Above 0 it is 1 minus that expression.
    """
    a = gl.abs(u)
    q = -0.000233594013 * a + 0.00432051972
    q = q * a - 0.032853236
    q = q * a - 0.583356814
    q = q * a - 0.37426709
    q = q * a - 0.588979807
    t = (0.75179152 - a) * gl.exp2(q) * dg
    return gl.where(u < 0, t, dg - t)


@gluon.jit
def load(x, w, A, W, full, empty, w_full, n, first, step, tiles, CHUNKS: gl.constexpr,
         STAGES: gl.constexpr, TRANSPOSED: gl.constexpr):  # fmt: skip
    ROWS: gl.constexpr = A.shape[1]
    CHUNK: gl.constexpr = A.shape[2]
    at = 0
    for i in range(tiles):
        row = (first + i * step) * ROWS
        for k in gl.static_range(CHUNKS):
            if i == 0:
                mbarrier.expect(w_full.index(k), w.block_type.nbytes)
                if TRANSPOSED:
                    tma_load(w, [n, k * CHUNK], w_full.index(k), W.index(k))
                else:
                    tma_load(w, [k * CHUNK, n], w_full.index(k), W.index(k))
            slot = at % STAGES
            mbarrier.wait(empty.index(slot), ((at // STAGES) & 1) ^ 1)
            mbarrier.expect(full.index(slot), x.block_type.nbytes)
            tma_load(x, [row, k * CHUNK], full.index(slot), A.index(slot))
            at += 1


@gluon.jit
def multiply(A, W, full, empty, w_full, turn, i, GROUP: gl.constexpr, CHUNKS: gl.constexpr,
             STAGES: gl.constexpr, TRANSPOSED: gl.constexpr):  # fmt: skip
    """Compute the program's tile i in float32. W is a ring like A if w_full is None.

    A barrier's parity only tells a phase from the next one. So a group waits for its turn: until
    the other one has seen all of the tile before.
    """
    ROWS: gl.constexpr = A.shape[1]
    COLUMNS: gl.constexpr = W.shape[1] if TRANSPOSED else W.shape[2]
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 16])
    acc = gl.zeros([ROWS, COLUMNS], gl.float32, LAYOUT)
    mbarrier.wait(turn.index(GROUP), ((i // 2) & 1) ^ (1 - GROUP))
    for k in gl.static_range(CHUNKS):
        at = i * CHUNKS + k
        slot = at % STAGES
        if w_full is not None:  # noqa: SIM102, this one is decided by the compiler
            if i == GROUP:
                mbarrier.wait(w_full.index(k), 0)
        mbarrier.wait(full.index(slot), (at // STAGES) & 1)
        kept = W.index(slot if w_full is None else k)
        b = kept.permute((1, 0)) if TRANSPOSED else kept
        acc = warpgroup_mma(A.index(slot), b, acc, use_acc=k > 0, is_async=True)
        if k == CHUNKS - 1:
            mbarrier.arrive(turn.index(1 - GROUP), count=1)
        if k > 0:
            acc = warpgroup_mma_wait(1, deps=[acc])
            mbarrier.arrive(empty.index((at - 1) % STAGES), count=1)
    acc = warpgroup_mma_wait(0, deps=[acc])
    mbarrier.arrive(empty.index((i * CHUNKS + CHUNKS - 1) % STAGES), count=1)
    return acc


@gluon.jit
def places(row, n, N: gl.constexpr, COLUMNS: gl.constexpr, LAYOUT: gl.constexpr):
    rows = row + gl.arange(0, 64, layout=gl.SliceLayout(1, LAYOUT))
    columns = n + gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, LAYOUT))
    return gl.expand_dims(rows, 1) * N + gl.expand_dims(columns, 0)


@gluon.jit
def store(y, g, acc, u, row, n, N: gl.constexpr, KIND: gl.constexpr, LAYOUT: gl.constexpr):
    """Store a tile. Threads exchange numbers first, so that four write 64 bytes of a row."""
    at = places(row, n, N, acc.shape[1], LAYOUT)
    rounded = gl.convert_layout(acc.to(gl.bfloat16), LAYOUT)
    if KIND == 2:
        rounded = gelu_backward(rounded.to(gl.float32), u.to(gl.float32)).to(gl.bfloat16)
    gl.store(y + at, rounded)
    if KIND == 1:
        gl.store(g + at, gl.convert_layout(gelu(acc).to(gl.bfloat16), LAYOUT))


@gluon.jit
def consume(y, g, u, A, W, full, empty, w_full, turn, n, first, step, tiles, GROUP: gl.constexpr,
            N: gl.constexpr, CHUNKS: gl.constexpr, STAGES: gl.constexpr, KIND: gl.constexpr,
            TRANSPOSED: gl.constexpr, LAYOUT: gl.constexpr):  # fmt: skip
    COLUMNS: gl.constexpr = W.shape[1] if TRANSPOSED else W.shape[2]
    for i in range(GROUP, tiles, 2):
        row = (first + i * step) * A.shape[1]
        read = u
        if KIND == 2:
            read = gl.load(u + places(row, n, N, COLUMNS, LAYOUT))  # arrives during the product
        acc = multiply(A, W, full, empty, w_full, turn, i, GROUP, CHUNKS, STAGES, TRANSPOSED)
        store(y, g, acc, read, row, n, N, KIND, LAYOUT)


@gluon.jit
def work(x, w, y, g, u, M, N: gl.constexpr, CHUNKS: gl.constexpr, STAGES: gl.constexpr,
         KIND: gl.constexpr, TRANSPOSED: gl.constexpr, LAYOUT: gl.constexpr):  # fmt: skip
    ROWS: gl.constexpr = x.block_type.shape[0]
    COLUMNS: gl.constexpr = w.block_type.shape[0] if TRANSPOSED else w.block_type.shape[1]
    BLOCKS: gl.constexpr = (N + COLUMNS - 1) // COLUMNS
    n = gl.program_id(0) % BLOCKS * COLUMNS
    first = gl.program_id(0) // BLOCKS
    step = gl.num_programs(0) // BLOCKS
    tiles = (M // ROWS - first + step - 1) // step
    A = gl.allocate_shared_memory(gl.bfloat16, [STAGES] + x.block_type.shape, x.layout)
    W = gl.allocate_shared_memory(gl.bfloat16, [CHUNKS] + w.block_type.shape, w.layout)
    full = barriers(STAGES)
    empty = barriers(STAGES)
    w_full = barriers(CHUNKS)
    turn = barriers(2)
    fence_async_shared()
    gl.warp_specialize([
        (consume, (y, g, u, A, W, full, empty, w_full, turn, n, first, step, tiles, 0, N, CHUNKS,
                   STAGES, KIND, TRANSPOSED, LAYOUT)),
        (consume, (y, g, u, A, W, full, empty, w_full, turn, n, first, step, tiles, 1, N, CHUNKS,
                   STAGES, KIND, TRANSPOSED, LAYOUT)),
        (load, (x, w, A, W, full, empty, w_full, n, first, step, tiles, CHUNKS, STAGES,
                TRANSPOSED)),
    ], [4, 1], [240, 24])  # fmt: skip


@gluon.jit
def barriers(COUNT: gl.constexpr):
    of_all = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(COUNT):
        mbarrier.init(of_all.index(i), count=1)
    return of_all


# three names, so that a profile shows and tests can prove which one ran
@gluon.jit
def linear_triton(x, w, y, g, u, M, N: gl.constexpr, CHUNKS: gl.constexpr, STAGES: gl.constexpr,
                  TRANSPOSED: gl.constexpr, LAYOUT: gl.constexpr):  # fmt: skip
    work(x, w, y, g, u, M, N, CHUNKS, STAGES, 0, TRANSPOSED, LAYOUT)


@gluon.jit
def linear_forward_gelu_triton(x, w, y, g, u, M, N: gl.constexpr, CHUNKS: gl.constexpr,
                               STAGES: gl.constexpr, TRANSPOSED: gl.constexpr,
                               LAYOUT: gl.constexpr):  # fmt: skip
    work(x, w, y, g, u, M, N, CHUNKS, STAGES, 1, TRANSPOSED, LAYOUT)


@gluon.jit
def linear_backward_gelu_triton(x, w, y, g, u, M, N: gl.constexpr, CHUNKS: gl.constexpr,
                                STAGES: gl.constexpr, TRANSPOSED: gl.constexpr,
                                LAYOUT: gl.constexpr):  # fmt: skip
    work(x, w, y, g, u, M, N, CHUNKS, STAGES, 2, TRANSPOSED, LAYOUT)


KERNELS = (linear_triton, linear_forward_gelu_triton, linear_backward_gelu_triton)


def layout(columns: int) -> gl.DistributedLinearLayout:
    """Layout of (64, columns) for stores, in which a thread has 8 neighbours of a row.

    It is a product's layout, in which a thread has 2, but for two bits that are exchanged within a
    warp.
    """
    wide = [[0, bit] for bit in (32, 64, 128) if bit < columns]
    registers, lanes = [[0, 1], [0, 2], [0, 4], [8, 0], *wide], [[0, 8], [0, 16]]
    lanes += [[1, 0], [2, 0], [4, 0]]
    return gl.DistributedLinearLayout(registers, lanes, [[16, 0], [32, 0]], [], [64, columns])


def describe(tensor: Tensor, rows: int, columns: int) -> TensorDescriptor:
    block = [rows, columns]
    of_block = gl.NVMMASharedLayout.get_default_for(block, gl.bfloat16)
    return TensorDescriptor.from_tensor(tensor, block, of_block)


def launch(
    x: Tensor, weight: Tensor, transposed: bool, tile: Tile, kind: int, u: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Multiply x (..., K) by weight, (N, K) if transposed, else (K, N); u and results are (..., N).

    PLAIN returns y twice, GELU y and its GELU, GELU_BACKWARD y GELU'(u) twice.
    """
    N, K = weight.shape if transposed else weight.shape[::-1]
    y = x.new_empty(*x.shape[:-1], N)
    g = torch.empty_like(y) if kind == GELU else y
    blocks = N // tile.columns
    rows = x.numel() // K
    programs = torch.cuda.get_device_properties(x.device).multi_processor_count // blocks
    of_weight = (tile.columns, tile.chunk) if transposed else (tile.chunk, tile.columns)
    KERNELS[kind][(min(programs, rows // tile.rows) * blocks,)](
        describe(x.view(rows, K), tile.rows, tile.chunk), describe(weight, *of_weight),
        y, g, y if u is None else u, rows, N=N, CHUNKS=K // tile.chunk, STAGES=tile.stages,
        TRANSPOSED=transposed, LAYOUT=layout(tile.columns), num_warps=4,
    )  # fmt: skip
    return y, g
