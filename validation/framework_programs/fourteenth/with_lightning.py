"""Programs of Lightning: draws by priorities, columns, penalties, and a wide network."""

import itertools
import random
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from validation.framework_programs.parts import Mark, size
from validation.framework_programs.torch_parts import DEVICE, residual_mlp
from validation.framework_programs.with_lightning import Regression, fit


class SumTree:
    """Priorities in a list, in which each node is the sum of two."""

    def __init__(self, leaves: int) -> None:
        self.leaves = leaves
        self.sums = [0.0] * leaves + [1.0] * leaves
        for node in reversed(range(1, leaves)):
            self.sums[node] = self.sums[2 * node] + self.sums[2 * node + 1]

    def draw(self) -> int:
        left, node = random.random() * self.sums[1], 1
        while node < self.leaves:
            node *= 2
            if left > self.sums[node]:
                left -= self.sums[node]
                node += 1
        return node - self.leaves

    def set(self, leaf: int, priority: float) -> None:
        node = leaf + self.leaves
        change = priority - self.sums[node]
        while node:
            self.sums[node] += change
            node //= 2


class Surprised(Regression):
    """Notes how wrong each memory of the last batch was."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.wrong = torch.zeros(0, dtype=torch.long, device=DEVICE), torch.zeros(0, device=DEVICE)

    def training_step(self, batch: Any, index: int) -> Tensor:
        memories, drawn = batch
        errors: Tensor = self.model(memories).float().square().mean(1)
        self.wrong = drawn, errors.detach()
        return errors.mean()


def lightning_draws_by_tree(fault: bool, mark: Mark) -> None:
    """Draws 2,048 memories by a tree of priorities in Python; without the fault on the GPU.

    A draw is twenty turns of a loop from the tree's root to a leaf, and its change as many back.
    """
    count, batch, width = size(2**20, 64), size(2048, 4), size(256, 8)
    memories = torch.randn(count, width, device=DEVICE)
    module = Surprised(residual_mlp(width, size(6, 1)))

    def by_tree() -> Iterator[tuple[Tensor, Tensor]]:
        tree = SumTree(count)
        while True:
            drawn = torch.tensor([tree.draw() for _ in range(batch)], device=DEVICE)
            yield memories[drawn], drawn
            for leaf, error in zip(*(each.tolist() for each in module.wrong), strict=True):
                tree.set(leaf, error)

    def on_gpu() -> Iterator[tuple[Tensor, Tensor]]:
        priorities = torch.ones(count, device=DEVICE)
        while True:
            sums = priorities.cumsum(0)
            drawn = torch.searchsorted(sums[:-1], torch.rand(batch, device=DEVICE) * sums[-1])
            yield memories[drawn], drawn
            leaves, errors = module.wrong
            priorities[leaves] = errors

    fit(module, by_tree() if fault else on_gpu(), mark)


class Columns(Regression):
    """Learns from columns of classes, each as a one-hot row."""

    def __init__(self, model: nn.Module, classes: int) -> None:
        super().__init__(model)
        self.classes = classes

    def training_step(self, batch: Tensor, index: int) -> Tensor:
        rows = [F.one_hot(column, self.classes) for column in batch]
        loss: Tensor = self.model(torch.cat(rows, 1).float()).float().square().mean()
        return loss


def lightning_one_hot_asks_for_classes(fault: bool, mark: Mark) -> None:
    """Calls F.one_hot without num_classes for 300 columns; without the fault with it.

    The host then reads the largest number of each column, before the next is looked at.
    """
    columns, classes, rows = size(300, 3), 8, size(4096, 64)
    batch = torch.arange(columns * rows, device=DEVICE).view(columns, rows) % classes
    model = nn.Sequential(nn.Linear(columns * classes, 256), residual_mlp(256, size(2, 1)))
    fit(Columns(model, -1 if fault else classes), itertools.repeat(batch), mark)


class Penalized(Regression):
    """Keeps weights small: by their squares in the loss, or by the optimizer."""

    def __init__(self, model: nn.Module, in_loss: bool) -> None:
        super().__init__(model)
        self.in_loss = in_loss

    def training_step(self, batch: Tensor, index: int) -> Tensor:
        loss = super().training_step(batch, index)
        if self.in_loss:
            for weight in self.parameters():
                loss = loss + 1e-4 * weight.square().sum()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        decay = 0 if self.in_loss else 2e-4
        return torch.optim.Adam(self.parameters(), 1e-4, weight_decay=decay, fused=True)


def lightning_sums_penalties(fault: bool, mark: Mark) -> None:
    """Adds the squares of each of 300 weights to the loss; without the fault weight_decay.

    A weight is four small kernels more, and as many backwards.
    """
    width = size(256, 8)
    batch = torch.randn(size(1024, 4), width, device=DEVICE)
    fit(Penalized(residual_mlp(width, size(50, 2)), fault), itertools.repeat(batch), mark)


def lightning_wide_control(fault: bool, mark: Mark) -> None:
    """Trains four linear layers of 8,192 channels in bfloat16, on 16,384 rows."""
    width = size(8192, 16)
    batch = torch.randn(size(16_384, 4), width, device=DEVICE)
    fit(Regression(residual_mlp(width, size(2, 1))), itertools.repeat(batch), mark)
