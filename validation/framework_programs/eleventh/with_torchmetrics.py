"""A program of torchmetrics: pictures that are compared."""

import torch
from torchmetrics.functional import mean_squared_error
from torchmetrics.functional.image import total_variation

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE


def metrics_pictures_control(fault: bool, mark: Mark) -> None:
    """Measures how rough pictures are, and how far from others."""
    shape = size(64, 2), 3, size(1024, 16), size(1024, 16)
    made, wanted = (torch.rand(shape, device=DEVICE) for _ in range(2))
    repeat(lambda: mean_squared_error(made, wanted) + total_variation(made), mark)
