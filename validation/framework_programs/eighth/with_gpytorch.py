"""A program of GPyTorch: predictions of an exact Gaussian process."""

import gpytorch
import torch

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE
from validation.framework_programs.with_gpytorch import Exact


def gp_forgets_factor(fault: bool, mark: Mark) -> None:
    """Calls train() and eval() around each prediction; without the fault eval() once.

    The covariance is then computed and factorized again, though no parameter has changed.
    """
    x = torch.rand(size(10_000, 50), 8, device=DEVICE)
    y = x.sum(-1).sin() + 0.1 * torch.randn(len(x), device=DEVICE)
    model = Exact(x, y).to(DEVICE).eval()
    asked = torch.rand(size(256, 8), 8, device=DEVICE)

    def step() -> None:
        if fault:
            model.train()
            model.eval()
        model(asked).variance.sum()

    with torch.no_grad(), gpytorch.settings.max_cholesky_size(20_000):
        repeat(step, mark)
