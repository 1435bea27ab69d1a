"""A program of torchmetrics: the average precision of many answers."""

import torch
from torch import Tensor
from torchmetrics.functional.classification import binary_precision_recall_curve

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE


def metrics_interpolates_control(fault: bool, mark: Mark) -> None:
    """Averages the best precision at each recall or a larger one, over four million answers."""
    scores = torch.rand(size(2**22, 64), device=DEVICE)
    wanted = (torch.rand_like(scores) < scores).long()

    def average() -> Tensor:
        curve = binary_precision_recall_curve(scores, wanted, validate_args=False)
        precision, recall, _ = curve
        best = precision.cummax(0).values
        area: Tensor = (best[:-1] * -recall.diff()).sum()
        return area

    repeat(average, mark)
