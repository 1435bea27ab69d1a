"""The hash of kernels.dropout_triton in PyTorch's 64-bit integers."""

import torch
from torch import Tensor

BITS = 0xFFFFFFFF


def mixed(x: Tensor, shift: int) -> Tensor:
    return x ^ (x >> shift)


def left_by_dropout(seed: int, dropout: float, rows: int, columns: int) -> Tensor:
    """Mask of dropout, (rows, columns) bool, true where nothing is dropped."""
    from kernels.dropout_triton import threshold  # imports triton, which may interpret

    x = mixed(torch.arange(rows) * 0x9E3779B9 & BITS ^ seed, 16) * 0x7FEB352D & BITS
    keys = mixed(mixed(x, 15) * 0x846CA68B & BITS, 16)
    x = (keys[:, None] ^ (torch.arange(columns) * 0x9E3779B9 & BITS)) * 0x7FEB352D & BITS
    return mixed(x, 15) * 0x846CA68B & BITS >= threshold(dropout)
