"""A program of CuPy: numbers that are sorted."""

import cupy

from validation.framework_programs.parts import Mark, repeat, size


def cupy_sorts_control(fault: bool, mark: Mark) -> None:
    """Sorts a gigabyte of numbers."""
    numbers = cupy.random.rand(size(256_000_000, 1000), dtype=cupy.float32)
    repeat(lambda: cupy.sort(numbers), mark)
