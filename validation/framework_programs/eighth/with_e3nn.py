"""A program of e3nn: a layer of a potential for molecules."""

import torch
from e3nn import o3
from torch import Tensor, nn

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, training_step


def e3nn_doubles(fault: bool, mark: Mark) -> None:
    """Trains with float64 as the default type, as potentials often are; without it in float32.

    What goes to memory and back is twice as large.
    """
    torch.set_default_dtype(torch.float64 if fault else torch.float32)
    atoms, near = size(20_000, 8), size(12, 2)
    features, harmonics = o3.Irreps("64x0e + 64x1o"), o3.Irreps.spherical_harmonics(1)
    paths = [(0, 0, 0, "uvu", True), (0, 1, 1, "uvu", True), (1, 1, 0, "uvu", True)]
    product = o3.TensorProduct(features, harmonics, features, paths, shared_weights=False)
    radial = nn.Sequential(nn.Linear(8, 64), nn.SiLU(), nn.Linear(64, product.weight_numel))
    mix = o3.Linear(features, features)
    around = o3.spherical_harmonics(harmonics, torch.randn(atoms * near, 3), normalize=True)
    product, radial, mix, around = (each.to(DEVICE) for each in (product, radial, mix, around))
    x = features.randn(atoms, -1, device=DEVICE)
    lengths = torch.rand(atoms * near, 8, device=DEVICE)
    ends = torch.randint(0, atoms, (2, atoms * near), device=DEVICE)
    optimizer = torch.optim.Adam([*radial.parameters(), *mix.parameters()], 1e-3)

    def loss() -> Tensor:
        messages = product(mix(x)[ends[0]], around, radial(lengths))
        out = torch.zeros_like(x).index_add(0, ends[1], messages)
        return out.square().mean()

    repeat(training_step(optimizer, loss), mark)
