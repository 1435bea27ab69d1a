"""The operations of kernels=fused in plain PyTorch and as our own kernels, with least traffic.

Called by profiling.lab.kernel_timing.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.cross_entropy import linear_cross_entropy
from kernels.embedding import MOST_IDS, embedding_and_norm
from kernels.gelu import gelu
from kernels.norm import norm_of_sum

Function = Callable[..., tuple[Tensor, ...]]

PLACES = 256  # tokens in a sequence, if the number of tokens is a multiple of it


@dataclass(frozen=True)
class Sizes:
    tokens: int  # N
    width: int  # C
    vocabulary: int  # V
    dropout: float


@dataclass(frozen=True)
class Operation:
    """An operation in both implementations: `plain` and `ours` take `inputs`, and the inputs in
    floating point get gradients."""

    name: str
    plain: Function
    ours: Function
    inputs: list[Tensor]
    forward_bytes: int  # bytes that have to be read and written, each tensor once
    backward_bytes: int


OPERATIONS = 4  # that `operations` makes


def operations(sizes: Sizes, dtype: torch.dtype, device: torch.device) -> list[Operation]:
    """The operations with inputs as in a training step; the residual stream is float32."""
    torch.manual_seed(0)
    return [make(sizes, dtype, device) for make in (embedding, residual_norm, activation, loss)]


def embedding(sizes: Sizes, dtype: torch.dtype, device: torch.device) -> Operation:
    """Embedding with learned positions, dropout, and the first norm."""
    N, C, V = sizes.tokens, sizes.width, sizes.vocabulary
    T = math.gcd(N, PLACES)
    idx = torch.randint(V, (N // T, T), device=device)
    table, places = torch.randn(V, C, device=device), torch.randn(T, C, device=device)
    weight = torch.randn(C, device=device)

    def plain(idx: Tensor, table: Tensor, places: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        x = F.embedding(idx, table) + places
        x = F.dropout(x, sizes.dropout, training=sizes.dropout > 0)
        h = F.layer_norm(x, (C,), weight, None, 1e-5)
        return x, h.to(dtype) if table.dtype == torch.float32 else h

    def ours(idx: Tensor, table: Tensor, places: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        if V > MOST_IDS:
            raise ValueError(f"of at most {MOST_IDS} ids")
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            return embedding_and_norm(idx, table, places, weight, None, sizes.dropout)

    stream = N * C * (4 + dtype.itemsize)
    tables, inputs = table.nbytes + places.nbytes, [idx, table, places, weight]
    forward_bytes, backward_bytes = idx.nbytes + tables + stream, idx.nbytes + 2 * tables + stream
    return Operation("embedding, dropout, norm", plain, ours, inputs, forward_bytes, backward_bytes)


def residual_norm(sizes: Sizes, dtype: torch.dtype, device: torch.device) -> Operation:
    N, C = sizes.tokens, sizes.width
    x = torch.randn(N, C, device=device)
    y = torch.randn(N, C, device=device, dtype=dtype)
    weight = torch.randn(C, device=device)

    def plain(x: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        total = x + F.dropout(y, sizes.dropout, training=sizes.dropout > 0)
        return total, F.layer_norm(total, (C,), weight, None, 1e-5).to(y.dtype)

    def ours(x: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        return norm_of_sum(x, y, weight, None, sizes.dropout)

    both = x.nbytes + y.nbytes
    inputs = [x, y, weight]
    return Operation("sum, dropout, norm", plain, ours, inputs, 2 * both, both + x.nbytes + both)


def activation(sizes: Sizes, dtype: torch.dtype, device: torch.device) -> Operation:
    u = torch.randn(sizes.tokens, 4 * sizes.width, device=device, dtype=dtype)
    return Operation(
        "GELU", lambda u: (F.gelu(u),), lambda u: (gelu(u),), [u], 2 * u.nbytes, 3 * u.nbytes
    )


def loss(sizes: Sizes, dtype: torch.dtype, device: torch.device) -> Operation:
    """Head and cross-entropy. The products are part of it: ours makes the gradients of the logits
    in forward.

    As in the model, ours reads a copy of the weight whose number of rows is a multiple of 64.
    """
    N, C, V = sizes.tokens, sizes.width, sizes.vocabulary
    h = torch.randn(N, C, device=device, dtype=dtype)
    weight = torch.randn(V, C, device=device, dtype=dtype) * C**-0.5
    copy = F.pad(weight, (0, 0, 0, -V % 64))
    targets = torch.randint(V, (N,), device=device)

    def plain(h: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        wide = torch.promote_types(h.dtype, torch.float32)
        return (F.cross_entropy((h @ weight.t()).to(wide), targets),)

    def ours(h: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        return (linear_cross_entropy(h, weight, copy, targets),)

    ends, logits = h.nbytes + weight.nbytes, N * V * h.element_size()
    inputs = [h, weight, targets]
    return Operation(
        "head, cross-entropy", plain, ours, inputs, ends + 2 * logits, 2 * ends + 2 * logits
    )
