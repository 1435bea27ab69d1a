"""Programs of PyTorch alone whose time is the GPU's own."""

import torch
import torch.nn.functional as F
from torch import Tensor

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, bfloats


def plain_permutes_for_norms(fault: bool, mark: Mark) -> None:
    """Puts channels last for each norm, and first again behind it; without the fault they stay.

    Two copies around a norm move twice as many bytes as the norm.
    """
    channels = size(256, 8)
    x = bfloats(size(64, 2), channels, size(128, 4), size(128, 4))
    x = x if fault else x.to(memory_format=torch.channels_last)
    scale, shift = bfloats(channels), bfloats(channels)

    def norm(x: Tensor) -> Tensor:
        last = x.permute(0, 2, 3, 1)
        made = F.layer_norm(last.contiguous() if fault else last, (channels,), scale, shift)
        first = made.permute(0, 3, 1, 2)
        return first.contiguous() if fault else first

    def step() -> None:
        h = x
        for _ in range(4):
            h = h + F.gelu(norm(h))

    with torch.no_grad():
        repeat(step, mark)


def plain_optimizer_control(fault: bool, mark: Mark) -> None:
    """Updates 400 million weights by fused AdamW, for a gradient that many small batches made."""
    shape = size(8192, 16), size(8192, 16)
    weights = [torch.randn(shape, device=DEVICE, requires_grad=True) for _ in range(6)]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    repeat(torch.optim.AdamW(weights, 1e-5, fused=True).step, mark)
