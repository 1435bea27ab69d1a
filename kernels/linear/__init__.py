"""Products with a copy of their weight in 16 bits, which the optimizer writes: kernels=fused.

autocast makes such a copy in each forward, by a kernel for each weight, and in backward another
kernel converts the weight's gradient to float32. Here the copy exists already, and the gradient's
product writes float32, in which it is summed. All code that changes a weight has to write its copy
too: the optimizer does, by kernels.optimizers.adamw_triton, and so does loading a state.

A weight may have a place for its gradient, as in a bucket that is sent to other ranks. The product
writes it there, so that nobody has to copy it.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.library import register_autograd, register_fake
from torch.nn import functional as F

from kernels.gluon import has_gluon
from kernels.linear.tiles import PLAIN, TILES, Stream
from kernels.operators import operator

LEAVES_FLOAT32 = hasattr(torch.ops.aten.mm, "dtype")  # PyTorch 2.8 and newer, on CUDA


class Linear(nn.Linear):
    """nn.Linear that multiplies by the copy of its weight, if it keeps one."""

    copy: Tensor | None  # the weight in 16 bits, maybe with rows of zeros after it

    def __init__(self, inputs: int, outputs: int, bias: bool):
        super().__init__(inputs, outputs, bias=bias)
        self.register_buffer("copy", None, persistent=False)
        self.register_load_state_dict_post_hook(lambda module, _: module.write_copy())

    def forward(self, x: Tensor) -> Tensor:
        if self.copy is None:
            return super().forward(x)
        return product(x.to(self.copy.dtype), self.weight, self.copy, self.bias)

    def keep_copy(self, dtype: torch.dtype) -> Tensor:
        """Keep a copy of the weight from now on; returns it, (copy_rows, inputs)."""
        self.copy = self.weight.new_zeros((self.copy_rows(), self.in_features), dtype=dtype)
        self.write_copy()
        return self.copy

    def copy_rows(self) -> int:
        return self.out_features

    @torch.no_grad()
    def write_copy(self) -> None:
        if self.copy is not None:
            self.copy[: self.out_features] = self.weight


@operator
def product(x: Tensor, weight: Tensor, copy: Tensor, bias: Tensor | None) -> Tensor:
    """Product (..., O) of x (..., C) and copy (O, C), plus bias, in the copy's dtype.

    In backward the weight gets the gradient, not the copy.
    """
    own = own_product(x, copy, bias, True)
    return F.linear(x, copy, cast(bias, copy)) if own is None else own[0]


def cast(bias: Tensor | None, copy: Tensor) -> Tensor | None:
    return None if bias is None else bias.to(copy.dtype)


def own_product(
    x: Tensor, copy: Tensor, bias: Tensor | None, transposed: bool, kind: int = PLAIN,
    u: Tensor | None = None,
) -> tuple[Tensor, Tensor] | None:  # fmt: skip
    """Product of x (..., C) and copy, (O, C) if transposed, else (C, O), and what follows it.

    None if cuBLAS is to do it, since it was not measured to be slower for these sizes.
    """
    outputs, inputs = copy.shape if transposed else copy.shape[::-1]
    tile = TILES.get((inputs, outputs, transposed, kind))
    if tile is None or bias is not None or not has_gluon(x.device):
        return None
    from kernels.linear import in_gluon, in_gluon_streamed

    if not in_gluon.fits(x, copy, transposed, tile, u):
        return None
    if isinstance(tile, Stream):
        return in_gluon_streamed.launch(x, copy, transposed, tile, kind, u)
    return in_gluon.launch(x, copy, transposed, tile, kind, u)


@register_fake(product)
def _(x: Tensor, weight: Tensor, copy: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty(*x.shape[:-1], len(copy))


@operator
def input_gradient(dy: Tensor, copy: Tensor) -> Tensor:
    """Gradient of a product's input: dy (..., O) times copy (O, C)."""
    own = own_product(dy, copy, None, False)
    return dy @ copy if own is None else own[0]


@register_fake(input_gradient)
def _(dy: Tensor, copy: Tensor) -> Tensor:
    return dy.new_empty(*dy.shape[:-1], copy.size(1))


@operator
def weight_gradient(dy: Tensor, x: Tensor) -> Tensor:
    """Gradient of the weight (O, C) in float32, from dy (N, O) and x (N, C).

    It is not rounded if the product can write float32.
    """
    if leaves_float32(dy):
        return torch.mm(dy.t(), x, out_dtype=torch.float32)
    return (dy.t() @ x).float()


def leaves_float32(dy: Tensor) -> bool:
    return LEAVES_FLOAT32 and dy.is_cuda and dy.dtype != torch.float32


@register_fake(weight_gradient)
def _(dy: Tensor, x: Tensor) -> Tensor:
    return dy.new_empty(dy.size(1), x.size(1), dtype=torch.float32)


def give_place(weight: Tensor, place: Tensor, product: Tensor | None = None) -> None:
    """Have the next gradient of `weight` written to `place`, which has its size, in float32.

    With `product`, which is in the same memory and maybe in 16 bits, the gradient is written to
    that instead. Autograd then takes `place` for the gradient, but nobody may read its numbers.
    The first gradient takes the place: if there are two in one backward, the second has none.
    """
    weight.gradient_place = place, place if product is None else product  # type: ignore[attr-defined]


def take_place(weight: Tensor) -> tuple[Tensor, Tensor] | None:
    """Take the `place` and `product` that `give_place` gave to `weight`; None if there are none.

    None also if the weight has a gradient already, to which autograd adds the next: that may lie
    in this very place.
    """
    places: tuple[Tensor, Tensor] | None = getattr(weight, "gradient_place", None)
    if places is None or weight.grad is not None:
        return None
    weight.gradient_place = None  # type: ignore[attr-defined]
    return places


def placed_gradient(weight: Tensor, dy: Tensor, x: Tensor) -> Tensor:
    """Gradient of `weight` (O, C) from dy (N, at least O) and x (N, C), in its place if it has one.

    It has none under torch.compile. This function is no operator, since those return new tensors.
    """
    places = take_place(weight)
    if places is None:
        return weight_gradient(dy, x)
    place, product = places
    dy = dy[:, : len(place)]
    if not leaves_float32(dy):
        product.copy_(dy.t() @ x)
        return place
    # cuBLAS has fast kernels only for multiples of 8: 50,257 rows take 2,081 us on an H200, but
    # 50,256 rows and then one take 1,208
    even = len(place) - len(place) % 8
    for rows in (slice(0, even), slice(even, len(place)))[: 1 + (even < len(place))]:
        torch.mm(dy[:, rows].t(), x, out_dtype=product.dtype, out=product[rows])
    return place


def keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, copy, bias = inputs
    ctx.save_for_backward(x, copy)
    ctx.weight, ctx.has_bias = weight, bias is not None


def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, copy = ctx.saved_tensors
    dweight, dbias = parameter_gradients(dy, x, ctx.weight, ctx.has_bias)
    return input_gradient(dy, copy), dweight, None, dbias


def parameter_gradients(
    dy: Tensor, x: Tensor, weight: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor | None]:
    """Gradients of the weight (O, C) and the bias (O) in float32, from dy (..., O), x (..., C)."""
    rows = dy.flatten(0, -2)
    dweight = placed_gradient(weight, rows, x.flatten(0, -2))
    return dweight, rows.sum(0, dtype=torch.float32) if has_bias else None


register_autograd(product, backward, setup_context=keep_for_backward)
