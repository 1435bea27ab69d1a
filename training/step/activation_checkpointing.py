"""Blocks that keep fewer activations for the backward pass and recompute the others there.

Only a block's `forward` is wrapped. The names of the weights stay the same, all blocks still share
one compiled code, and the recomputation is compiled with it.
"""

from collections.abc import Iterable
from functools import partial
from types import MethodType
from typing import Any, cast

from torch._ops import OpOverload
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from model import GPT, Block

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


def choose(context: object, operator: OpOverload, *_: object, **__: object) -> CheckpointPolicy:
    name = getattr(operator, "overloadpacket", operator).__name__
    return CheckpointPolicy.MUST_SAVE if name in KEPT else CheckpointPolicy.PREFER_RECOMPUTE


def recompute_activations(model: GPT, mode: str) -> None:
    """Makes the blocks recompute as `mode`, a value of activation_checkpointing, says.

    The mode "none" leaves the model as it is.
    """
    if mode == "none":
        return
    wrapped = recompute_cheap if mode == "selective" else recompute_all
    for block in cast(Iterable[Block], model.transformer.h):
        block.forward = MethodType(wrapped, block)  # type: ignore[method-assign]


def recompute_all(block: Block, *inputs: Any) -> Any:
    """Forward pass of `block` that keeps its inputs alone."""
    return checkpoint(partial(type(block).forward, block), *inputs, use_reentrant=False)


def recompute_cheap(block: Block, *inputs: Any) -> Any:
    """Forward pass of `block` that keeps its inputs and the results of the operators in KEPT."""
    contexts = partial(create_selective_checkpoint_contexts, choose)
    compute = partial(type(block).forward, block)
    return checkpoint(compute, *inputs, use_reentrant=False, context_fn=contexts)
