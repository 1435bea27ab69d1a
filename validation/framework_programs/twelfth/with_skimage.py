"""A program of PyTorch whose pictures are compared by scikit-image."""

import torch
from skimage.metrics import structural_similarity
from torch import Tensor, nn
from torchmetrics.functional.image import structural_similarity_index_measure

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, training_step


def skimage_scores_each_step(fault: bool, mark: Mark) -> None:
    """Scores two pictures by scikit-image after each step; without the fault by torchmetrics.

    A score is 15 filters of a picture, on one core of the host.
    """
    edge, width = size(256, 16), size(64, 4)
    layers = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 3, 3, padding=1)]
    model = nn.Sequential(*layers, nn.Sigmoid()).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    wanted = torch.rand(2, 3, edge, edge, device=DEVICE)
    noisy = (wanted + 0.1 * torch.randn_like(wanted)).clamp(0, 1)

    def loss() -> Tensor:
        made = model(noisy)
        if fault:
            pairs = zip(made.detach().cpu().numpy(), wanted.cpu().numpy(), strict=True)
            for one, other in pairs:
                structural_similarity(one, other, channel_axis=0, data_range=1.0)
        else:
            structural_similarity_index_measure(made.detach(), wanted, data_range=1.0)
        return nn.functional.mse_loss(made, wanted)

    repeat(training_step(optimizer, loss), mark)
