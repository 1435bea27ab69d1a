"""A program of GPyTorch: what a Gaussian process expects, and how sure it is."""

import torch

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE
from validation.framework_programs.with_gpytorch import Exact


def gp_covariance_home(fault: bool, mark: Mark) -> None:
    """Takes the covariance of 6,000 points home for its diagonal; without the fault that alone.

    144 MB go to pageable memory for 6,000 numbers.
    """
    x = torch.rand(size(500, 20), 8, device=DEVICE)
    model = Exact(x, x.sum(-1).sin()).to(DEVICE).eval()
    asked = torch.rand(size(6000, 30), 8, device=DEVICE)

    def step() -> None:
        expected = model(asked)
        covariance = expected.covariance_matrix
        spread = covariance.cpu().diagonal() if fault else covariance.diagonal().cpu()
        (expected.mean.cpu() + 2 * spread.sqrt()).max()

    with torch.no_grad():
        repeat(step, mark)
