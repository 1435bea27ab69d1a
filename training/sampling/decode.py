"""Runs a trained model token by token, in memory that never moves, so that CUDA graphs can do it.

The layers are those of model.GPT and they compute the same function. The wiring differs: keys and
values are kept, and the residual stream is one tensor that products add to, with as few kernels as
PyTorch has for it. On CUDA this project's own kernels read a single token with even fewer
(kernels.decoding). A token is so little work that the number of kernels decides its time.
Shapes: B sequences, T tokens, S keys, C n_embd, H n_head, D = C / H, V vocabulary.
"""

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from cli.errors import one_line
from configs.backends import AUTO, BACKENDS
from kernels.decoding import attend_newest
from kernels.fused_model import hidden_of_norm, product_of_norm
from model import GPT, Block, CausalSelfAttention, attend, rotate_qk

# all backends but cuDNN, PyTorch's choice on Hopper, which plans each new shape for some 30 ms
AT_ONCE = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class KeyValueCache:
    """Keys and values of the tokens so far, one tensor (B, block_size, 2C) for each block.

    A token's key and value lie side by side, as c_attn makes them. Where the next one goes is known
    both to the host, as `length`, and to the device, as `position` (1). A token reads keys up to
    the next multiple of `round_to` and masks those that are not there yet, so that one graph serves
    many lengths. With `own`, our own kernels read the position and no key after it: one graph
    serves all lengths.
    """

    def __init__(self, model: GPT, batch: int, round_to: int = 1, own: bool = False):
        config, weight = model.config, model.lm_head.weight
        self.block_size, self.own = config.block_size, own
        self.round_to = config.block_size if own else round_to
        # zeros, because a masked value has weight 0 but must not be nan
        size = (batch, config.block_size, 2 * config.n_embd)
        self.layers = [
            torch.zeros(size, dtype=weight.dtype, device=weight.device)
            for _ in range(config.n_layer)
        ]
        self.position = torch.zeros(1, dtype=torch.long, device=weight.device)
        self.length = 0
        self.masks = self.all_masks(model)

    def all_masks(self, model: GPT) -> Tensor | None:
        """Masks (block_size, block_size), a row for each position, or None if none are needed.

        For slow a row is True where the position may look, else it is added to the scores.
        """
        weight, size = model.lm_head.weight, (self.block_size, self.block_size)
        if model.config.attention == "slow":
            return torch.ones(size, dtype=torch.bool, device=weight.device).tril()
        if self.own or self.round_to == 1:
            return None
        return torch.full(size, float("-inf"), dtype=weight.dtype, device=weight.device).triu(1)

    def clear(self) -> None:
        self.length = 0
        self.position.zero_()

    @property
    def full(self) -> bool:
        return self.length == self.block_size

    @property
    def keys(self) -> int:
        """Number of keys that the next token reads: those before it and its own, rounded up."""
        return min(-(-(self.length + 1) // self.round_to) * self.round_to, self.block_size)

    def mask(self, tokens: int) -> Tensor | None:
        """The mask (T, S) for T = `tokens` new tokens, or None if none is needed."""
        if self.masks is None or (self.length == 0 and self.masks.is_floating_point()):
            return None
        if self.length == 0:
            return self.masks[:tokens, :tokens]
        return self.masks[:, : self.keys].index_select(0, self.position)

    def append(self, layer: int, new: Tensor) -> Tensor:
        """Stores the new tokens' keys and values (B, T, 2C); returns what they read, (B, S, 2C)."""
        kept = self.layers[layer]
        if self.length == 0:
            kept[:, : new.size(1)] = new
            return new
        kept.index_copy_(1, self.position, new)
        return kept[:, : self.keys]

    def advance(self, tokens: int) -> None:
        self.length += tokens
        self.position.add_(tokens)


def read(model: GPT, tokens: Tensor, cache: KeyValueCache) -> Tensor:
    """Reads tokens (B, T) into the cache; returns the logits after the last one, (B, V).

    The cache must be empty if T is more than 1.
    """
    body, T, C = model.transformer, tokens.size(1), model.config.n_embd
    assert cache.length == 0 or T == 1
    if cache.own and cache.length:
        return read_newest(model, tokens, cache)
    x = body.wte(tokens)  # (B, T, C)
    if body.wpe is not None:
        x = x + (body.wpe(cache.position) if cache.length else body.wpe.weight[:T])
    mask = cache.mask(T)
    for layer, block in enumerate(cast(Iterable[Block], body.h)):
        qkv = rotate(block.attn.c_attn(block.ln_1(x)), block.attn, cache)  # (B, T, 3C)
        q, new = qkv.split((C, 2 * C), dim=-1)
        k, v = cache.append(layer, new).split(C, dim=-1)  # each (B, S, C)
        q, k, v = (in_heads(part, block.attn.n_head) for part in (q, k, v))
        y = attend_at_once(q, k, v, block.attn.attention, mask)  # (B, H, T, D)
        add_product(x, y.transpose(1, 2).flatten(2), block.attn.c_proj)
        add_product(x, block.mlp.hidden(block.ln_2(x)), block.mlp.c_proj)
    cache.advance(T)
    logits: Tensor = model.lm_head(body.ln_f(x[:, -1]))
    return logits


def read_newest(model: GPT, tokens: Tensor, cache: KeyValueCache) -> Tensor:
    """Does what `read` does for one token, (B, 1), with our own kernels: 5 a layer instead of 9."""
    body = model.transformer
    x = body.wte(tokens[:, 0])  # (B, C)
    if body.wpe is not None:
        x = x + body.wpe(cache.position)
    for kept, block in zip(cache.layers, cast(Iterable[Block], body.h), strict=True):
        qkv = product_of_norm(x, block.ln_1, block.attn.c_attn)  # (B, 3C)
        qkv = rotate(qkv[:, None], block.attn, cache)[:, 0]
        y = attend_newest(qkv, kept, cache.position, block.attn.n_head)  # (B, C)
        add_product(x, y, block.attn.c_proj)
        add_product(x, hidden_of_norm(x, block.ln_2, block.mlp), block.mlp.c_proj)
    cache.advance(1)
    return product_of_norm(x, body.ln_f, model.lm_head)


def rotate(qkv: Tensor, attention: CausalSelfAttention, cache: KeyValueCache) -> Tensor:
    """Applies rotary positions to queries and keys in `qkv` (B, T, 3C), of the tokens to be cached.

    Returns it as it is for a model with other positions.
    """
    if attention.turns is None:
        return qkv
    T = qkv.size(1)
    turns = attention.turns[:, cache.position] if cache.length else attention.turns[:, :T]
    return rotate_qk(qkv, turns, attention.n_head)


@torch.no_grad()
def try_own_kernels(model: GPT, batch: int) -> None:
    """Reads a token with our own kernels. Raises ValueError with the reason if it cannot."""
    cache = KeyValueCache(model, batch, own=True)
    try:
        read_newest(model, cache.position.expand(batch, 1), cache)
    except Exception as error:  # Triton, its compiler and the driver raise kinds of their own
        raise ValueError(one_line(error)[:160] or type(error).__name__) from error


def in_heads(x: Tensor, heads: int) -> Tensor:
    """Splits x (B, T, C) into heads, (B, H, T, D)."""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def add_product(x: Tensor, y: Tensor, linear: nn.Linear) -> None:
    """Adds linear(y) to x in place: in one kernel without a bias, because cuBLAS can accumulate."""
    if linear.bias is None:
        x.view(-1, x.size(-1)).addmm_(y.view(-1, y.size(-1)), linear.weight.t())
    else:
        x.add_(linear(y))


def attend_at_once(q: Tensor, k: Tensor, v: Tensor, attention: str, mask: Tensor | None) -> Tensor:
    """Does what `model.attend` does, with an optional mask, and never plans for a new shape.

    q is (B, H, T, D), k and v are (B, H, S, D), the mask (T, S); returns (B, H, T, D).
    """
    planned = attention == AUTO and q.is_cuda  # PyTorch might choose cuDNN
    if attention == "slow" or (mask is None and not planned):
        return attend(q, k, v, attention, 0.0, mask)
    backend = BACKENDS.get(attention)
    pinned = backend.sdpa if backend and backend.masks else None
    with sdpa_kernel(getattr(SDPBackend, pinned) if pinned else AT_ONCE):
        causal = q.size(-2) > 1
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
