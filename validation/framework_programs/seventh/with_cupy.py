"""More programs of CuPy."""

from typing import Any

import cupy

from validation.framework_programs.parts import Mark, repeat, size


@cupy.fuse()
def residual_of(centre: Any, up: Any, down: Any, left: Any, right: Any) -> Any:
    return 4.01 * centre - up - down - left - right


add_scaled = cupy.ElementwiseKernel(
    "T x, T scale, T y", "T sum", "sum = x + scale * y", "add_scaled"
)


def cupy_conjugate_gradients(fault: bool, mark: Mark) -> None:
    """Solves Poisson's equation with scalars that go by the host; without the fault they stay.

    Each of two dot products in an iteration is read before the next kernel is launched.
    """
    edge = size(3072, 32)
    right_side = cupy.random.rand(edge, edge, dtype=cupy.float32)
    around = cupy.zeros((edge + 2, edge + 2), cupy.float32)

    def applied(p: Any) -> Any:
        around[1:-1, 1:-1] = p
        return residual_of(
            p, around[:-2, 1:-1], around[2:, 1:-1], around[1:-1, :-2], around[1:-1, 2:]
        )

    def dot(a: Any, b: Any) -> Any:
        product = cupy.vdot(a, b)
        return float(product) if fault else product

    def step() -> None:
        x, r = cupy.zeros_like(right_side), right_side
        p, rr = r, dot(r, r)
        for _ in range(20):
            q = applied(p)
            alpha = rr / dot(p, q)
            x, r = add_scaled(x, alpha, p), add_scaled(r, -alpha, q)
            following = dot(r, r)
            p, rr = add_scaled(r, following / rr, p), following

    repeat(step, mark)


def cupy_without_pool(fault: bool, mark: Mark) -> None:
    """Filters images with the memory pool switched off by set_allocator(None).

    Each temporary is a cudaMalloc and a cudaFree, and the latter waits for the GPU.
    """
    if fault:
        cupy.cuda.set_allocator(None)
    images = cupy.random.rand(size(16, 1), size(1024, 8), size(1024, 8), dtype=cupy.float32)

    def step() -> None:
        x = images
        for _ in range(8):
            x = cupy.maximum(x - x.mean((1, 2), keepdims=True), 0) * 0.5 + x * x

    repeat(step, mark)
