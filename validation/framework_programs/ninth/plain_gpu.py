"""Programs of PyTorch alone whose time is the GPU's own."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, encoder, regression_step, residual_mlp


def plain_classes_at_full_size(fault: bool, mark: Mark) -> None:
    """Enlarges the scores of 150 classes before it takes the best; without it the best alone.

    The scores and their softmax are gigabytes, of which one number in 150 is kept.
    """
    images, width, edge, classes = size(16, 2), size(512, 64), size(32, 4), size(150, 5)
    head = nn.Sequential(encoder(width, size(2, 1)), nn.Linear(width, classes))
    head = head.to(DEVICE, torch.bfloat16).eval()
    patches = torch.randn(images, edge * edge, width, device=DEVICE, dtype=torch.bfloat16)
    full = (16 * edge, 16 * edge)

    def step() -> None:
        scores = head(patches).transpose(1, 2).unflatten(2, (edge, edge))
        if fault:
            F.interpolate(scores.float(), full, mode="bilinear").softmax(1).argmax(1)
        else:
            best = scores.argmax(1, keepdim=True).to(torch.uint8)
            F.interpolate(best, full, mode="nearest")

    with torch.no_grad():
        repeat(step, mark)


def plain_wide_control(fault: bool, mark: Mark) -> None:
    """Trains four wide layers in bfloat16, in products of large matrices."""
    with torch.device(DEVICE):
        model = residual_mlp(size(8192, 32), 2)
        x, y = torch.randn(2, size(32_768, 4), size(8192, 32))
    repeat(regression_step(model, x, y), mark)


def plain_reaction_control(fault: bool, mark: Mark) -> None:
    """Advances two substances that react and spread, by the Gray-Scott equations."""
    edge = size(8192, 16)
    u, v = torch.rand(2, edge, edge, device=DEVICE)

    def spread(x: Tensor) -> Tensor:
        around = x.roll(1, 0) + x.roll(-1, 0) + x.roll(1, 1) + x.roll(-1, 1)
        return around - 4 * x

    def step() -> None:
        nonlocal u, v
        reacting = u * v * v
        changes = 0.16 * spread(u) - reacting + 0.06 * (1 - u), 0.08 * spread(v) + reacting
        u, v = u + 0.1 * changes[0], v + 0.1 * (changes[1] - 0.12 * v)

    repeat(step, mark)
