"""Programs of accelerate: one whose samples lie in archives, and a wide model."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor
from torch.utils.data import DataLoader

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import Made, residual_mlp, training_step


def accelerator() -> Accelerator:
    return Accelerator(mixed_precision=size("bf16", "no"), cpu=size(False, True))


def accelerate_opens_archives(fault: bool, mark: Mark) -> None:
    """Two workers read a day of 8 MB from an .npz for each window of it; without it, once a day.

    The whole array is copied and summed up for 1,024 of its two million numbers.
    """
    days, length, window = size(8, 2), size(2_000_000, 2_000), size(1024, 16)
    accelerated = accelerator()
    model = residual_mlp(window, size(6, 1))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    with TemporaryDirectory(prefix="days-") as folder:
        files = [Path(folder, f"day{number}.npz") for number in range(days)]
        for file in files:
            np.savez(file, heard=np.random.default_rng(0).random(length, "float32"))
        kept = {} if fault else {file: np.load(file)["heard"] for file in files}

        def sample(index: int) -> Tensor:
            file, begin = files[index % days], index * window % (length - window)
            heard = np.load(file)["heard"] if fault else kept[file]
            return torch.tensor(heard[begin : begin + window])

        loader = DataLoader(Made(sample), size(16, 2), num_workers=size(2, 1))
        model, optimizer, loader = accelerated.prepare(model, optimizer, loader)
        batches = iter(loader)
        repeat(training_step(optimizer, lambda: model(next(batches)).float().square().mean()), mark)


def accelerate_wide_control(fault: bool, mark: Mark) -> None:
    """Trains two layers of 8,192 channels in bfloat16."""
    width = size(8192, 16)
    accelerated = accelerator()
    model = residual_mlp(width, 1).to(accelerated.device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5, fused=True)
    model, optimizer = accelerated.prepare(model, optimizer)
    x = torch.randn(size(16_384, 4), width, device=accelerated.device)
    repeat(training_step(optimizer, lambda: model(x).float().square().mean()), mark)
