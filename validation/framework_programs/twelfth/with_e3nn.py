"""A program of e3nn: a small molecule."""

import torch
from e3nn import nn as gates
from e3nn import o3
from torch import Tensor, nn

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, training_step


def e3nn_small_control(fault: bool, mark: Mark) -> None:
    """Trains four equivariant layers on a molecule of 20 atoms."""
    atoms, edges = 20, size(120, 30)
    features, harmonics = o3.Irreps("16x0e + 8x1o"), o3.Irreps.spherical_harmonics(1)
    gate = gates.Gate("16x0e", [torch.tanh], "8x0e", [torch.sigmoid], "8x1o").to(DEVICE)
    products = nn.ModuleList(
        o3.FullyConnectedTensorProduct(features, harmonics, gate.irreps_in)
        for _ in range(size(4, 1))
    ).to(DEVICE)
    optimizer = torch.optim.Adam(products.parameters(), 1e-3)
    x, places = features.randn(atoms, -1, device=DEVICE), torch.randn(atoms, 3, device=DEVICE)
    sources, targets = torch.randint(0, atoms, (2, edges), device=DEVICE)

    def loss() -> Tensor:
        h: Tensor = x
        for product in products:
            apart = places[sources] - places[targets]
            around = o3.spherical_harmonics(harmonics, apart, normalize=True)
            sums = torch.zeros(atoms, gate.irreps_in.dim, device=DEVICE)
            h = h + gate(sums.index_add(0, targets, product(h[sources], around)))
        return h.square().mean()

    repeat(training_step(optimizer, loss), mark)
