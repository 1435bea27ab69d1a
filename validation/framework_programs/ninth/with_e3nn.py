"""A program of e3nn: a product that is made where it is used."""

import torch
from e3nn import o3
from torch import Tensor, nn

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, training_step


def e3nn_makes_products(fault: bool, mark: Mark) -> None:
    """Makes its tensor product in each forward; without the fault once, at the start.

    e3nn writes and compiles the code of each product that is made, on the host.
    """
    nodes = size(20_000, 8)
    features, around = o3.Irreps("16x0e + 16x1o"), o3.Irreps.spherical_harmonics(2)

    def made() -> o3.FullyConnectedTensorProduct:
        return o3.FullyConnectedTensorProduct(
            features, around, features, internal_weights=False, shared_weights=True
        ).to(DEVICE)

    product = made()
    weights = nn.Parameter(torch.randn(product.weight_numel, device=DEVICE))
    optimizer = torch.optim.Adam([weights], 1e-3)
    x, y = features.randn(nodes, -1, device=DEVICE), around.randn(nodes, -1, device=DEVICE)

    def loss() -> Tensor:
        out: Tensor = (made() if fault else product)(x, y, weights)
        return out.square().mean()

    repeat(training_step(optimizer, loss), mark)
