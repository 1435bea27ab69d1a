"""The norm of the residual stream behind an addition, one kernel each way: kernels=fused.

inductor makes the sum, dropout and the norm in one kernel too, but with a row for each program, and
sums the weights' gradients in kernels of their own.
"""

from typing import Any

import torch
from torch import Tensor
from torch.library import register_autograd, register_fake

from kernels.dropout import new_seed
from kernels.operators import operator


def norm_of_sum(
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    dropout: float,
    seed: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """x + dropout(y), as x, and its layer norm, as y; all but weight and bias (C) are (B, T, C).

    What is normed is the sum as it is stored. `seed`, (1,), is that of dropout; without one it is
    drawn.
    """
    seed = new_seed(y, dropout) if seed is None else seed
    total, h, _, _ = sum_and_norm(x, y, weight, bias, seed, dropout)
    return total, h


@operator
def sum_and_norm(
    x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None, seed: Tensor, dropout: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """With the rows' means and 1 / deviations, (B * T), for backward."""
    from kernels.norm_triton import launch_forward

    return launch_forward(x, y, weight, bias, seed, dropout)


@register_fake(sum_and_norm)
def _(
    x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None, seed: Tensor, dropout: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows = x.new_empty(x.numel() // x.size(-1), dtype=torch.float32)
    total = torch.empty_like(x, memory_format=torch.contiguous_format)
    h = torch.empty_like(y, memory_format=torch.contiguous_format)
    return total, h, rows, torch.empty_like(rows)


@operator
def sum_and_norm_backward(
    dsum: Tensor | None, dh: Tensor, total: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor,
    has_bias: bool, seed: Tensor, dropout: float, apart: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Of x, of y, and of weight and bias, (1 or 2, C); not `apart`: y's is x's, and here empty."""
    from kernels.norm_triton import launch_backward

    return launch_backward(dsum, dh, total, mean, rstd, weight, has_bias, seed, dropout, apart)


@register_fake(sum_and_norm_backward)
def _(
    dsum: Tensor | None, dh: Tensor, total: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor,
    has_bias: bool, seed: Tensor, dropout: float, apart: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    dy = dh.new_empty(dh.shape if apart else 0)
    dparameters = weight.new_empty(1 + has_bias, weight.numel(), dtype=torch.float32)
    return torch.empty_like(total), dy, dparameters


def keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)  # a sum that nobody reads has no gradient to be read
    x, y, weight, bias, seed, ctx.dropout = inputs
    total, _, mean, rstd = output
    ctx.save_for_backward(total, mean, rstd, weight, seed)
    ctx.has_bias, ctx.dtype = bias is not None, y.dtype
    ctx.apart = ctx.dropout > 0 or x.dtype != y.dtype  # else both have the same gradient


def backward(
    ctx: Any, dsum: Tensor | None, dh: Tensor | None, _mean: None, _rstd: None
) -> tuple[Tensor | None, ...]:
    total, mean, rstd, weight, seed = ctx.saved_tensors
    dh = torch.zeros_like(total, dtype=ctx.dtype) if dh is None else dh
    dx, dy, dparameters = sum_and_norm_backward(
        dsum, dh, total, mean, rstd, weight, ctx.has_bias, seed, ctx.dropout, ctx.apart
    )
    dweight, dbias = dparameters[0], dparameters[1] if ctx.has_bias else None
    return dx, dy if ctx.apart else dx, dweight, dbias, None, None


register_autograd(sum_and_norm, backward, setup_context=keep_for_backward)
