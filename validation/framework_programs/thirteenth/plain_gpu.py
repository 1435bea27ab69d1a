"""A program of PyTorch alone whose time is the GPU's own."""

import torch

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE


def plain_sums_phases_by_columns(fault: bool, mark: Mark) -> None:
    """Adds up the phases of 64 harmonics with time before them; without the fault time is last.

    A thread of the GPU goes through 64,000 times of a column, and there are 256 columns.
    """
    clips, times, harmonics = 4, size(64_000, 100), size(64, 4)
    pitch = 100 + torch.rand(clips, times, 1, device=DEVICE)
    steps = pitch * torch.arange(1, harmonics + 1, device=DEVICE) * (2 * torch.pi / 16_000)
    steps, axis = (steps, 1) if fault else (steps.mT.contiguous(), 2)
    repeat(lambda: steps.cumsum(axis).sin().sum(3 - axis), mark)
