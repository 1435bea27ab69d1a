"""A program of BoTorch."""

import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.models import SingleTaskGP

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE


def botorch_candidates(fault: bool, mark: Mark) -> None:
    """Evaluates an acquisition function candidate by candidate; without the fault all at once.

    A posterior for one candidate is many small kernels that take longer to launch than to run.
    """
    x = torch.rand(size(200, 10), 6, device=DEVICE, dtype=torch.float64)
    y = x.sin().sum(-1, keepdim=True)
    model = SingleTaskGP(x, y).eval()
    improvement = LogExpectedImprovement(model, y.max())
    starts = torch.rand(size(16, 2), 1, 6, device=DEVICE, dtype=torch.float64)

    def step() -> None:
        for part in starts.split(1 if fault else len(starts)):
            candidates = part.clone().requires_grad_()
            improvement(candidates).sum().backward()

    repeat(step, mark)
