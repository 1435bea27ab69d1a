"""The square as a Triton kernel. Imported by profiling.lab.square if triton is installed.

With TRITON_INTERPRET=1 in the environment the kernel runs on a CPU, slowly: for tests.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit
def square_kernel(source, target, source_stride, target_stride, columns, BLOCK: tl.constexpr):
    """Square one row per program, a block at a time; the mask cuts the last block at the row's end.

    A kernel that held a whole row in one block would be wrong, or not compile, beyond its width.
    """
    row = tl.program_id(0).to(tl.int64)  # a row's offset may exceed 2**31
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < columns
        x = tl.load(source + row * source_stride + at, mask=inside)
        wide = x.to(tl.float32)  # bfloat16 and float16 are rounded once, as PyTorch does
        tl.store(target + row * target_stride + at, wide * wide, mask=inside)


def triton_square(source: Tensor) -> Tensor:
    """Square a (rows, columns) matrix. Elements of a row must be contiguous; rows may have any
    stride.

    Raises ValueError for other shapes, and for types other than float32, bfloat16, float16.
    """
    if source.dim() != 2 or source.stride(1) != 1:
        raise ValueError("triton_square: needs a matrix whose rows are contiguous")
    if source.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"triton_square: {source.dtype}: must be float32, bfloat16 or float16")
    rows, columns = source.shape
    target = torch.empty((rows, columns), dtype=source.dtype, device=source.device)
    if source.numel():
        square_kernel[(rows,)](
            source, target, source.stride(0), target.stride(0), columns, BLOCK=BLOCK
        )
    return target
