"""A trained model, token by token, in memory that stays where it is, so that CUDA graphs can do it.

The layers are those of model.GPT and the function is the same. What differs is the wiring: keys and
values are kept, and the residual stream is one tensor that products add to, in as few kernels as
PyTorch has for it; on CUDA kernels of our own read single tokens in fewer yet (kernels.decoding).
A token is so little work that the number of kernels is its time.
Shapes: B sequences, T tokens, S keys, C n_embd, H n_head, D = C / H, V vocabulary.
"""

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from cli.errors import one_line
from configs.attention import AUTO, BACKENDS
from kernels.decoding import attend_newest, linear_of_norm
from model import GPT, Block, CausalSelfAttention, LayerNorm, attend, rotate_qk

# all but cuDNN's, which plans each new shape for some 30 ms: PyTorch's choice on Hopper
AT_ONCE = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class KeyValueCache:
    """The keys and values of the tokens so far, for each block: (B, block_size, 2C).

    A token's key and value lie side by side, as c_attn makes them. Where the next one goes is known
    twice: `length` to the host, `position`, (1), to the device. A token reads keys up to the next
    multiple of `round_to` and masks what is not there yet, so that one graph serves many lengths.
    With `own`, kernels of our own read the position and no key behind it: one graph serves all.
    """

    def __init__(self, model: GPT, batch: int, round_to: int = 1, own: bool = False):
        config, weight = model.config, model.lm_head.weight
        self.block_size, self.own = config.block_size, own
        self.round_to = config.block_size if own else round_to
        # zeros: what is masked has no weight, but must be a number
        size = (batch, config.block_size, 2 * config.n_embd)
        self.layers = [
            torch.zeros(size, dtype=weight.dtype, device=weight.device)
            for _ in range(config.n_layer)
        ]
        self.position = torch.zeros(1, dtype=torch.long, device=weight.device)
        self.length = 0
        self.masks = self.all_masks(model)

    def all_masks(self, model: GPT) -> Tensor | None:
        """A row for each position: for slow True where it may look, else what its scores gain."""
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
        """How many keys the next token reads: those before it and its own, rounded up."""
        return min(-(-(self.length + 1) // self.round_to) * self.round_to, self.block_size)

    def mask(self, tokens: int) -> Tensor | None:
        """For so many more, (T, S)."""
        if self.masks is None or (self.length == 0 and self.masks.is_floating_point()):
            return None
        if self.length == 0:
            return self.masks[:tokens, :tokens]
        return self.masks[:, : self.keys].index_select(0, self.position)

    def append(self, layer: int, new: Tensor) -> Tensor:
        """Stores (B, T, 2C) behind what is there; returns what the new tokens read, (B, S, 2C)."""
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
    """Reads tokens (B, T) into the cache; returns the logits behind the last of them, (B, V).

    More than one token at once only into an empty cache.
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
        qkv = turned(block.attn.c_attn(block.ln_1(x)), block.attn, cache)  # (B, T, 3C)
        q, new = qkv.split((C, 2 * C), dim=-1)
        k, v = cache.append(layer, new).split(C, dim=-1)  # each (B, S, C)
        q, k, v = (in_heads(each, block.attn.n_head) for each in (q, k, v))
        y = attend_at_once(q, k, v, block.attn.attention, mask)  # (B, H, T, D)
        add_product(x, y.transpose(1, 2).flatten(2), block.attn.c_proj)
        add_product(x, block.mlp.gelu(block.mlp.c_fc(block.ln_2(x))), block.mlp.c_proj)
    cache.advance(T)
    return model.lm_head(body.ln_f(x[:, -1]))


def read_newest(model: GPT, tokens: Tensor, cache: KeyValueCache) -> Tensor:
    """`read` for one token, (B, 1), by kernels of our own: five a layer instead of nine."""
    body = model.transformer
    x = body.wte(tokens[:, 0])  # (B, C)
    if body.wpe is not None:
        x = x + body.wpe(cache.position)
    for kept, block in zip(cache.layers, cast(Iterable[Block], body.h), strict=True):
        qkv = product_of_norm(x, block.ln_1, block.attn.c_attn)  # (B, 3C)
        qkv = turned(qkv[:, None], block.attn, cache)[:, 0]
        y = attend_newest(qkv, kept, cache.position, block.attn.n_head)  # (B, C)
        add_product(x, y, block.attn.c_proj)
        exact = block.mlp.gelu.approximate == "none"  # which the kernel has
        y = product_of_norm(x, block.ln_2, block.mlp.c_fc, gelu=exact)  # (B, 4C)
        add_product(x, y if exact else block.mlp.gelu(y), block.mlp.c_proj)
    cache.advance(1)
    return product_of_norm(x, body.ln_f, model.lm_head)


def turned(qkv: Tensor, attention: CausalSelfAttention, cache: KeyValueCache) -> Tensor:
    """Queries and keys of the tokens behind the cache's, (B, T, 3C), by rotary positions."""
    if attention.turns is None:
        return qkv
    T = qkv.size(1)
    turns = attention.turns[:, cache.position] if cache.length else attention.turns[:, :T]
    return rotate_qk(qkv, turns, attention.n_head)


def product_of_norm(x: Tensor, norm: LayerNorm, linear: nn.Linear, gelu: bool = False) -> Tensor:
    """linear(norm(x)), behind it GELU where asked for, in one kernel."""
    return linear_of_norm(x, norm.weight, norm.bias, linear.weight, linear.bias, gelu)


@torch.no_grad()
def try_own_kernels(model: GPT, batch: int) -> None:
    """Reads a token by them. Raises ValueError with the reason when it cannot."""
    cache = KeyValueCache(model, batch, own=True)
    try:
        read_newest(model, cache.position.expand(batch, 1), cache)
    except Exception as error:  # Triton has kinds of its own, its compiler and the driver have more
        raise ValueError(one_line(error)[:160] or type(error).__name__) from error


def in_heads(x: Tensor, heads: int) -> Tensor:
    """(B, T, C) -> (B, H, T, D)."""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def add_product(x: Tensor, y: Tensor, linear: nn.Linear) -> None:
    """x += linear(y): without a bias one kernel, as cuBLAS adds to what it writes to."""
    if linear.bias is None:
        x.view(-1, x.size(-1)).addmm_(y.view(-1, y.size(-1)), linear.weight.t())
    else:
        x.add_(linear(y))


def attend_at_once(q: Tensor, k: Tensor, v: Tensor, attention: str, mask: Tensor | None) -> Tensor:
    """`model.attend` where there may be keys to hide, with kernels that need no start for a shape.

    q is (B, H, T, D), k and v are (B, H, S, D), the mask (T, S); returns (B, H, T, D).
    """
    planned = attention == AUTO and q.is_cuda
    if attention == "slow" or (mask is None and not planned):
        return attend(q, k, v, attention, 0.0, mask)
    backend = BACKENDS.get(attention)
    pinned = backend.sdpa if backend and backend.masks else None
    with sdpa_kernel(getattr(SDPBackend, pinned) if pinned else AT_ONCE):
        causal = q.size(-2) > 1
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
