"""Blocks that keep fewer activations for the backward pass and recompute the others there.

Only the class of a block changes. The names of the weights stay the same, all blocks still share
one compiled code, and the recomputation is compiled with it.
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

# operators whose results `selective` keeps: those that are the most expensive to recompute for
# the bytes that they occupy
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
    """Block that keeps its inputs and, if `selective`, the results of the operators in KEPT."""

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
            x, h = checkpoint(compute, x, h, use_reentrant=False, context_fn=contexts)
        else:
            x, h = checkpoint(compute, x, h, use_reentrant=False)
        return x, h


class SelectiveBlock(RecomputedBlock):
    selective = True


def choose(context: object, operator: OpOverload, *_: object, **__: object) -> CheckpointPolicy:
    name = getattr(operator, "overloadpacket", operator).__name__
    return CheckpointPolicy.MUST_SAVE if name in KEPT else CheckpointPolicy.PREFER_RECOMPUTE


def recompute_activations(model: GPT, mode: str) -> None:
    """Makes the blocks recompute as `mode`, a value of activation_checkpointing, says.

    The mode "none" leaves the model as it is.
    """
    if mode == "none":
        return
    for block in model.transformer.h:
        block.__class__ = SelectiveBlock if mode == "selective" else RecomputedBlock
