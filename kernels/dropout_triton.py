"""Dropout inside of kernels: a hash of a counter, which forward and backward draw alike."""

import triton
import triton.language as tl


@triton.jit
def keys_of_rows(seed, rows):
    """A number for each row of the scores: a counter, mixed (lowbias32 of Chris Wellons)."""
    x = seed ^ (rows.to(tl.uint32) * 0x9E3779B9)
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def stays(keys, columns, THRESHOLD: tl.constexpr):
    """Whether dropout leaves a weight. Nothing of it is stored."""
    x = (keys ^ (columns.to(tl.uint32) * 0x9E3779B9)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x >= THRESHOLD


@triton.jit
def dropped(x, SEED, row, column, THRESHOLD: tl.constexpr):
    """x, (rows, columns), behind dropout; a gradient goes the same way."""
    if THRESHOLD:
        kept: tl.constexpr = 1 - THRESHOLD / 2**32
        keys = keys_of_rows(tl.load(SEED).to(tl.uint32), row)
        x = tl.where(stays(keys[:, None], column[None, :], THRESHOLD), x * (1 / kept), 0.0)
    return x


def threshold(dropout: float) -> int:
    """Of 32 random bits: below it a weight is dropped."""
    return min(round(dropout * 2**32), 2**32 - 1)
