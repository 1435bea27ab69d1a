"""A program of PyTorch alone whose host launches too much."""

import torch
from torch import nn
from torch.autograd.functional import jacobian

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE


def plain_jacobian_row_by_row(fault: bool, mark: Mark) -> None:
    """Makes a Jacobian by torch.autograd's default; without the fault by vectorize=True.

    Each of its 128 rows is a backward pass of its own, for one row of numbers.
    """
    states, width = size(128, 4), size(512, 8)
    layers = [nn.Linear(states, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()]
    dynamics = nn.Sequential(*layers, nn.Linear(width, states)).to(DEVICE)
    state = torch.randn(states, device=DEVICE)

    def step() -> None:
        slopes = jacobian(dynamics, state, vectorize=not fault)
        torch.linalg.matrix_norm(slopes)

    repeat(step, mark)
