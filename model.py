"""GPT-2's decoder, and the ways to compute its attention behind one function.

The shape is nanoGPT's: pre-norm blocks, tied embeddings, GELU, learned positions or rotary ones,
optional biases.
Called by train.py. sample.py has the same layers write text (training.sampling.decode).
Shapes: B batch, T tokens, S keys, C n_embd, H n_head, D = C / H, V vocabulary.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from configs.attention import AUTO, BACKENDS
from configs.model import ModelConfig
from kernels.attention import causal_attention, packed_causal_attention
from kernels.cross_entropy import linear_cross_entropy
from kernels.dropout import NO_SEEDS, Seeds, draw_seeds
from kernels.embedding import MOST_IDS, embedding_and_norm
from kernels.gelu import gelu
from kernels.linear import Linear
from kernels.mlp import gelu_between
from kernels.norm import norm_of_sum
from kernels.rotary import rotate


def attention_in_force(attention: str, device_type: str, dropout: float) -> str:
    """Name of the backend that `attend` really runs: `attention`, or its substitute on a CPU.

    PyTorch's fused CPU kernel has no dropout; math then computes the same function.
    """
    if device_type == "cpu" and dropout > 0 and attention in BACKENDS:
        return BACKENDS[attention].dropout_on_cpu
    return attention


def attend(
    q: Tensor, k: Tensor, v: Tensor, attention: str, dropout: float, mask: Tensor | None = None
) -> Tensor:
    """Causal attention. q is (B, H, T, D), k and v are (B, H, S, D); returns (B, H, T, D).

    Either T == S, or T == 1: one new token that sees all S keys. `mask` (T, S) is for slow alone:
    True where a query may look. Raises RuntimeError if the pinned kernel does not exist.
    """
    attention = attention_in_force(attention, q.device.type, dropout)
    causal = q.size(-2) > 1
    if attention == "slow":
        assert mask is not None
        scores = attention_scores(q, k, mask)  # (B, H, T, S)
        weights = attention_weights(scores, dropout)  # (B, H, T, S)
        return weighted_values(weights, v)  # (B, H, T, D)
    if attention == "flex":
        return attend_flex(q, k, v, causal)
    if attention == "triton":
        return causal_attention(q, k, v, dropout)
    if attention == AUTO:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal)
    pinned = BACKENDS[attention].sdpa
    assert pinned is not None, f"attention={attention}: no rule here"
    with sdpa_kernel(getattr(SDPBackend, pinned)):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal)


def attention_scores(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    """Scaled scores QK^T / sqrt(D), -inf where `mask` is False; (B, H, T, S)."""
    scores = q @ k.transpose(-2, -1) * (1.0 / math.sqrt(q.size(-1)))
    return scores.masked_fill(~mask, float("-inf"))


def attention_weights(scores: Tensor, dropout: float) -> Tensor:
    """Softmax over the keys, then dropout; (B, H, T, S)."""
    return F.dropout(F.softmax(scores, dim=-1), dropout, training=dropout > 0)


def weighted_values(weights: Tensor, v: Tensor) -> Tensor:
    """Weighted sum of the values: (B, H, T, S) @ (B, H, S, D) -> (B, H, T, D)."""
    return weights @ v


def attend_flex(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """FlexAttention, compiled with the model or by itself; on a CPU eager and forward only."""
    if torch.compiler.is_compiling():
        mask = causal_block_mask(q.size(-2), q.device) if causal else None
        return flex_attention(q, k, v, block_mask=mask)
    mask = cached_block_mask(q.size(-2), q.device) if causal else None
    # Eager, it would materialise the scores. On a CPU it cannot be compiled with gradients.
    if q.is_cuda:
        return compiled_flex_attention()(q, k, v, block_mask=mask)
    return flex_attention(q, k, v, block_mask=mask)


def causal_block_mask(tokens: int, device: torch.device) -> BlockMask:
    return create_block_mask(
        lambda b, h, query, key: query >= key, None, None, tokens, tokens, device=device
    )


cached_block_mask = lru_cache(causal_block_mask)


@lru_cache
def compiled_flex_attention() -> Callable[..., Tensor]:
    return torch.compile(flex_attention)


def rotation(tokens: int, width: int) -> Tensor:
    """Cosines and sines of rotary positions, (2, tokens, 3, 1, width).

    The axis of 3 is queries, keys and values, whose angle is 0. Elements i and i + width / 2 of a
    head rotate as one pair.
    """
    turns = torch.empty(2, tokens, 3, 1, width)
    if turns.is_meta:  # a model without data; computing there would import Dynamo
        return turns
    speeds = 10_000.0 ** (-torch.arange(0, width, 2) / width)  # (D/2)
    angles = torch.arange(tokens)[:, None, None, None] * torch.cat((-speeds, speeds))
    angles = angles * torch.tensor([1, 1, 0])[:, None, None]  # (T, 3, 1, D)
    return torch.stack((angles.cos(), angles.sin()), out=turns)


def rotate_qk(qkv: Tensor, turns: Tensor, n_head: int) -> Tensor:
    """Rotates queries and keys by their positions (RoPE, arxiv.org/abs/2104.09864).

    `qkv` is (B, T, 3C), and so is what comes back; `turns` is of `rotation`.
    """
    cos, sin = turns.to(qkv.dtype)  # (T, 3, 1, D) each
    heads = qkv.unflatten(-1, (3, n_head, -1))  # (B, T, 3, H, D)
    partners = heads.roll(heads.size(-1) // 2, dims=-1)
    return torch.addcmul(heads * cos, partners, sin).flatten(2)


class LayerNorm(nn.Module):
    """Layer norm over C with an optional bias.

    Under autocast the result is rounded here to the type that the products reading it use.
    """

    def __init__(self, width: int, bias: bool):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        kind = x.device.type
        h = F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)
        return h.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else h


class CausalSelfAttention(nn.Module):
    mask: Tensor | None
    turns: Tensor | None

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.n_head = config.n_head
        self.dropout = config.dropout
        self.attention = config.attention
        self.fused = config.kernels == "fused"
        self.c_attn = Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = Linear(config.n_embd, config.n_embd, bias=config.bias)
        mask = None
        if config.attention == "slow":
            mask = torch.ones(config.block_size, config.block_size, dtype=torch.bool).tril()
        turns = None
        if config.positions == "rotary":
            turns = rotation(config.block_size, config.n_embd // config.n_head)
        # Not persistent, so that a checkpoint has the same names under every backend.
        self.register_buffer("mask", mask, persistent=False)
        self.register_buffer("turns", turns, persistent=False)

    def forward(self, x: Tensor, seed: Tensor | None = None) -> Tensor:
        qkv = self.c_attn(x)  # (B, T, 3C)
        if self.turns is not None:
            turns = self.turns[:, : x.size(1)]
            qkv = (rotate if self.fused else rotate_qk)(qkv, turns, self.n_head)
        dropout = self.dropout if self.training else 0.0
        if self.attention == "triton":  # reads queries, keys and values in place, without a split
            y = packed_causal_attention(qkv, self.n_head, dropout, seed)  # (B, T, C)
        else:
            y = self.attend_separately(qkv, dropout)  # (B, T, C)
        x = self.c_proj(y)
        return x

    def attend_separately(self, qkv: Tensor, dropout: float) -> Tensor:
        B, T, C = qkv.size(0), qkv.size(1), qkv.size(2) // 3
        q, k, v = qkv.split(C, dim=2)  # each (B, T, C)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)  # (B, H, T, D)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)  # (B, H, T, D)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)  # (B, H, T, D)
        mask = None if self.mask is None else self.mask[:T, :T]
        y = attend(q, k, v, self.attention, dropout, mask)
        return y.transpose(1, 2).reshape(B, T, C)  # (B, H, T, D) -> (B, T, C)


class MLP(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.c_fc = Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.gelu = nn.GELU("tanh" if config.activation == "gelu_tanh" else "none")
        self.fused = config.kernels == "fused" and config.activation == "gelu"
        self.c_proj = Linear(4 * config.n_embd, config.n_embd, bias=config.bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.fused and self.c_fc.copy is not None:
            return gelu_between(x, self.c_fc, self.c_proj)  # (B, T, C)
        x = self.c_fc(x)  # (B, T, C) -> (B, T, 4C)
        x = self.c_proj(gelu(x) if self.fused else self.gelu(x))  # (B, T, C)
        return x


class Residual(nn.Module):
    """Adds to the residual stream, after dropout, and norms the sum for the layer that reads it."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        self.fused = config.kernels == "fused"

    def forward(
        self, x: Tensor, y: Tensor, norm: LayerNorm, seed: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns x + dropout(y) and its norm, (B, T, C) like x and y."""
        if self.fused:
            dropout = self.dropout.p if self.training else 0.0
            return norm_of_sum(x, y, norm.weight, norm.bias, dropout, seed)
        x = x + self.dropout(y)
        return x, norm(x)


class Block(nn.Module):
    """A pre-norm block. With kernels=fused the next block's norm is computed with its last sum.

    inductor would fuse the two as well, but into a slower kernel: its backward draws dropout once
    more, in 221 registers.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.ln_1 = LayerNorm(config.n_embd, config.bias)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = LayerNorm(config.n_embd, config.bias)
        self.mlp = MLP(config)
        self.residual = Residual(config)

    def forward(
        self,
        x: Tensor,
        h: Tensor | None = None,
        next_norm: LayerNorm | None = None,
        seeds: Seeds = NO_SEEDS,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the residual stream after the block and, with `next_norm`, its norm, else None.

        x is the residual stream, h its norm if that is computed already; all are (B, T, C).
        """
        h = self.ln_1(x) if h is None else h
        x, h = self.residual(x, self.attn(h, seeds.weights), self.ln_2, seeds.attention)
        y = self.mlp(h)
        if next_norm is None:
            return x + self.residual.dropout(y), None
        x, h = self.residual(x, y, next_norm, seeds.mlp)
        return x, h


class Transformer(nn.Module):
    """Everything between token ids and logits, under nanoGPT's names."""

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        self.fused = config.kernels == "fused"
        self.embeds = self.fused and vocab_size <= MOST_IDS
        self.seeded = config.dropout > 0 and (self.fused or config.attention == "triton")
        self.wte = nn.Embedding(vocab_size, config.n_embd)
        learned = config.positions == "learned"
        self.wpe = nn.Embedding(config.block_size, config.n_embd) if learned else None
        self.drop = nn.Dropout(config.dropout)
        # None: the residual stream has the embeddings' type
        self.residual_dtype = torch.bfloat16 if config.residual_dtype == "bfloat16" else None
        self.h = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.ln_f = LayerNorm(config.n_embd, config.bias)

    def embed(
        self, idx: Tensor, norm: LayerNorm | None, seed: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Embeddings of idx (B, T), as (B, T, C), and their norm if `norm` is given, else None."""
        if norm is not None and self.embeds:
            places = None if self.wpe is None else self.wpe.weight
            dropout = self.drop.p if self.training else 0.0
            dtype = self.residual_dtype
            return embedding_and_norm(
                idx, self.wte.weight, places, norm.weight, norm.bias, dropout, seed, dtype
            )
        x = self.wte(idx)
        if self.wpe is not None:
            x = x + self.wpe(torch.arange(idx.size(1), device=idx.device))
        x = self.drop(x)
        x = x if self.residual_dtype is None else x.to(self.residual_dtype)
        return x, None if norm is None else norm(x)

    def forward(self, idx: Tensor) -> tuple[Tensor, Tensor | None]:
        """Output of the blocks for idx (B, T), as (B, T, C), and with kernels=fused its norm."""
        first, *others = self.norms_ahead()
        seed, seeds = self.seeds(idx)
        x, h = self.embed(idx, first, seed)  # (B, T, C)
        for block, next_norm, of_block in zip(self.h, others, seeds, strict=True):
            x, h = block(x, h, next_norm, of_block)
        return x, h

    def seeds(self, idx: Tensor) -> tuple[Tensor | None, list[Seeds]]:
        """Seeds of dropout in this project's kernels: the embedding's, and each block's.

        None and NO_SEEDS where PyTorch draws dropout itself, or there is none.
        """
        if not (self.training and self.seeded):
            return None, [NO_SEEDS] * len(self.h)
        return draw_seeds(len(self.h), idx.device)

    def norms_ahead(self) -> list[LayerNorm | None]:
        """Norms to compute ahead with kernels=fused: of each block's input and of the last output.

        The list has n_layer + 1 entries; an entry is None where the reader norms its own input.
        """
        if not self.fused:
            return [None] * (len(self.h) + 1)
        return [*(cast(LayerNorm, block.ln_1) for block in self.h), self.ln_f]


class Head(Linear):
    """Logits (B, T, C) -> (B, T, V), computed with the vocabulary padded to a multiple of 64.

    Matrix kernels for 65 columns read two bytes at a time. The padding is zeros, which are cut off
    again; it is there in CUDA training, and wherever the weight's 16-bit copy is used.
    """

    def forward(self, x: Tensor) -> Tensor:
        if self.training and x.is_cuda:
            return F.linear(x, self.padded_weight())[..., : self.out_features]
        return super().forward(x)[..., : self.out_features]

    def padded_weight(self) -> Tensor:
        return F.pad(self.weight, (0, 0, 0, -self.out_features % 64))

    def padded_copy(self, dtype: torch.dtype) -> Tensor:
        return self.padded_weight().to(dtype) if self.copy is None else self.copy

    def copy_rows(self) -> int:
        return self.out_features + -self.out_features % 64


class GPT(nn.Module):
    """The model; `vocab_size` comes with the data, the rest from the configuration."""

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        self.config = config
        self.transformer = Transformer(config, vocab_size)
        self.lm_head = Head(config.n_embd, vocab_size, bias=False)
        self.apply(self._init_weights)
        for name, parameter in self.named_parameters():
            # Each block adds twice to the residual stream; this keeps its variance (GPT-2, 2.3).
            if name.endswith("c_proj.weight"):
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * config.n_layer))
        self.transformer.wte.weight = self.lm_head.weight  # tied, arxiv.org/abs/1608.05859

    @staticmethod
    def _init_weights(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Returns logits and the mean loss. idx and targets are (B, T) token ids.

        With targets the logits are (B, T, V); a target of -1 is not counted. Without targets they
        are those of the last token alone, (B, 1, V), and the loss is None. In training with
        kernels=fused the gradients took the logits' place, so that they come back as (B, 0, V).
        """
        x, h = self.transformer(idx)  # (B, T, C)
        if targets is None:
            return self.logits(x[:, -1:]), None  # (B, 1, V)
        return self.score(x, h, targets)

    def logits(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        """Logits (B, T, V) of the blocks' output x (B, T, C); h is its norm if already computed."""
        logits: Tensor = self.lm_head(self.transformer.ln_f(x) if h is None else h)
        return logits

    def score(self, x: Tensor, h: Tensor | None, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (B, T, V), or (B, 0, V) where gradients took their place, and the mean loss."""
        if self.training and h is not None:  # kernels=fused
            weight, copy = self.lm_head.weight, self.lm_head.padded_copy(h.dtype)
            loss = linear_cross_entropy(h.flatten(0, 1), weight, copy, targets.flatten())
            return h.new_empty(len(h), 0, len(weight)), loss
        logits = self.logits(x, h)  # (B, T, V)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
        return logits, loss

    def parameter_count(self) -> int:
        """Number of parameters without the position embeddings, as nanoGPT counts them."""
        wpe = self.transformer.wpe
        positions = 0 if wpe is None else wpe.weight.numel()
        return sum(p.numel() for p in self.parameters()) - positions

    def flops_per_token(self) -> int:
        """FLOPs of forward and backward for one token.

        6N + 12LHDT, as in PaLM, arxiv.org/abs/2204.02311, appendix B.
        """
        config = self.config
        return 6 * self.parameter_count() + 12 * config.n_layer * config.n_embd * config.block_size
