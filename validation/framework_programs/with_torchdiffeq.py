"""Programs of torchdiffeq: a neural ODE by the fixed steps of Runge and Kutta."""

import torch
from torch import Tensor, nn
from torchdiffeq import odeint

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, training_step


class Field(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, width))

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        out: Tensor = self.layers(y)
        return out


def solve(field: nn.Module, start: Tensor, times: int, mark: Mark) -> None:
    field = field.to(start)
    optimizer = torch.optim.Adam(field.parameters(), 1e-4, foreach=True)
    t = torch.linspace(0, 1, times).to(start)

    def loss() -> Tensor:
        path: Tensor = odeint(field, start, t, method="rk4")
        return path.square().mean()

    repeat(training_step(optimizer, loss), mark)


def ode_few_trajectories(fault: bool, mark: Mark) -> None:
    """Solves for 16 trajectories at a time; without the fault for 4,096."""
    count = size(16 if fault else 4096, 4)
    solve(Field(64, 128), torch.randn(count, 64, device=DEVICE), 24, mark)


def ode_doubles(fault: bool, mark: Mark) -> None:
    """Solves in float64; without the fault in float32, with TF32 products."""
    if not fault:
        torch.set_float32_matmul_precision("high")
    width = size(2048, 32)
    start = torch.randn(width, width, device=DEVICE, dtype=torch.float64 if fault else None)
    solve(Field(width, width), start, 4, mark)
