"""The output layer and its cross-entropy, whose gradient overwrites the logits: kernels=fused.

With a vocabulary of 50,304 the logits are the largest tensor of all. PyTorch reads them for the
loss, reads them again for the gradient and writes that to another tensor as large; here one kernel
does both, and leaves the gradient where the logits were. Liger does the same in chunks of tokens,
which saves memory, not time.
"""

from typing import Any

import torch
from torch import Tensor
from torch.library import register_autograd, register_fake

from kernels.linear import placed_gradient
from kernels.operators import operator

IGNORED = -1  # a target that is not counted


def linear_cross_entropy(h: Tensor, weight: Tensor, copy: Tensor, targets: Tensor) -> Tensor:
    """Mean loss in float32 of h (N, C) with weight (V, C) and targets (N).

    copy is the weight as products read it, in h's dtype, with V rows and maybe rows of zeros after
    them.
    """
    losses, _ = losses_and_gradients(h, weight, copy, targets)
    return losses.sum() / (targets != IGNORED).sum()


@operator
def losses_and_gradients(
    h: Tensor, weight: Tensor, copy: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor]:
    """Loss of each token, (N), and the gradients of the logits, (N, rows of copy)."""
    from kernels.cross_entropy.in_triton import launch

    logits = h @ copy.t()
    return launch(logits, targets, len(weight), IGNORED), logits


@register_fake(losses_and_gradients)
def _(h: Tensor, weight: Tensor, copy: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    return h.new_empty(len(h), dtype=torch.float32), h.new_empty(len(h), len(copy))


def keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    h, weight, copy, _ = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(h, copy, output[1])
    ctx.weight = weight


def backward(ctx: Any, dlosses: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    """Gradients of h and of the weight.

    The stored gradients of the logits are still to be multiplied by dlosses. If the vocabulary is
    smaller than the width, they are; if not, the smaller h and its gradient are instead.
    """
    if dlosses is None:
        return None, None, None, None
    h, copy, dlogits = ctx.saved_tensors
    V = len(ctx.weight)
    if len(copy) < h.size(1):
        dlogits = scale_rows(dlogits, dlosses)
        return dlogits @ copy, placed_gradient(ctx.weight, dlogits, h)[:V], None, None
    dweight = placed_gradient(ctx.weight, dlogits, scale_rows(h, dlosses))[:V]
    return scale_rows(dlogits @ copy, dlosses), dweight, None, None


def scale_rows(rows: Tensor, factors: Tensor) -> Tensor:
    """Multiply each row by its factor in float32: bfloat16 has too few digits for 1 / tokens."""
    return torch.mul(rows, factors[:, None], out=torch.empty_like(rows))  # one kernel, uncompiled


register_autograd(losses_and_gradients, backward, setup_context=keep_for_backward)
