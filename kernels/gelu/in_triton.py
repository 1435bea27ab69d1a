"""The kernels of kernels.gelu in Triton, and their launches.

u is the input, g the output; d before a name is its gradient. With TRITON_INTERPRET=1 in the
environment the kernels run on a CPU, slowly: for tests.
"""

import triton
import triton.language as tl
from torch import Tensor

BLOCK, WARPS = 1024, 2  # elements and warps of a program


@triton.jit
def share_below(u):
    """Share of a normal distribution below u, and exp(-u^2 / 2).

    The share below -|u| is exp(-u^2 / 2) times a function of t = 1 / (1 + 0.36 |u|), here a
    polynomial fitted to it: right to 9e-7 of its value, for every u. GELU's speed depends on its
    number of instructions: with CUDA's erf it has 36 for an element and 51 for its gradient, in
    this way 20 and 24, since the gradient needs the exponential as well.
    """
    near = 1 + 0.36 * tl.abs(u)
    t = tl.rsqrt(near * near)  # one instruction of the GPU, where a quotient takes eight
    bell = tl.exp2(u * u * -0.72134752)
    share = 0.047055541 * t - 0.17976216
    share = share * t + 0.18095061
    share = share * t + 0.026551629
    share = share * t + 0.13971844
    share = share * t + 0.14177260
    share = share * t + 0.14371304
    share = share * t * bell
    return tl.where(u < 0, share, 1 - share), bell


@triton.jit
def forward_gelu_triton(U, G, size, BLOCK: tl.constexpr):
    # the last block first: the product before wrote it last, and it may still be in the cache
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    at = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    u = tl.load(U + at, mask=at < size, other=0.0).to(tl.float32)
    share, _ = share_below(u)
    tl.store(G + at, (u * share).to(G.dtype.element_ty), mask=at < size)


@triton.jit
def backward_gelu_triton(U, DG, DU, size, BLOCK: tl.constexpr):
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    at = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    u = tl.load(U + at, mask=at < size, other=0.0).to(tl.float32)
    dg = tl.load(DG + at, mask=at < size, other=0.0).to(tl.float32)
    share, bell = share_below(u)
    du = dg * (share + u * bell * 0.39894228)  # 1 / sqrt(2 pi)
    tl.store(DU + at, du.to(DU.dtype.element_ty), mask=at < size)


def launch_forward(u: Tensor) -> Tensor:
    """GELU of u, which has any shape and is contiguous; g has the same shape."""
    g = u.new_empty(u.shape)
    blocks = triton.cdiv(u.numel(), BLOCK)
    forward_gelu_triton[(blocks,)](u, g, u.numel(), BLOCK=BLOCK, num_warps=WARPS)
    return g


def launch_backward(u: Tensor, dg: Tensor) -> Tensor:
    du = u.new_empty(u.shape)
    blocks = triton.cdiv(u.numel(), BLOCK)
    backward_gelu_triton[(blocks,)](u, dg, du, u.numel(), BLOCK=BLOCK, num_warps=WARPS)
    return du
