"""A program of Diffusers: a wide transformer."""

import torch
from diffusers import DiTTransformer2DModel

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, bfloats


def diffusers_wide_control(fault: bool, mark: Mark) -> None:
    """Denoises 16 pictures of 1,024 patches by two layers of 2,048 channels."""
    heads, channels, edge, count = size(16, 1), size(128, 8), size(64, 8), size(16, 2)
    with torch.device(DEVICE):
        denoiser = DiTTransformer2DModel(heads, channels, 4, num_layers=2, sample_size=edge)
        times, labels = torch.randint(0, 1000, (2, count))
    denoiser = denoiser.to(torch.bfloat16).eval()
    latents = bfloats(count, 4, edge, edge)
    with torch.no_grad():
        repeat(lambda: denoiser(latents, times, labels), mark)
