"""Another program of BoTorch."""

import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE


def botorch_control(fault: bool, mark: Mark) -> None:
    """Looks for the next candidate as BoTorch's guide does: SciPy asks for small gradients."""
    x = torch.rand(size(200, 10), 6, device=DEVICE, dtype=torch.float64)
    y = x.sin().sum(-1, keepdim=True)
    improvement = LogExpectedImprovement(SingleTaskGP(x, y).eval(), y.max())
    bounds = torch.tensor([[0.0] * 6, [1.0] * 6], device=DEVICE, dtype=torch.float64)

    def step() -> None:
        optimize_acqf(
            improvement,
            bounds,
            q=1,
            num_restarts=size(8, 2),
            raw_samples=size(64, 4),
            options={"maxiter": 15, "seed": 0},
        )

    repeat(step, mark)
