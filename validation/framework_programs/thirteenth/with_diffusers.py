"""A program of Diffusers: pictures that can be drawn again."""

import itertools

import torch
from diffusers import DDPMScheduler, UNet2DModel

from validation.framework_programs.parts import Mark, size
from validation.framework_programs.torch_parts import DEVICE


def convolutions(edge: int) -> UNet2DModel:
    """A small model that takes noise from pictures."""
    with torch.device(DEVICE):
        return UNet2DModel(
            edge,
            layers_per_block=1,
            add_attention=False,
            block_out_channels=(32, 64),
            down_block_types=("DownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "UpBlock2D"),
        )


def diffusers_draws_noise_on_host(fault: bool, mark: Mark) -> None:
    """Draws the noise of each step by a generator of the CPU; without the fault of the GPU.

    One core draws three million numbers, so that a seed gives one picture on all devices.
    """
    edge = size(128, 16)
    denoiser = convolutions(edge).to(torch.bfloat16).eval()
    scheduler = DDPMScheduler()
    drawn = torch.Generator("cpu" if fault else DEVICE).manual_seed(0)
    pictures = torch.randn(size(64, 2), 3, edge, edge, device=DEVICE).to(torch.bfloat16)
    with torch.no_grad():
        for number in itertools.count():
            time = 999 - number % 999
            noise = denoiser(pictures, time).sample
            pictures = scheduler.step(noise, time, pictures, generator=drawn).prev_sample
            mark()
