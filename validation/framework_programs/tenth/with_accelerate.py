"""A program of accelerate: its batches are made of what a loader gives."""

import torch
from accelerate import Accelerator
from torch import Tensor
from torch.utils.data import DataLoader

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import Made, residual_mlp, training_step


def accelerate_sample_by_sample(fault: bool, mark: Mark) -> None:
    """Takes 128 samples from two workers one by one, and stacks them; without it a whole batch.

    Each sample is shared memory of its own, whose descriptor goes from process to process.
    """
    width, batch, workers = size(1024, 16), size(128, 4), size(2, 1)
    accelerator = Accelerator(mixed_precision=size("bf16", "no"), cpu=size(False, True))
    model = residual_mlp(width, size(6, 1))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    model, optimizer = accelerator.prepare(model, optimizer)
    table = torch.randn(size(5_000, 8), width)
    made = Made(lambda index: table[index % len(table)].clone())
    samples = iter(DataLoader(made, None if fault else batch, num_workers=workers))

    def loss() -> Tensor:
        x = torch.stack([next(samples) for _ in range(batch)]) if fault else next(samples)
        out: Tensor = model(x.to(accelerator.device)).float().square().mean()
        return out

    repeat(training_step(optimizer, loss), mark)
