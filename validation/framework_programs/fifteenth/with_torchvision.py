"""A program of torchvision: a wide vision transformer."""

import torch
from torchvision.models import VisionTransformer

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, bfloats, training_step


def vision_wide_control(fault: bool, mark: Mark) -> None:
    """Trains two layers of 4,096 channels in bfloat16, on 32 pictures of 257 words."""
    edge, width = size(224, 28), size(4096, 64)
    with torch.device(DEVICE):
        model = VisionTransformer(edge, 14, 2, width // 64, width, 4 * width).bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5, fused=True)
    pictures = bfloats(size(32, 2), 3, edge, edge)
    repeat(training_step(optimizer, lambda: (1 - model(pictures).float()).square().mean()), mark)
