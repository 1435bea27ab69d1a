"""Blocks that keep less for their backward pass, and compute it again there.

The class of a block changes, and nothing else of it: names of weights and compiled code stay
common to all blocks, and its recomputation is compiled with it.
"""

from functools import partial

from torch import Tensor
from torch._ops import OpOverload
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from kernels.dropout import NO_SEEDS, Seeds
from model import GPT, Block, LayerNorm

# operators whose results `selective` keeps: what takes most to compute for its bytes
KEPT = {
    "mm",
    "addmm",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "flex_attention",
    "packed_attention",  # attention=triton
    "product",  # kernels=fused
}


class RecomputedBlock(Block):
    """Keeps what comes in, and for each selective operator what comes out."""

    selective = False

    def forward(
        self,
        x: Tensor,
        h: Tensor | None = None,
        next_norm: LayerNorm | None = None,
        seeds: Seeds = NO_SEEDS,
    ) -> tuple[Tensor, Tensor | None]:
        def compute(x: Tensor, h: Tensor | None) -> tuple[Tensor, Tensor | None]:
            return Block.forward(self, x, h, next_norm, seeds)

        if self.selective:
            contexts = partial(create_selective_checkpoint_contexts, choose)
            return checkpoint(compute, x, h, use_reentrant=False, context_fn=contexts)
        return checkpoint(compute, x, h, use_reentrant=False)


class SelectiveBlock(RecomputedBlock):
    selective = True


def choose(context: object, operator: OpOverload, *_: object, **__: object) -> CheckpointPolicy:
    name = getattr(operator, "overloadpacket", operator).__name__
    return CheckpointPolicy.MUST_SAVE if name in KEPT else CheckpointPolicy.PREFER_RECOMPUTE


def recompute_activations(model: GPT, mode: str) -> None:
    """`mode` is a value of activation_checkpointing; nothing changes with none."""
    if mode == "none":
        return
    for block in model.transformer.h:
        block.__class__ = SelectiveBlock if mode == "selective" else RecomputedBlock
