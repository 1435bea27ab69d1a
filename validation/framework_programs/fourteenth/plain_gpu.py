"""Programs of PyTorch alone whose time is the GPU's own."""

import torch
import torch.nn.functional as F
from torch import Tensor

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE


def plain_unfolds_windows(fault: bool, mark: Mark) -> None:
    """Takes means of 7 x 7 pixels by F.unfold; without the fault by F.avg_pool2d.

    Each pixel is written 49 times, and read as often.
    """
    edge = 7
    pictures = torch.rand(size(8, 2), 3, size(1024, 16), size(1024, 16), device=DEVICE)

    def means() -> Tensor:
        if not fault:
            return F.avg_pool2d(pictures, edge, 1, edge // 2)
        windows = F.unfold(pictures, edge, padding=edge // 2)
        return windows.view(len(pictures), 3, edge * edge, -1).mean(2).view_as(pictures)

    repeat(lambda: (pictures - means()).square().mean(), mark)


def plain_asks_all_for_threshold(fault: bool, mark: Mark) -> None:
    """Takes the threshold of the largest hundredth from all 32 million numbers; else of a sample.

    One block of threads selects it, and goes through all numbers again and again.
    """
    every = 64
    gradients = torch.randn(size(2**25, 2**12), device=DEVICE)

    def largest() -> Tensor:
        sizes = gradients.abs()
        asked = sizes if fault else sizes[::every].contiguous()
        threshold = asked.kthvalue(len(asked) * 99 // 100).values
        return gradients * (sizes > threshold)

    repeat(largest, mark)
