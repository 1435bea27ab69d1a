"""Programs of PyTorch alone whose host asks or launches too much."""

import logging

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.nn.utils.parametrize import remove_parametrizations

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, residual_mlp, training_step

LOG = logging.getLogger(__name__)  # of which nothing below a warning is written


def plain_formats_for_debug(fault: bool, mark: Mark) -> None:
    """Logs each block's output by an f-string for debug; without the fault by arguments.

    Debug is off, but the string is made: the host reads a tensor some ninety times for it.
    """
    width = size(1024, 16)
    blocks = nn.ModuleList(residual_mlp(width, 1) for _ in range(size(8, 2))).to(DEVICE)
    optimizer = torch.optim.AdamW(blocks.parameters(), 1e-4, fused=True)
    x = torch.randn(size(2048, 4), width, device=DEVICE)

    def loss() -> Tensor:
        h = x
        for number, block in enumerate(blocks):
            h = h + block(h)
            if fault:
                LOG.debug(f"block {number}: {h}")
            else:
                LOG.debug("block %d: %s", number, h)
        return h.square().mean()

    repeat(training_step(optimizer, loss), mark)


def plain_keeps_spectral_norms(fault: bool, mark: Mark) -> None:
    """Draws by layers that keep their spectral norms; without the fault they were taken off.

    Each of 60 weights is divided by its norm again for each picture, which only training needs.
    """
    channels = size(64, 8)
    layers = [nn.Conv2d(channels, channels, 3, padding=1) for _ in range(size(60, 3))]
    for layer in layers:
        spectral_norm(layer)
        if not fault:
            remove_parametrizations(layer, "weight")
    generator = nn.Sequential(*(each for layer in layers for each in (layer, nn.LeakyReLU(0.1))))
    generator = generator.to(DEVICE).eval()
    noise = torch.randn(1, channels, size(32, 4), size(32, 4), device=DEVICE)
    with torch.no_grad():
        repeat(lambda: generator(noise), mark)
