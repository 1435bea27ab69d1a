"""A program of torchdiffeq: heat that spreads on a plate."""

import torch
from torch import Tensor
from torchdiffeq import odeint

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE


def ode_heat_control(fault: bool, mark: Mark) -> None:
    """Follows the heat of a plate through two steps of Runge and Kutta."""
    edge = size(8192, 16)
    plate, times = torch.rand(edge, edge, device=DEVICE), torch.linspace(0, 0.2, 3, device=DEVICE)

    def spread(time: Tensor, heat: Tensor) -> Tensor:
        around = heat.roll(1, 0) + heat.roll(-1, 0) + heat.roll(1, 1) + heat.roll(-1, 1)
        return around - 4 * heat

    repeat(lambda: odeint(spread, plate, times, method="rk4"), mark)
