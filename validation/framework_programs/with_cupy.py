"""Programs of CuPy."""

from typing import Any

import cupy
from cupyx.profiler import time_range

from validation.framework_programs.parts import Mark, repeat, size


def respond(x: Any) -> Any:
    """A response curve: nine operators, element by element."""
    return cupy.exp(-x * x) * cupy.sin(x) + 0.5 * x * cupy.sqrt(cupy.abs(x) + 1)


def cupy_one_by_one(fault: bool, mark: Mark) -> None:
    """A curve as one kernel for each operator; without the fault as one, by cupy.fuse."""
    x = cupy.random.rand(size(64_000_000, 1_000), dtype=cupy.float32)
    curve = respond if fault else cupy.fuse(respond)
    repeat(lambda: curve(x), mark)


def cupy_checks_residual(fault: bool, mark: Mark) -> None:
    """Ten sweeps of Jacobi's method that compare the residual with a tolerance on the host."""
    edge = size(2560, 32)
    u = cupy.random.rand(edge, edge, dtype=cupy.float32)

    @cupy.fuse()
    def average(a: Any, b: Any, c: Any, d: Any) -> Any:
        return 0.25 * (a + b + c + d)

    def sweep() -> None:
        inside = average(u[:-2, 1:-1], u[2:, 1:-1], u[1:-1, :-2], u[1:-1, 2:])
        residual = cupy.abs(inside - u[1:-1, 1:-1]).max()
        u[1:-1, 1:-1] = inside
        if fault and float(residual) < 1e-12:
            raise ArithmeticError("the sweeps have converged")

    def step() -> None:
        for _ in range(10):
            sweep()

    repeat(step, mark)


def cupy_frees_pool(fault: bool, mark: Mark) -> None:
    """Gives the pool's memory back after each batch of spectra."""
    frames = cupy.random.rand(size(48, 2), size(1024, 16), size(1024, 16), dtype=cupy.float32)
    pool = cupy.get_default_memory_pool()

    def step() -> None:
        spectra = cupy.fft.fft2(frames)
        (cupy.abs(spectra) ** 2).mean(0)
        del spectra
        if fault:
            pool.free_all_blocks()

    repeat(step, mark)


def cupy_control(fault: bool, mark: Mark) -> None:
    """Products of large matrices, with a range around each."""
    edge = size(8192, 16)
    a = cupy.random.rand(edge, edge, dtype=cupy.float32).astype(cupy.float16)

    def step() -> None:
        with time_range("product"):
            a @ a

    repeat(step, mark)
