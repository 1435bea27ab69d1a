"""Both embeddings, their dropout and the first norm, for vocabularies of characters: kernels=fused.

Backward computes the embedded tokens again, from tables that lie in the cache, so they are not
kept. The gradient of each id is a sum over the tokens that have it: a product with a matrix of ones
and zeros that has a row for each id, on tensor cores, in the same order each time. That is for few
ids. With many, most of the matrix would be zeros: above MOST_IDS PyTorch does all of it, as with
kernels=compiled.
"""

from typing import Any

import torch
from torch import Tensor
from torch.library import register_autograd, register_fake

from kernels.dropout import new_seed
from kernels.operators import operator

MOST_IDS = 256  # largest vocabulary for these kernels


def embedding_and_norm(
    idx: Tensor,
    table: Tensor,
    positions: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    dropout: float,
    seed: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Sum dropout(table[idx] + positions) and its layer norm, (B, T, C) each.

    idx is (B, T), table (V, C), positions (at least T, C), weight and bias are (C). The sum is in
    `dtype`, without one in table's dtype, the norm in autocast's. The norm is that of the sum
    before it is rounded. `seed` (1,) is that of dropout; without one it is drawn.
    """
    seed = new_seed(table, dropout) if seed is None else seed
    x, h, _, _ = embed_and_norm(
        idx, table, positions, weight, bias, seed, dropout, dtype or table.dtype, norm_dtype(table)
    )
    return x, h


def norm_dtype(table: Tensor) -> torch.dtype:
    kind = table.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else table.dtype


@operator
def embed_and_norm(
    idx: Tensor, table: Tensor, positions: Tensor | None, weight: Tensor, bias: Tensor | None,
    seed: Tensor, dropout: float, dtype: torch.dtype, norm_dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Sum and norm as `embedding_and_norm`, and the rows' means and 1 / deviations, (B * T) each.

    Means and deviations are for backward.
    """
    from kernels.embedding.in_triton import launch_forward

    return launch_forward(idx, table, positions, weight, bias, seed, dropout, dtype, norm_dtype)


@register_fake(embed_and_norm)
def _(
    idx: Tensor, table: Tensor, positions: Tensor | None, weight: Tensor, bias: Tensor | None,
    seed: Tensor, dropout: float, dtype: torch.dtype, norm_dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    x = table.new_empty(*idx.shape, table.size(1), dtype=dtype)
    rows = table.new_empty(idx.numel(), dtype=torch.float32)
    return x, torch.empty_like(x, dtype=norm_dtype), rows, torch.empty_like(rows)


@operator
def embed_and_norm_backward(
    dx: Tensor | None, dh: Tensor, idx: Tensor, table: Tensor, positions: Tensor | None,
    mean: Tensor, rstd: Tensor, weight: Tensor, has_bias: bool, seed: Tensor, dropout: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of table, weight and bias, stacked as (V + 1 or 2, C), and of positions, (L, C).

    Without positions L is 0.
    """
    from kernels.embedding.in_triton import launch_backward

    return launch_backward(
        dx, dh, idx, table, positions, mean, rstd, weight, has_bias, seed, dropout
    )


@register_fake(embed_and_norm_backward)
def _(
    dx: Tensor | None, dh: Tensor, idx: Tensor, table: Tensor, positions: Tensor | None,
    mean: Tensor, rstd: Tensor, weight: Tensor, has_bias: bool, seed: Tensor, dropout: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    V, C = table.shape
    rows = V + (2 if has_bias else 1)  # V may be symbolic, to which PyTorch 2.11 adds no bool
    total = table.new_empty(rows, C, dtype=torch.float32)
    return total, total.new_empty(0 if positions is None else len(positions), C)


def keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    idx, table, positions, weight, bias, seed, ctx.dropout, _, ctx.dtype = inputs
    _, _, mean, rstd = output
    ctx.save_for_backward(idx, table, positions, weight, seed, mean, rstd)
    ctx.has_bias = bias is not None


def backward(
    ctx: Any, dx: Tensor | None, dh: Tensor | None, _mean: None, _rstd: None
) -> tuple[Tensor | None, ...]:
    idx, table, positions, weight, seed, mean, rstd = ctx.saved_tensors
    V, C = table.shape
    dh = table.new_zeros((*idx.shape, C), dtype=ctx.dtype) if dh is None else dh
    total, dpositions = embed_and_norm_backward(
        dx, dh, idx, table, positions, mean, rstd, weight, ctx.has_bias, seed, ctx.dropout
    )
    dbias = total[V + 1] if ctx.has_bias else None
    of_positions = None if positions is None else dpositions
    return None, total[:V], of_positions, total[V], dbias, None, None, None, None


register_autograd(embed_and_norm, backward, setup_context=keep_for_backward)
