"""Causal attention with dropout as this project's own kernels: attention=triton.

They are for sequences of a few hundred tokens. The libraries' backward takes three kernels there,
and a copy that joins dQ, dK and dV. Here forward and backward are one kernel each: queries, keys
and values are read where the product before them left them, and their gradients are written as its
backward needs them. docs/kernels.md has the history of the kernels and what they gain.

kernels.attention.in_triton is imported when the first of them is launched: Triton takes two
seconds, and a run with another backend does not need it.
"""

from typing import Any

import torch
from torch import Tensor
from torch.library import register_autograd, register_fake

from kernels.dropout import new_seed
from kernels.operators import operator


def causal_attention(q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
    """Attention (B, H, T, D) of q (B, H, T, D), the last T of S tokens, to k and v (B, H, S, D).

    Gradients need T == S. Raises NotImplementedError if D is not 16, 32, 64 or 128.
    """
    y: Tensor = SeparateAttention.apply(q, k, v, new_seed(q, dropout), dropout)
    return y


def packed_causal_attention(
    qkv: Tensor, heads: int, dropout: float, seed: Tensor | None = None
) -> Tensor:
    """Attention (B, T, C) of qkv (B, T, 3C), a token's query, key and value side by side.

    `seed` (1,) is that of dropout; without one it is drawn.
    """
    seed = new_seed(qkv, dropout) if seed is None else seed
    out, _ = packed_attention(qkv, heads, seed, dropout)
    return out


class SeparateAttention(torch.autograd.Function):
    """Attention whose queries, keys and values are separate tensors."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, seed: Tensor, dropout: float) -> Tensor:
        from kernels.attention.in_triton import launch_forward

        q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))  # (B, T, H, D)
        out, lse = launch_forward(q, k, v, seed, dropout)
        ctx.save_for_backward(q, k, v, out, lse, seed)
        ctx.dropout = dropout
        return out.transpose(1, 2)

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor | None, ...]:
        from kernels.attention.in_triton import launch_backward

        q, k, v, out, lse, seed = ctx.saved_tensors
        grads = launch_backward(dout.transpose(1, 2), q, k, v, out, lse, seed, ctx.dropout)
        return *(grad.transpose(1, 2) for grad in grads.unbind(2)), None, None


@operator
def packed_attention(
    qkv: Tensor, heads: int, seed: Tensor, dropout: float
) -> tuple[Tensor, Tensor]:
    """Attention (B, T, C), and the logarithms of its rows' sums (B * H, T) for backward."""
    from kernels.attention.in_triton import launch_forward

    q, k, v = unpack(qkv, heads)
    out, lse = launch_forward(q, k, v, seed, dropout)
    return out.flatten(2), lse


@register_fake(packed_attention)
def _(qkv: Tensor, heads: int, seed: Tensor, dropout: float) -> tuple[Tensor, Tensor]:
    B, T, width = qkv.shape
    return qkv.new_empty(B, T, width // 3), qkv.new_empty(B * heads, T, dtype=torch.float32)


@operator
def packed_attention_backward(
    dout: Tensor, qkv: Tensor, out: Tensor, lse: Tensor, heads: int, seed: Tensor, dropout: float
) -> Tensor:
    from kernels.attention.in_triton import launch_backward

    q, k, v = unpack(qkv, heads)
    dout, out = dout.view_as(q), out.view_as(q)
    return launch_backward(dout, q, k, v, out, lse, seed, dropout).view_as(qkv)


@register_fake(packed_attention_backward)
def _(
    dout: Tensor, qkv: Tensor, out: Tensor, lse: Tensor, heads: int, seed: Tensor, dropout: float
) -> Tensor:
    return torch.empty_like(qkv)


def keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    qkv, ctx.heads, seed, ctx.dropout = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)  # else a kernel writes zeros for it, which nobody reads
    ctx.save_for_backward(qkv, *output, seed)


def backward(ctx: Any, dout: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    if dout is None:
        return None, None, None, None
    qkv, out, lse, seed = ctx.saved_tensors
    dqkv = packed_attention_backward(dout.contiguous(), qkv, out, lse, ctx.heads, seed, ctx.dropout)
    return dqkv, None, None, None


register_autograd(packed_attention, backward, setup_context=keep_for_backward)


def unpack(qkv: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values in qkv (B, T, 3C) as three views (B, T, H, D)."""
    q, k, v = qkv.contiguous().unflatten(2, (3, heads, -1)).unbind(2)
    return q, k, v
