"""A program of torchvision: pictures that are augmented on the GPU."""

import torch
from torchvision.transforms.v2 import functional

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.seventh.with_torchvision import DEVIATION, MEAN
from validation.framework_programs.torch_parts import DEVICE


def vision_augments_control(fault: bool, mark: Mark) -> None:
    """Mirrors pictures, changes their light, contrast and colours, and normalises them."""
    edge = size(512, 16)
    pictures = torch.randint(0, 256, (size(256, 2), 3, edge, edge), device=DEVICE).byte()

    def step() -> None:
        x = functional.to_dtype(pictures, torch.float32, scale=True)
        x = functional.adjust_brightness(functional.horizontal_flip(x), 1.1)
        x = functional.adjust_saturation(functional.adjust_contrast(x, 0.9), 1.2)
        functional.normalize(x, MEAN, DEVIATION)

    repeat(step, mark)
