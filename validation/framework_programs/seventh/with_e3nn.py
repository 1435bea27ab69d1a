"""A program of e3nn: messages of an equivariant network."""

import torch
from e3nn import o3
from torch import Tensor, nn

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, training_step


def e3nn_control(fault: bool, mark: Mark) -> None:
    """Trains tensor products with weights for each edge, which go to memory and back."""
    edges = size(400_000, 32)
    features, harmonics = o3.Irreps("32x0e + 32x1o"), o3.Irreps.spherical_harmonics(2)
    product = o3.TensorProduct(
        features,
        harmonics,
        features,
        [
            (0, 0, 0, "uvu", True),
            (0, 1, 1, "uvu", True),
            (1, 0, 1, "uvu", True),
            (1, 1, 0, "uvu", True),
        ],
        shared_weights=False,
    ).to(DEVICE)
    radial = nn.Sequential(nn.Linear(8, 64), nn.SiLU(), nn.Linear(64, product.weight_numel))
    optimizer = torch.optim.Adam(radial.to(DEVICE).parameters(), 1e-3)
    x = features.randn(edges, -1, device=DEVICE)
    lengths, vectors = torch.rand(edges, 8, device=DEVICE), torch.randn(edges, 3, device=DEVICE)

    def loss() -> Tensor:
        around = o3.spherical_harmonics(harmonics, vectors, normalize=True)
        out: Tensor = product(x, around, radial(lengths))
        return out.square().mean()

    repeat(training_step(optimizer, loss), mark)
