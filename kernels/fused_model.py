"""Makes every model, and wires its layers around this project's own kernels with kernels=fused.

`make_model` changes the classes of a model.GPT's modules, so that the weights, their names and
their order are the same with all kernels. In a fused model each sum with the residual stream is
computed together with the norm for its reader, so a block returns both. inductor would fuse the two
as well, but into a slower kernel: its backward draws dropout once more, in 221 registers.
Shapes: B batch, T tokens, C n_embd, V vocabulary.
"""

from collections.abc import Iterable
from typing import cast

from torch import Tensor, nn
from torch.nn import functional as F

from configs.model import ModelConfig
from kernels.cross_entropy import linear_cross_entropy
from kernels.decoding import linear_of_norm
from kernels.dropout import NO_SEEDS, Seeds, draw_seeds
from kernels.embedding import MOST_IDS, embedding_and_norm
from kernels.gelu import gelu
from kernels.mlp import gelu_between
from kernels.norm import norm_of_sum
from kernels.rotary import rotate
from model import GPT, MLP, Block, CausalSelfAttention, Head, LayerNorm, Transformer


def make_model(config: ModelConfig, vocab_size: int) -> GPT:
    """The model of a configuration; `vocab_size` comes with the data."""
    model = GPT(config, vocab_size)
    classes: dict[type[nn.Module], type[nn.Module]] = {}
    if config.kernels == "fused":
        classes = FUSED
    elif config.attention == "triton" and config.dropout > 0:
        classes = SEEDED
    for module in model.modules():
        module.__class__ = classes.get(type(module), type(module))
    return model


class SeededBlock(Block):
    """Block that is given the seed of dropout in attention=triton."""

    def forward(self, x: Tensor, seed: Tensor | None = None) -> Tensor:
        x = x + self.attn(self.ln_1(x), seed)
        x = x + self.mlp(self.ln_2(x))
        return x


class SeededTransformer(Transformer):
    """Transformer that draws the seeds of dropout in our kernels by one kernel for all blocks."""

    def forward(self, idx: Tensor) -> Tensor:
        _, seeds = self.seeds(idx)
        x = self.embed(idx)
        for block, of_block in zip(self.h, seeds, strict=True):
            x = block(x, of_block.weights)
        return x

    def seeds(self, idx: Tensor) -> tuple[Tensor | None, list[Seeds]]:
        """Seeds of the embedding's dropout and of each block's; None and NO_SEEDS without any."""
        if not (self.training and self.drop.p > 0):
            return None, [NO_SEEDS] * len(self.h)
        return draw_seeds(len(self.h), idx.device)


class FusedAttention(CausalSelfAttention):
    """Attention that leaves its last dropout to the sum after it."""

    def forward(self, x: Tensor, seed: Tensor | None = None) -> Tensor:
        qkv = self.c_attn(x)  # (B, T, 3C)
        if self.turns is not None:
            qkv = rotate(qkv, self.turns[:, : x.size(1)], self.n_head)
        x = self.c_proj(self.attend_packed(qkv, seed))
        return x


class FusedMLP(MLP):
    """MLP that leaves its dropout to the sum after it, and the approximate GELU to PyTorch."""

    def forward(self, x: Tensor) -> Tensor:
        if self.is_exact and self.c_fc.copy is not None:
            return gelu_between(x, self.c_fc, self.c_proj)
        x = self.c_proj(self.hidden(x))
        return x

    def hidden(self, x: Tensor) -> Tensor:
        return gelu(self.c_fc(x)) if self.is_exact else super().hidden(x)

    @property
    def is_exact(self) -> bool:
        return self.gelu.approximate == "none"

    @staticmethod
    def own_kernels(config: ModelConfig) -> tuple[str, ...]:
        """Parts of the names of our kernels that it launches in a training step."""
        is_exact = config.activation == "gelu"
        return ("forward_gelu_triton", "backward_gelu_triton") if is_exact else ()


def hidden_of_norm(x: Tensor, norm: LayerNorm, mlp: MLP) -> Tensor:
    """mlp.hidden(norm(x)) of single tokens (B, C), in one kernel but for the approximate GELU."""
    exact = mlp.gelu.approximate == "none"
    y = product_of_norm(x, norm, mlp.c_fc, gelu=exact)  # (B, 4C)
    return y if exact else mlp.gelu(y)


def product_of_norm(x: Tensor, norm: LayerNorm, linear: nn.Linear, gelu: bool = False) -> Tensor:
    """linear(norm(x)), followed by GELU if `gelu`, in one kernel."""
    return linear_of_norm(x, norm.weight, norm.bias, linear.weight, linear.bias, gelu)


class FusedBlock(Block):
    """Block that reads the norm of its input, and computes that of its output for the next one."""

    def forward(  # type: ignore[override]  # it is FusedTransformer that calls it
        self, x: Tensor, h: Tensor, next_norm: LayerNorm, seeds: Seeds
    ) -> tuple[Tensor, Tensor]:
        """Residual stream after the block and `next_norm` of it, from x and its norm h."""
        y = self.attn(h, seeds.weights)
        x, h = add_and_norm(x, y, self.attn.resid_dropout, self.ln_2, seeds.attention)
        return add_and_norm(x, self.mlp(h), self.mlp.dropout, next_norm, seeds.mlp)


def add_and_norm(
    x: Tensor, y: Tensor, dropout: nn.Dropout, norm: LayerNorm, seed: Tensor | None
) -> tuple[Tensor, Tensor]:
    """x + dropout(y) and its norm, (B, T, C) like x and y."""
    p = dropout.p if dropout.training else 0.0
    return norm_of_sum(x, y, norm.weight, norm.bias, p, seed)


class FusedTransformer(SeededTransformer):
    """Transformer that returns the last norm with the blocks' output."""

    def forward(self, idx: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        first, *others = [block.ln_1 for block in cast(Iterable[Block], self.h)]
        seed, seeds = self.seeds(idx)
        x, h = self.embed(idx, first, seed)
        for block, next_norm, of_block in zip(self.h, [*others, self.ln_f], seeds, strict=True):
            x, h = block(x, h, next_norm, of_block)
        return x, h

    def embed(  # type: ignore[override]
        self, idx: Tensor, norm: LayerNorm, seed: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Embeddings (B, T, C) of idx (B, T), and their norm."""
        if self.wte.num_embeddings > MOST_IDS:
            x = super().embed(idx)
            return x, norm(x)
        places = None if self.wpe is None else self.wpe.weight
        p = self.drop.p if self.training else 0.0
        weight, dtype = self.wte.weight, self.residual_dtype
        return embedding_and_norm(idx, weight, places, norm.weight, norm.bias, p, seed, dtype)


class FusedHead(Head):
    """Head whose weight's 16-bit copy is padded, too."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[..., : self.out_features]

    def copy_rows(self) -> int:
        return self.out_features + -self.out_features % 64


class FusedGPT(GPT):
    """GPT whose gradients take the logits' place in training: these come back as (B, 0, V)."""

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        x, h = self.transformer(idx)
        if targets is None:
            return self.logits(x[:, -1:]), None  # (B, 1, V)
        return self.score(h, targets)

    def score(self, h: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (B, T, V), or (B, 0, V) in training, and the mean loss; h is the last norm."""
        head = self.lm_head
        if self.training:
            copy = head.padded_weight().to(h.dtype) if head.copy is None else head.copy
            loss = linear_cross_entropy(h.flatten(0, 1), head.weight, copy, targets.flatten())
            return h.new_empty(len(h), 0, head.out_features), loss
        logits = head(h)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
        return logits, loss


SEEDED = {Block: SeededBlock, Transformer: SeededTransformer}
FUSED = {
    GPT: FusedGPT,
    Transformer: FusedTransformer,
    Block: FusedBlock,
    CausalSelfAttention: FusedAttention,
    MLP: FusedMLP,
    Head: FusedHead,
}
