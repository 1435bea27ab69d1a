"""GPT-2's decoder, and the ways to compute its attention behind one function.

The shape is nanoGPT's: pre-norm blocks, tied embeddings, GELU, learned positions or rotary ones,
optional biases.
Called by train.py. sample.py has the same layers write text (training.sampling.decode).
Shapes: B batch, T tokens, S keys, C n_embd, H n_head, D = C / H, V vocabulary.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from configs.backends import AUTO, BACKENDS
from configs.model import ModelConfig
from kernels.attention import causal_attention, packed_causal_attention
from kernels.linear import Linear


def attention_in_force(attention: str, device_type: str, dropout: float) -> str:
    """Name of the backend that `attend` really runs: `attention`, or its substitute on a CPU.

    PyTorch's flash kernel for a CPU has no dropout; math then computes the same function.
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
        from kernels.attention.flex import attend_flex  # importing it takes PyTorch 2.15 a second

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
        self.c_attn = Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.resid_dropout = nn.Dropout(config.dropout)
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
        """Attention (B, T, C) to x (B, T, C); `seed` is that of `packed_causal_attention`."""
        qkv = self.c_attn(x)  # (B, T, 3C)
        if self.turns is not None:
            qkv = rotate_qk(qkv, self.turns[:, : x.size(1)], self.n_head)
        x = self.resid_dropout(self.c_proj(self.attend_packed(qkv, seed)))  # (B, T, C)
        return x

    def attend_packed(self, qkv: Tensor, seed: Tensor | None) -> Tensor:
        """Attention (B, T, C) of qkv (B, T, 3C), a token's query, key and value side by side."""
        dropout = self.dropout if self.training else 0.0
        if self.attention == "triton":  # reads queries, keys and values in place, without a split
            return packed_causal_attention(qkv, self.n_head, dropout, seed)
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
        self.c_proj = Linear(4 * config.n_embd, config.n_embd, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout(self.c_proj(self.hidden(x)))  # (B, T, C)
        return x

    def hidden(self, x: Tensor) -> Tensor:
        x = self.gelu(self.c_fc(x))  # (B, T, C) -> (B, T, 4C)
        return x


class Block(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.ln_1 = LayerNorm(config.n_embd, config.bias)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = LayerNorm(config.n_embd, config.bias)
        self.mlp = MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))  # (B, T, C)
        x = x + self.mlp(self.ln_2(x))  # (B, T, C)
        return x


class Transformer(nn.Module):
    """Everything between token ids and logits, under nanoGPT's names."""

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, config.n_embd)
        learned = config.positions == "learned"
        self.wpe = nn.Embedding(config.block_size, config.n_embd) if learned else None
        self.drop = nn.Dropout(config.dropout)
        # None: the residual stream has the embeddings' type
        self.residual_dtype = torch.bfloat16 if config.residual_dtype == "bfloat16" else None
        self.h = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.ln_f = LayerNorm(config.n_embd, config.bias)

    def forward(self, idx: Tensor) -> Tensor:
        x = self.embed(idx)  # (B, T) -> (B, T, C)
        for block in self.h:
            x = block(x)
        return x

    def embed(self, idx: Tensor) -> Tensor:
        x: Tensor = self.wte(idx)
        if self.wpe is not None:
            x = x + self.wpe(torch.arange(idx.size(1), device=idx.device))
        x = self.drop(x)
        return x if self.residual_dtype is None else x.to(self.residual_dtype)


class Head(Linear):
    """Logits (B, T, C) -> (B, T, V), computed with the vocabulary padded to a multiple of 64.

    Matrix kernels for 65 columns read two bytes at a time. The padding is zeros, which are cut off
    again; it is there in CUDA training.
    """

    def forward(self, x: Tensor) -> Tensor:
        if self.training and x.is_cuda:
            return F.linear(x, self.padded_weight())[..., : self.out_features]
        return super().forward(x)

    def padded_weight(self) -> Tensor:
        return F.pad(self.weight, (0, 0, 0, -self.out_features % 64))


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
        are those of the last token alone, (B, 1, V), and the loss is None.
        """
        x = self.transformer(idx)  # (B, T, C)
        if targets is None:
            return self.logits(x[:, -1:]), None  # (B, 1, V)
        return self.score(x, targets)

    def logits(self, x: Tensor) -> Tensor:
        logits: Tensor = self.lm_head(self.transformer.ln_f(x))  # (B, T, C) -> (B, T, V)
        return logits

    def score(self, x: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (B, T, V) of the blocks' output x (B, T, C), and the mean loss."""
        logits = self.logits(x)
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
