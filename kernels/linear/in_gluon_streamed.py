"""The product of kernels.linear.in_gluon for depths at which no program can keep its columns of the
weight.

That is so from 768 on. Chunks of both operands go through a ring. A program takes every n-th tile.
One warp loads; two groups of four warps take the tiles in turn: while one multiplies, the other
finishes its tile, which is written by way of shared memory. GELU's derivative reads its u there.
"""

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
)

from kernels.linear.in_gluon import barriers, describe, gelu, gelu_backward, multiply
from kernels.linear.tiles import GELU, Stream
from kernels.names_gluon import tma_load, tma_store


@gluon.jit
def load(x, w, A, W, full, empty, tiles, BLOCKS: gl.constexpr, CHUNKS: gl.constexpr,
         STAGES: gl.constexpr, TRANSPOSED: gl.constexpr):  # fmt: skip
    ROWS: gl.constexpr = A.shape[1]
    CHUNK: gl.constexpr = A.shape[2]
    COLUMNS: gl.constexpr = W.shape[1] if TRANSPOSED else W.shape[2]
    at = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row = tile // BLOCKS * ROWS
        n = tile % BLOCKS * COLUMNS
        for chunk in range(CHUNKS):
            k = chunk * CHUNK
            slot = at % STAGES
            arrived = full.index(slot)
            mbarrier.wait(empty.index(slot), ((at // STAGES) & 1) ^ 1)
            mbarrier.expect(arrived, x.block_type.nbytes + w.block_type.nbytes)
            tma_load(x, [row, k], arrived, A.index(slot))
            if TRANSPOSED:
                tma_load(w, [n, k], arrived, W.index(slot))
            else:
                tma_load(w, [k, n], arrived, W.index(slot))
            at += 1


@gluon.jit
def fetch(u, S, arrived, row, n, GROUP: gl.constexpr):
    """Load the tile's u into the group's places of S, once the stores from there are done."""
    PARTS: gl.constexpr = S.shape[0] // 2
    tma.store_wait(0)
    mbarrier.expect(arrived, u.block_type.nbytes * PARTS)
    for p in gl.static_range(PARTS):
        place = S.index(GROUP * PARTS + p)
        tma_load(u, [row, n + p * S.shape[2]], arrived, place)


@gluon.jit
def store(y, g, S, G, acc, row, n, p: gl.constexpr, GROUP: gl.constexpr, PARTS: gl.constexpr,
          KIND: gl.constexpr):  # fmt: skip
    """Store columns from n on, which are parts p and on of the tile."""
    if PARTS > 1:
        HALF: gl.constexpr = acc.shape[1] // 2
        left, right = acc.reshape([acc.shape[0], 2, HALF]).permute((0, 2, 1)).split()
        store(y, g, S, G, left, row, n, p, GROUP, PARTS // 2, KIND)
        store(y, g, S, G, right, row, n + HALF, p + PARTS // 2, GROUP, PARTS // 2, KIND)
    else:
        PLACES: gl.constexpr = S.shape[0] // 2
        place = S.index(GROUP * PLACES + p % PLACES)
        if KIND == 2:  # u lies there, and its gradient takes its place
            u = place.load(acc.type.layout).to(gl.float32)
            place.store(gelu_backward(acc.to(gl.bfloat16).to(gl.float32), u).to(gl.bfloat16))
        else:
            tma.store_wait(0)  # for the part before
            place.store(acc.to(gl.bfloat16))
        if KIND == 1:
            G.index(GROUP).store(gelu(acc).to(gl.bfloat16))
        fence_async_shared()
        tma_store(y, [row, n], place)
        if KIND == 1:
            tma_store(g, [row, n], G.index(GROUP))


@gluon.jit
def consume(y, g, u, A, W, S, G, full, empty, turn, arrived, tiles, GROUP: gl.constexpr,
            BLOCKS: gl.constexpr, CHUNKS: gl.constexpr, STAGES: gl.constexpr, PARTS: gl.constexpr,
            KIND: gl.constexpr, TRANSPOSED: gl.constexpr):  # fmt: skip
    """Multiply and store every second tile of the program, as group GROUP."""
    ROWS: gl.constexpr = A.shape[1]
    COLUMNS: gl.constexpr = W.shape[1] if TRANSPOSED else W.shape[2]
    programs = gl.num_programs(0)
    count = (tiles - gl.program_id(0) + programs - 1) // programs
    for i in range(GROUP, count, 2):
        tile = gl.program_id(0) + i * programs
        row = tile // BLOCKS * ROWS
        n = tile % BLOCKS * COLUMNS
        if KIND == 2:  # arrives during the product
            fetch(u, S, arrived.index(GROUP), row, n, GROUP)
        acc = multiply(A, W, full, empty, None, turn, i, GROUP, CHUNKS, STAGES, TRANSPOSED)
        if KIND == 2:
            mbarrier.wait(arrived.index(GROUP), (i // 2) & 1)
        store(y, g, S, G, acc, row, n, 0, GROUP, PARTS, KIND)
    tma.store_wait(0)


@gluon.jit
def work(x, w, y, g, u, M, N: gl.constexpr, CHUNKS: gl.constexpr, STAGES: gl.constexpr,
         PARTS: gl.constexpr, KIND: gl.constexpr, TRANSPOSED: gl.constexpr):  # fmt: skip
    COLUMNS: gl.constexpr = w.block_type.shape[0] if TRANSPOSED else w.block_type.shape[1]
    BLOCKS: gl.constexpr = N // COLUMNS
    PLACES: gl.constexpr = 2 * PARTS if KIND == 2 else 2
    tiles = M // x.block_type.shape[0] * BLOCKS
    A = gl.allocate_shared_memory(gl.bfloat16, [STAGES] + x.block_type.shape, x.layout)
    W = gl.allocate_shared_memory(gl.bfloat16, [STAGES] + w.block_type.shape, w.layout)
    S = gl.allocate_shared_memory(gl.bfloat16, [PLACES] + y.block_type.shape, y.layout)
    G = S
    if KIND == 1:
        G = gl.allocate_shared_memory(gl.bfloat16, [2] + y.block_type.shape, y.layout)
    full = barriers(STAGES)
    empty = barriers(STAGES)
    turn = barriers(2)
    arrived = barriers(2)
    fence_async_shared()
    gl.warp_specialize([
        (consume, (y, g, u, A, W, S, G, full, empty, turn, arrived, tiles, 0, BLOCKS, CHUNKS,
                   STAGES, PARTS, KIND, TRANSPOSED)),
        (consume, (y, g, u, A, W, S, G, full, empty, turn, arrived, tiles, 1, BLOCKS, CHUNKS,
                   STAGES, PARTS, KIND, TRANSPOSED)),
        (load, (x, w, A, W, full, empty, tiles, BLOCKS, CHUNKS, STAGES, TRANSPOSED)),
    ], [4, 1], [240, 24])  # fmt: skip


# three names, so that a profile shows and tests can prove which one ran
@gluon.jit
def linear_streamed_triton(x, w, y, g, u, M, N: gl.constexpr, CHUNKS: gl.constexpr,
                           STAGES: gl.constexpr, PARTS: gl.constexpr,
                           TRANSPOSED: gl.constexpr):  # fmt: skip
    work(x, w, y, g, u, M, N, CHUNKS, STAGES, PARTS, 0, TRANSPOSED)


@gluon.jit
def linear_streamed_forward_gelu_triton(x, w, y, g, u, M, N: gl.constexpr, CHUNKS: gl.constexpr,
                                        STAGES: gl.constexpr, PARTS: gl.constexpr,
                                        TRANSPOSED: gl.constexpr):  # fmt: skip
    work(x, w, y, g, u, M, N, CHUNKS, STAGES, PARTS, 1, TRANSPOSED)


@gluon.jit
def linear_streamed_backward_gelu_triton(x, w, y, g, u, M, N: gl.constexpr, CHUNKS: gl.constexpr,
                                         STAGES: gl.constexpr, PARTS: gl.constexpr,
                                         TRANSPOSED: gl.constexpr):  # fmt: skip
    work(x, w, y, g, u, M, N, CHUNKS, STAGES, PARTS, 2, TRANSPOSED)


KERNELS = (
    linear_streamed_triton,
    linear_streamed_forward_gelu_triton,
    linear_streamed_backward_gelu_triton,
)


def launch(
    x: Tensor, weight: Tensor, transposed: bool, tile: Stream, kind: int, u: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Launch the kernel; arguments and results are those of kernels.linear.in_gluon.launch."""
    N, K = weight.shape if transposed else weight.shape[::-1]
    y = x.new_empty(*x.shape[:-1], N)
    g = torch.empty_like(y) if kind == GELU else y
    rows = x.numel() // K
    written = [
        describe(tensor.view(rows, N), tile.rows, tile.columns // tile.parts)
        for tensor in (y, g, y if u is None else u)
    ]
    programs = torch.cuda.get_device_properties(x.device).multi_processor_count
    of_weight = (tile.columns, tile.chunk) if transposed else (tile.chunk, tile.columns)
    KERNELS[kind][(min(programs, rows // tile.rows * (N // tile.columns)),)](
        describe(x.view(rows, K), tile.rows, tile.chunk), describe(weight, *of_weight), *written,
        rows, N=N, CHUNKS=K // tile.chunk, STAGES=tile.stages, PARTS=tile.parts,
        TRANSPOSED=transposed, num_warps=4,
    )  # fmt: skip
    return y, g
