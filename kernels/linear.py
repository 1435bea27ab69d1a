"""Products with a copy of their weight in 16 bits, which the optimizer writes: kernels=fused.

autocast makes such a copy in each forward, by a kernel for each weight, and in backward another
makes float32 of the weight's gradient. Here the copy is there already, and the gradient's product
leaves float32, as its sums are. Whoever changes a weight has to write its copy too: the optimizer
does, by kernels.adamw_triton, and so does loading a state.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.library import register_autograd, register_fake
from torch.nn import functional as F

from kernels.operators import operator

LEAVES_FLOAT32 = hasattr(torch.ops.aten.mm, "dtype")  # PyTorch 2.8 and newer, on CUDA


class Linear(nn.Linear):
    """nn.Linear; in training it reads the copy of its weight, where one is kept."""

    copy: Tensor | None  # as the weight, and maybe some rows of zeros behind

    def __init__(self, inputs: int, outputs: int, bias: bool):
        super().__init__(inputs, outputs, bias=bias)
        self.register_buffer("copy", None, persistent=False)
        self.register_load_state_dict_post_hook(lambda module, _: module.write_copy())

    def forward(self, x: Tensor) -> Tensor:
        if self.copy is None or not self.training:
            return super().forward(x)
        return product(x.to(self.copy.dtype), self.weight, self.copy, self.bias)

    def keep_copy(self, dtype: torch.dtype) -> Tensor:
        """From now on; returns it, (copy_rows, inputs)."""
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
    """x (..., C) times copy (O, C), plus bias, as autocast has it; the gradient is the weight's."""
    return F.linear(x, copy, None if bias is None else bias.to(copy.dtype))


@register_fake(product)
def _(x: Tensor, weight: Tensor, copy: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty(*x.shape[:-1], len(copy))


@operator
def weight_gradient(dy: Tensor, x: Tensor) -> Tensor:
    """dy (N, O), x (N, C) -> (O, C) in float32: not rounded, where the product can leave it so."""
    if LEAVES_FLOAT32 and dy.is_cuda and dy.dtype != torch.float32:
        return torch.mm(dy.t(), x, out_dtype=torch.float32)
    return (dy.t() @ x).float()


@register_fake(weight_gradient)
def _(dy: Tensor, x: Tensor) -> Tensor:
    return dy.new_empty(dy.size(1), x.size(1), dtype=torch.float32)


def keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, _, copy, bias = inputs
    ctx.save_for_backward(x, copy)
    ctx.has_bias = bias is not None


def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, copy = ctx.saved_tensors
    rows = dy.flatten(0, -2)
    dweight = weight_gradient(rows, x.flatten(0, -2))
    return dy @ copy, dweight, None, rows.sum(0, dtype=torch.float32) if ctx.has_bias else None


register_autograd(product, backward, setup_context=keep_for_backward)
