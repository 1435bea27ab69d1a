"""A program of CuPy: peaks of a volume, tile by tile."""

import cupy

from validation.framework_programs.parts import Mark, repeat, size


def cupy_trims_pool(fault: bool, mark: Mark) -> None:
    """Filters tiles with CUDA's own pool of memory as it is; without the fault with CuPy's.

    CUDA's pool gives its memory back whenever the host waits, which is for each tile's peak.
    """
    if fault:
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    edge = size(2048, 8)
    tiles = [cupy.random.rand(8, edge, edge, dtype=cupy.float32) for _ in range(6)]

    def step() -> None:
        for tile in tiles:
            sharp = tile - 0.25 * (cupy.roll(tile, 1, 1) + cupy.roll(tile, 1, 2))
            float((sharp * sharp).max())

    repeat(step, mark)
