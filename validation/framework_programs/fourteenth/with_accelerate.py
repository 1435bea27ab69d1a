"""A program of accelerate: a small Transformer."""

import torch

from validation.framework_programs.eleventh.with_accelerate import accelerator
from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import encoder


def accelerate_small_control(fault: bool, mark: Mark) -> None:
    """Trains six narrow Transformer layers on eight short texts, and bounds their gradients."""
    width = size(128, 64)
    accelerated = accelerator()
    model = encoder(width, size(6, 1)).to(accelerated.device)
    model, optimizer = accelerated.prepare(model, torch.optim.AdamW(model.parameters(), 1e-4))
    x = torch.randn(size(8, 2), size(32, 4), width, device=accelerated.device)

    def step() -> None:
        accelerated.backward(model(x).float().square().mean())
        accelerated.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    repeat(step, mark)
