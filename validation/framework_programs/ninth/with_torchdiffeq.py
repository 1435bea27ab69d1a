"""A program of torchdiffeq: a small system that is followed for long."""

import torch
from torchdiffeq import odeint

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE
from validation.framework_programs.with_torchdiffeq import Field


def ode_small_control(fault: bool, mark: Mark) -> None:
    """Follows 8 trajectories of a small network through 64 steps of Runge and Kutta."""
    field, start = Field(64, 64).to(DEVICE), torch.randn(8, 64, device=DEVICE)
    times = torch.linspace(0, 1, size(65, 5), device=DEVICE)
    with torch.no_grad():
        repeat(lambda: odeint(field, start, times, method="rk4"), mark)
