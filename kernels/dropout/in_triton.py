"""Dropout in kernels: a hash of a counter, so that forward and backward draw the same."""

import triton
import triton.language as tl


@triton.jit
def keys_of_rows(seed, rows):
    """Key for each row of the scores: its number and the seed, mixed (Chris Wellons' lowbias32)."""
    x = seed ^ (rows.to(tl.uint32) * 0x9E3779B9)
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def stays(keys, columns, THRESHOLD: tl.constexpr):
    """Whether dropout leaves each weight; it is computed again in backward and never stored."""
    x = (keys ^ (columns.to(tl.uint32) * 0x9E3779B9)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x >= THRESHOLD


@triton.jit
def dropped(x, SEED, row, column, THRESHOLD: tl.constexpr):
    """Apply dropout to x (rows, columns), or to its gradient in the same way."""
    if THRESHOLD:
        kept: tl.constexpr = 1 - THRESHOLD / 2**32
        keys = keys_of_rows(tl.load(SEED).to(tl.uint32), row)
        x = tl.where(stays(keys[:, None], column[None, :], THRESHOLD), x * (1 / kept), 0.0)
    return x


def threshold(dropout: float) -> int:
    """Threshold for 32 random bits: a weight is dropped if they are below it."""
    return min(round(dropout * 2**32), 2**32 - 1)
