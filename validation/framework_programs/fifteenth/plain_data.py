"""A program of PyTorch alone whose loader is late."""

from multiprocessing import Manager

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import (
    DEVICE,
    Made,
    residual_mlp,
    training_step,
)


def plain_shares_cache_by_manager(fault: bool, mark: Mark) -> None:
    """Four workers keep pictures in one Manager().dict(); without the fault each in its own.

    To look for a picture and to read it are two requests of one process, which pickles it.
    """
    edge, kept = size(128, 8), size(512, 8)
    picture = np.random.randint(0, 256, (3, edge, edge), "uint8")
    with Manager() as manager:
        cache: dict[int, np.ndarray] = manager.dict() if fault else {}  # type: ignore[assignment]

        def read(index: int) -> np.ndarray:
            number = index % kept
            if number not in cache:
                cache[number] = np.roll(picture, number)
            return cache[number]

        loader = DataLoader(Made(read), size(128, 4), num_workers=size(4, 2))
        batches = iter(loader)
        embed, layers = nn.Linear(picture.size, size(256, 8)), residual_mlp(size(256, 8), 4)
        model = nn.Sequential(embed, layers).to(DEVICE)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)

        def loss() -> Tensor:
            pictures = next(batches).to(DEVICE).flatten(1) / 255
            out: Tensor = model(pictures)
            return out.square().mean()

        repeat(training_step(optimizer, loss), mark)
