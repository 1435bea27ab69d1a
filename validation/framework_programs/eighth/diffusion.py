"""Programs of diffusion models in PyTorch alone."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.plain import ResidualConvolutions
from validation.framework_programs.torch_parts import DEVICE, encoder, regression_step

WIDTH, PATCHES = size(1024, 64), size(256, 4)


class Denoiser(nn.Module):
    """Transformer over patches and words, told the time by a vector added to each patch."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.time, self.layers = nn.Linear(1, WIDTH), encoder(WIDTH, layers)

    def forward(self, x: Tensor, words: Tensor, time: Tensor) -> Tensor:
        told = x + self.time(time)[:, None]
        out: Tensor = self.layers(torch.cat([told, words], 1))
        return out[:, : x.shape[1]]


def diffusion_average(fault: bool, mark: Mark) -> None:
    """Keeps the moving average of the weights on the host; without the fault on the GPU.

    After each update the weights come to pageable memory, tensor by tensor.
    """
    channels, edge = size(512, 8), size(16, 4)
    noisy, noise = torch.randn(2, size(32, 2), channels, edge, edge, device=DEVICE)
    model = ResidualConvolutions(channels, size(12, 1))
    train = regression_step(model, noisy, noise)
    weights = [weight.detach() for weight in model.parameters()]
    average = [w.to("cpu" if fault else DEVICE, copy=True) for w in weights]

    def step() -> None:
        train()
        if fault:
            for mean, weight in zip(average, weights, strict=True):
                mean.lerp_(weight.cpu(), 1e-3)
        else:
            torch._foreach_lerp_(average, weights, 1e-3)

    repeat(step, mark)


def diffusion_guidance(fault: bool, mark: Mark) -> None:
    """Samples with a guidance scale of 1, at which the half without words has no weight.

    Without the fault that half is not computed, and what comes out is the same.
    """
    count, scale = size(32, 2), 1.0
    with torch.device(DEVICE):
        denoiser = Denoiser(size(8, 1)).to(torch.bfloat16)
        noise, words = torch.randn(count, PATCHES, WIDTH), torch.randn(count, size(64, 2), WIDTH)
    noise, words = noise.to(torch.bfloat16), words.to(torch.bfloat16)

    def guided(x: Tensor, time: Tensor) -> Tensor:
        if fault:
            texts, times = torch.cat([words, torch.zeros_like(words)]), torch.cat([time, time])
            asked, free = denoiser(torch.cat([x, x]), texts, times).chunk(2)
        else:
            asked = free = denoiser(x, words, time)
        out: Tensor = free + scale * (asked - free)
        return out

    def step() -> None:
        x = noise
        for number in range(4):
            x = x - 0.1 * guided(x, x.new_full((count, 1), number / 4))

    with torch.no_grad():
        repeat(step, mark)


def diffusion_control(fault: bool, mark: Mark) -> None:
    """Trains with noise drawn on the GPU, a bound on the gradients, and an average beside them."""
    count = size(64, 2)
    with torch.device(DEVICE):
        denoiser = Denoiser(size(8, 1))
        clean, words = torch.randn(count, PATCHES, WIDTH), torch.randn(count, size(64, 2), WIDTH)
    weights = list(denoiser.parameters())
    optimizer = torch.optim.AdamW(weights, 1e-4, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, step / 1_000))
    average = [weight.detach().clone() for weight in weights]

    def step() -> None:
        time, noise = torch.rand(count, 1, device=DEVICE), torch.randn_like(clean)
        noisy = clean.lerp(noise, time[..., None])
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = F.mse_loss(denoiser(noisy, words, time).float(), noise - clean)
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        torch._foreach_lerp_(average, [weight.detach() for weight in weights], 1e-3)

    repeat(step, mark)
