"""Programs of Diffusers: noise for training, and steps that take noise away."""

import torch
import torch.nn.functional as F
from diffusers import DDIMScheduler, EulerDiscreteScheduler
from torch import Tensor

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.thirteenth.with_diffusers import convolutions
from validation.framework_programs.torch_parts import DEVICE, training_step


def diffusers_looks_for_each_time(fault: bool, mark: Mark) -> None:
    """Adds noise by EulerDiscreteScheduler.add_noise; without the fault by its formula.

    It looks for the time of each of 256 pictures among a thousand, and the host reads where it is.
    """
    edge, pictures = size(32, 16), size(256, 2)
    denoiser = convolutions(edge)
    optimizer = torch.optim.AdamW(denoiser.parameters(), 1e-4, fused=True)
    scheduler = EulerDiscreteScheduler()
    times, sigmas = scheduler.timesteps.to(DEVICE), scheduler.sigmas.to(DEVICE)
    clean = torch.randn(pictures, 3, edge, edge, device=DEVICE)

    def loss() -> Tensor:
        places = torch.randint(0, len(times), (pictures,), device=DEVICE)
        noise = torch.randn_like(clean)
        if fault:
            noisy = scheduler.add_noise(clean, noise, times[places])
        else:
            noisy = clean + noise * sigmas[places].view(-1, 1, 1, 1)
        with torch.autocast(DEVICE, torch.bfloat16):
            guessed = denoiser(noisy, times[places]).sample
        return F.mse_loss(guessed.float(), noise)

    repeat(training_step(optimizer, loss), mark)


def diffusers_noise_control(fault: bool, mark: Mark) -> None:
    """Takes known noise from 256 latents by a step of DDIM."""
    scheduler = DDIMScheduler()
    scheduler.set_timesteps(50)
    latents = torch.randn(size(256, 2), 4, size(256, 8), size(256, 8), device=DEVICE)
    noise = torch.randn_like(latents)
    repeat(lambda: scheduler.step(noise, 501, latents).prev_sample, mark)
