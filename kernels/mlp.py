"""GELU between two products, in the kernel of the first and of the second one's gradient.

GELU's gradient reads its input u, the gradient of the second weight its output g. So the first
product writes both, and the second one's backward returns the gradient of u: g has none of its own.
kernels=fused.
"""

from typing import Any

import torch
from torch import Tensor
from torch.library import register_autograd, register_fake
from torch.nn import functional as F

from kernels.gelu import gelu_backward
from kernels.linear import (
    Linear,
    backward,
    cast,
    keep_for_backward,
    own_product,
    parameter_gradients,
)
from kernels.linear.tiles import GELU, GELU_BACKWARD
from kernels.operators import operator


def gelu_between(x: Tensor, first: Linear, second: Linear) -> Tensor:
    """Compute second(gelu(first(x))), x (..., C), with copies of weights, which both must keep."""
    assert first.copy is not None and second.copy is not None
    u, g = product_and_gelu(x.to(first.copy.dtype), first.weight, first.copy, first.bias)
    return product_of_gelu(u, g, second.weight, second.copy, second.bias)


@operator
def product_and_gelu(
    x: Tensor, weight: Tensor, copy: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Product u of x (..., C) and copy (O, C), plus bias, and its GELU; (..., O) each.

    The GELU has no gradient.
    """
    fused = own_product(x, copy, bias, True, GELU)
    if fused is not None:
        return fused
    from kernels.gelu.in_triton import launch_forward

    u = F.linear(x, copy, cast(bias, copy))
    return u, launch_forward(u)


@register_fake(product_and_gelu)
def _(x: Tensor, weight: Tensor, copy: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    u = x.new_empty(*x.shape[:-1], len(copy))
    return u, torch.empty_like(u)


@operator
def product_of_gelu(
    u: Tensor, g: Tensor, weight: Tensor, copy: Tensor, bias: Tensor | None
) -> Tensor:
    """Product of g (..., C), which is GELU of u, and copy (O, C), plus bias.

    In backward u gets the gradient, not g.
    """
    return F.linear(g, copy, cast(bias, copy))


@register_fake(product_of_gelu)
def _(u: Tensor, g: Tensor, weight: Tensor, copy: Tensor, bias: Tensor | None) -> Tensor:
    return g.new_empty(*g.shape[:-1], len(copy))


@operator
def product_of_gelu_backward(dy: Tensor, copy: Tensor, u: Tensor) -> Tensor:
    """Gradient of u (..., C): dy (..., O) times copy (O, C), times GELU's derivative at u."""
    fused = own_product(dy, copy, None, False, GELU_BACKWARD, u)
    return gelu_backward(u, dy @ copy) if fused is None else fused[0]


@register_fake(product_of_gelu_backward)
def _(dy: Tensor, copy: Tensor, u: Tensor) -> Tensor:
    return u.new_empty(u.shape)


def keep_x(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    keep_for_backward(ctx, inputs, output[0])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def first_backward(ctx: Any, du: Tensor, _dg: None) -> tuple[Tensor | None, ...]:
    return backward(ctx, du)


def keep_u_and_g(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    u, g, weight, copy, bias = inputs
    ctx.save_for_backward(u, g, copy)
    ctx.weight, ctx.has_bias = weight, bias is not None


def second_backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    u, g, copy = ctx.saved_tensors
    dweight, dbias = parameter_gradients(dy, g, ctx.weight, ctx.has_bias)
    return product_of_gelu_backward(dy, copy, u), None, dweight, None, dbias


register_autograd(product_and_gelu, first_backward, setup_context=keep_x)
register_autograd(product_of_gelu, second_backward, setup_context=keep_u_and_g)
