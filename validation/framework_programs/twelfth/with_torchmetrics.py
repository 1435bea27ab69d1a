"""A program of torchmetrics: how well parts of pictures are named."""

import torch
from torch import Tensor
from torchmetrics.functional.segmentation import mean_iou

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, bfloats


def metrics_one_hot_pixels(fault: bool, mark: Mark) -> None:
    """Compares pixels of 150 classes by mean_iou; without the fault by a table of counts.

    Each class of a pixel becomes 150 numbers of eight bytes, of which one is not zero.
    """
    pictures, classes, edge = size(8, 2), size(150, 5), size(512, 16)
    scores = bfloats(pictures, classes, edge, edge)
    wanted = torch.randint(0, classes, (pictures, edge, edge), device=DEVICE)

    def counted(seen: Tensor) -> Tensor:
        pairs = torch.bincount((wanted * classes + seen).flatten(), minlength=classes**2)
        table = pairs.view(classes, classes)
        return (table.diagonal() / (table.sum(0) + table.sum(1) - table.diagonal())).nanmean()

    def step() -> None:
        seen = scores.argmax(1)
        mean_iou(seen, wanted, classes, input_format="index") if fault else counted(seen)

    repeat(step, mark)
