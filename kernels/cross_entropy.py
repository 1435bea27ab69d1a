"""The head and its cross-entropy, with the logits' gradient in their own place: kernels=fused.

With a vocabulary of 50,304 the logits are the largest tensor there is. PyTorch reads them for the
loss, and reads them again and writes another as large for the gradient; here one kernel does both,
and leaves the gradient where the logits were. Liger does the same in chunks of tokens, which saves
memory, not time.
"""

from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

IGNORED = -1  # a target that is not counted


def linear_cross_entropy(h: Tensor, weight: Tensor, targets: Tensor, columns: int) -> Tensor:
    """The mean loss in float32. h is (N, C), targets (N).

    weight is (columns or more, C), of h's dtype: behind `columns` are none but zeros.
    """
    losses, _ = losses_and_gradients(h, weight, targets, columns)
    return losses.sum() / (targets != IGNORED).sum()


@custom_op("profiling_nanogpt::losses_and_gradients", mutates_args=())
def losses_and_gradients(
    h: Tensor, weight: Tensor, targets: Tensor, columns: int
) -> tuple[Tensor, Tensor]:
    """Each token's loss, (N), and its gradients of the logits, (N, V)."""
    from kernels.cross_entropy_triton import launch

    logits = h @ weight.t()
    return launch(logits, targets, columns, IGNORED), logits


@losses_and_gradients.register_fake
def _(h: Tensor, weight: Tensor, targets: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    return h.new_empty(len(h), dtype=torch.float32), h.new_empty(len(h), len(weight))


def keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:2], output[1])


def backward(ctx: Any, dlosses: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    """The gradients lie there unscaled: what they are multiplied by goes into what is smaller."""
    if dlosses is None:
        return None, None, None, None
    h, weight, dlogits = ctx.saved_tensors
    each = dlosses.to(h.dtype)[:, None]
    return (dlogits @ weight) * each, dlogits.t() @ (h * each), None, None


losses_and_gradients.register_autograd(backward, setup_context=keep_for_backward)
