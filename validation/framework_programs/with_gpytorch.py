"""Programs of GPyTorch: exact Gaussian processes, by Cholesky's factorization."""

import gpytorch
import torch
from torch import Tensor

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE


class Exact(gpytorch.models.ExactGP):
    def __init__(self, x: Tensor, y: Tensor) -> None:
        super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood())
        self.mean = gpytorch.means.ConstantMean()
        self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


def train(points: int, empty: bool, mark: Mark) -> None:
    x = torch.rand(points, 8, device=DEVICE)
    y = x.sum(-1).sin() + 0.1 * torch.randn(points, device=DEVICE)
    model = Exact(x, y).to(DEVICE).train()
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)

    def step() -> None:
        optimizer.zero_grad()
        loss = -likelihood(model(x), y)
        loss.backward()
        optimizer.step()
        if empty:
            torch.cuda.empty_cache()

    with gpytorch.settings.max_cholesky_size(20_000):
        repeat(step, mark)


def gp_empties_cache(fault: bool, mark: Mark) -> None:
    """Gives the memory of the large matrices back after each step."""
    train(size(5_000, 50), fault, mark)


def gp_control(fault: bool, mark: Mark) -> None:
    """Fits 9,000 points."""
    train(size(9_000, 50), False, mark)
