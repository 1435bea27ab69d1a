"""Sizes of our own products, and the shapes for which they were measured to be faster."""

from dataclasses import dataclass
from typing import ClassVar

PLAIN, GELU, GELU_BACKWARD = 0, 1, 2  # what follows a product of our own in its kernel


@dataclass(frozen=True)
class Tile:
    """Sizes of a program of kernels.linear.in_gluon, which has 227 KiB of shared memory in all."""

    rows: ClassVar[int] = 64  # rows of y that a group of warps has at once
    columns: int  # columns of y, whose weights the program keeps; a power of two
    chunk: int  # part of the depth C that is loaded and multiplied at once
    stages: int  # chunks of x that are loaded ahead


@dataclass(frozen=True)
class Stream:
    """Sizes of a program of kernels.linear.in_gluon_streamed, which keeps no weight."""

    rows: ClassVar[int] = 128  # rows of y that a group of warps has at once
    columns: int  # columns of y; a power of two
    chunk: int  # part of the depth C that is loaded and multiplied at once
    stages: int  # chunks of both operands that are loaded ahead
    parts: int  # parts of a tile that are written one after the other, to save shared memory


# (C, O, whether the weight is (O, C), what follows) -> sizes, where our own product was faster than
# cuBLAS: us for 16,384 rows, GELU's own kernel included; one H200, Triton 3.6, 2026-11-22
TILES: dict[tuple[int, int, bool, int], Tile | Stream] = {
    (384, 1536, True, GELU): Tile(128, 64, 12),  # 62.1 -> 44.2
    (384, 1536, False, GELU_BACKWARD): Tile(128, 64, 6),  # 74.4 -> 50.4
    (384, 1536, True, PLAIN): Tile(128, 64, 12),  # 36.7 -> 31.4
    (384, 1152, True, PLAIN): Tile(128, 64, 12),  # 29.6 -> 25.6
    # for 12,288 rows
    (768, 3072, True, GELU): Stream(128, 64, 6, 4),  # 120.4 -> 93.4
    (768, 3072, False, GELU_BACKWARD): Stream(128, 64, 5, 2),  # 148.4 -> 101.5
    (768, 3072, True, PLAIN): Stream(128, 64, 6, 4),  # 85.9 -> 77.6
    (768, 2304, True, PLAIN): Stream(128, 64, 6, 4),  # 65.4 -> 60.5
}
