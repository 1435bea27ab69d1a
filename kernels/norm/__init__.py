"""An addition to the residual stream and the norm of the sum, one kernel each way: kernels=fused.

inductor computes the sum, dropout and the norm in one kernel too, but with a row for each program,
and sums the weights' gradients in kernels of their own.
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
    """Sum x + dropout(y) in x's dtype, and its layer norm in y's; (B, T, C) as x and y.

    weight and bias are (C). The norm is that of the sum as it is stored, rounded. `seed` (1,) is
    that of dropout; without one it is drawn.
    """
    seed = new_seed(y, dropout) if seed is None else seed
    total, h, _, _ = sum_and_norm(x, y, weight, bias, seed, dropout)
    return total, h


@operator
def sum_and_norm(
    x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None, seed: Tensor, dropout: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sum and norm as `norm_of_sum`, and the rows' means and 1 / deviations, (B * T) each.

    Means and deviations are for backward.
    """
    from kernels.norm.in_triton import launch_forward

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
    has_bias: bool, seed: Tensor, dropout: float, separate: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of x, of y, and of weight and bias as (1 or 2, C).

    If `separate` is false, y's gradient equals x's and is returned empty.
    """
    from kernels.norm.in_triton import launch_backward

    return launch_backward(dsum, dh, total, mean, rstd, weight, has_bias, seed, dropout, separate)


@register_fake(sum_and_norm_backward)
def _(
    dsum: Tensor | None, dh: Tensor, total: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor,
    has_bias: bool, seed: Tensor, dropout: float, separate: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    dy = dh.new_empty(dh.shape if separate else 0)
    dparameters = weight.new_empty(1 + has_bias, weight.numel(), dtype=torch.float32)
    return torch.empty_like(total), dy, dparameters


def keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)  # else a sum that nobody uses would get a gradient of zeros
    x, y, weight, bias, seed, ctx.dropout = inputs
    total, _, mean, rstd = output
    ctx.save_for_backward(total, mean, rstd, weight, seed)
    ctx.has_bias, ctx.dtype = bias is not None, y.dtype
    ctx.separate = ctx.dropout > 0 or x.dtype != y.dtype  # else both have the same gradient


def backward(
    ctx: Any, dsum: Tensor | None, dh: Tensor | None, _mean: None, _rstd: None
) -> tuple[Tensor | None, ...]:
    total, mean, rstd, weight, seed = ctx.saved_tensors
    dh = torch.zeros_like(total, dtype=ctx.dtype) if dh is None else dh
    dx, dy, dparameters = sum_and_norm_backward(
        dsum, dh, total, mean, rstd, weight, ctx.has_bias, seed, ctx.dropout, ctx.separate
    )
    dweight, dbias = dparameters[0], dparameters[1] if ctx.has_bias else None
    return dx, dy if ctx.separate else dx, dweight, dbias, None, None


register_autograd(sum_and_norm, backward, setup_context=keep_for_backward)
