"""Rotary positions for packed queries, keys and values, one kernel each way: kernels=fused.

PyTorch's operations, launched one by one, make four tensors of that size; here one is read and one
is written.
"""

from typing import Any

import torch
from torch import Tensor
from torch.library import register_autograd, register_fake

from kernels.operators import operator


def rotate(qkv: Tensor, turns: Tensor, heads: int) -> Tensor:
    """Rotate qkv (B, T, 3C) by turns (2, T, 3, 1, D), as model.rotate_qk does."""
    return rotate_either_way(qkv, turns, heads, back=False)


@operator
def rotate_either_way(qkv: Tensor, turns: Tensor, heads: int, back: bool) -> Tensor:
    from kernels.rotary.in_triton import launch

    return launch(qkv.contiguous(), turns, heads, back)


@register_fake(rotate_either_way)
def _(qkv: Tensor, turns: Tensor, heads: int, back: bool) -> Tensor:
    return torch.empty_like(qkv, memory_format=torch.contiguous_format)


def keep_for_backward(ctx: Any, inputs: tuple[Tensor, Tensor, int, bool], output: Tensor) -> None:
    _, turns, ctx.heads, ctx.back = inputs
    ctx.save_for_backward(turns)


def backward(ctx: Any, dqkv: Tensor) -> tuple[Tensor | None, ...]:
    (turns,) = ctx.saved_tensors
    return rotate_either_way(dqkv, turns, ctx.heads, not ctx.back), None, None, None


register_autograd(rotate_either_way, backward, setup_context=keep_for_backward)
