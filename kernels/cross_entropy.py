"""The head and its cross-entropy, with the logits' gradient in their own place: kernels=fused.

With a vocabulary of 50,304 the logits are the largest tensor there is. PyTorch reads them for the
loss, and reads them again and writes another as large for the gradient; here one kernel does both,
and leaves the gradient where the logits were. Liger does the same in chunks of tokens, which saves
memory, not time.
"""

from typing import Any

import torch
from torch import Tensor
from torch.library import register_autograd, register_fake

from kernels.linear import placed_gradient
from kernels.operators import operator

IGNORED = -1  # a target that is not counted


def linear_cross_entropy(h: Tensor, weight: Tensor, copy: Tensor, targets: Tensor) -> Tensor:
    """The mean loss in float32. h is (N, C), weight (V, C), targets (N).

    copy is the weight as products read it, of h's dtype, and has V rows or zeros behind them.
    """
    losses, _ = losses_and_gradients(h, weight, copy, targets)
    return losses.sum() / (targets != IGNORED).sum()


@operator
def losses_and_gradients(
    h: Tensor, weight: Tensor, copy: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor]:
    """Each token's loss, (N), and its gradients of the logits, (N, rows of copy)."""
    from kernels.cross_entropy_triton import launch

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
    """The gradients lie there unscaled: what they are multiplied by goes into what is smaller."""
    if dlosses is None:
        return None, None, None, None
    h, copy, dlogits = ctx.saved_tensors
    V = len(ctx.weight)
    if len(copy) < h.size(1):
        dlogits = scaled(dlogits, dlosses)
        return dlogits @ copy, placed_gradient(ctx.weight, dlogits, h)[:V], None, None
    dweight = placed_gradient(ctx.weight, dlogits, scaled(h, dlosses))[:V]
    return scaled(dlogits @ copy, dlosses), dweight, None, None


def scaled(rows: Tensor, factors: Tensor) -> Tensor:
    """Each row by its factor, in float32: 1 / tokens has no more digits than bfloat16 by luck."""
    return torch.mul(rows, factors[:, None], out=torch.empty_like(rows))  # one kernel, uncompiled


register_autograd(losses_and_gradients, backward, setup_context=keep_for_backward)
