"""Programs of PyTorch alone whose loader is late."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler, TensorDataset

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import (
    DEVICE,
    Made,
    endless,
    residual_mlp,
    training_step,
)


def plain_starts_workers_anew(fault: bool, mark: Mark) -> None:
    """Starts four workers for each epoch of eight batches; without the fault they stay.

    A fork copies the page tables of a process that has a GPU, and each worker is waited for.
    """
    batch, width = size(256, 4), size(512, 8)
    rows = TensorDataset(torch.randn(8 * batch, width))
    loader = DataLoader(rows, batch, num_workers=size(4, 1), persistent_workers=not fault)
    model = residual_mlp(width, size(4, 1)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    batches = endless(loader)
    train = training_step(optimizer, lambda: model(next(batches)[0].to(DEVICE)).square().mean())

    def epoch() -> None:
        for _ in range(8):
            train()

    repeat(epoch, mark)


class Weighed(Sampler[np.ndarray]):
    """Batches of samples drawn by their weights, by NumPy or by sums that were made once."""

    def __init__(self, weights: np.ndarray, batch: int, by_choice: bool) -> None:
        self.shares, self.batch, self.by_choice = weights / weights.sum(), batch, by_choice
        self.sums, self.draw = self.shares.cumsum(), np.random.default_rng(0)

    def __iter__(self) -> Iterator[np.ndarray]:
        while True:
            if self.by_choice:
                yield self.draw.choice(len(self.shares), self.batch, p=self.shares)
            else:
                yield self.sums[:-1].searchsorted(self.draw.random(self.batch))


def plain_weighs_all_samples(fault: bool, mark: Mark) -> None:
    """Draws each batch by np.random's choice(p=weights); without the fault from sums made once.

    Each draw checks and adds up two million weights, in the loop's own process.
    """
    samples, width = size(2_000_000, 100), size(32, 8)
    rows = torch.randn(samples, width)
    weights = np.random.default_rng(1).random(samples)

    def read(numbers: np.ndarray) -> Tensor:
        return rows[torch.from_numpy(numbers)]

    sampler = Weighed(weights, size(1024, 4), fault)
    loader = DataLoader(Made(read), None, sampler=sampler, num_workers=size(2, 1))  # type: ignore[arg-type]
    batches = iter(loader)
    model = residual_mlp(width, size(6, 1)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    repeat(training_step(optimizer, lambda: model(next(batches).to(DEVICE)).square().mean()), mark)
