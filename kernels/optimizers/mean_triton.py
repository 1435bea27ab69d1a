"""The mean of several vectors, as they come from the ranks of a run, in Triton.

While backward runs, in captures of GPT-2 124M on two H200s, torch.mean takes 470 to 546 us a step
for all buckets, this kernel 344 to 371. With TRITON_INTERPRET=1 it runs on a CPU.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

ELEMENTS, WARPS = 4096, 4  # elements and warps of a program


@triton.jit
def mean_of_parts_triton(PARTS, MEAN, length, COUNT: tl.constexpr, ELEMENTS: tl.constexpr):
    """Store the mean of PARTS (COUNT, length), added in their order, in MEAN (length)."""
    at = tl.program_id(0).to(tl.int64) * ELEMENTS + tl.arange(0, ELEMENTS)
    total = tl.load(PARTS + at, mask=at < length, other=0.0)
    for part in tl.static_range(1, COUNT):
        total += tl.load(PARTS + part * length + at, mask=at < length, other=0.0)
    tl.store(MEAN + at, total * (1 / COUNT), mask=at < length)


def mean_of_parts(parts: Tensor, mean: Tensor) -> None:
    """Write the mean of parts (N, L) to mean (L); both are float32."""
    count, length = parts.shape
    with torch.cuda.device_of(parts):
        mean_of_parts_triton[(triton.cdiv(length, ELEMENTS),)](
            parts, mean, length, count, ELEMENTS, num_warps=WARPS
        )
