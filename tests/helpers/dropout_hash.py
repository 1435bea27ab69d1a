"""The hash of kernels.dropout.in_triton in PyTorch's 64-bit integers."""

import torch
from torch import Tensor

BITS = 0xFFFFFFFF


def mix_bits(x: Tensor, shift: int) -> Tensor:
    return x ^ (x >> shift)


def dropout_mask(seed: int, dropout: float, rows: int, columns: int) -> Tensor:
    """Mask of dropout, (rows, columns) bool, true where nothing is dropped."""
    from kernels.dropout.in_triton import threshold  # imports triton, which may interpret

    x = mix_bits(torch.arange(rows) * 0x9E3779B9 & BITS ^ seed, 16) * 0x7FEB352D & BITS
    keys = mix_bits(mix_bits(x, 15) * 0x846CA68B & BITS, 16)
    x = (keys[:, None] ^ (torch.arange(columns) * 0x9E3779B9 & BITS)) * 0x7FEB352D & BITS
    return mix_bits(x, 15) * 0x846CA68B & BITS >= threshold(dropout)
