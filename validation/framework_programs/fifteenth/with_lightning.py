"""Programs of Lightning: a buffer that shuffles, coins for pictures, and an equation of heat."""

import itertools
import random
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from validation.framework_programs.parts import Mark, size
from validation.framework_programs.torch_parts import DEVICE, residual_mlp
from validation.framework_programs.with_lightning import Regression, fit


class Shuffled(IterableDataset[Tensor]):
    """Rows of a stream, each drawn from a buffer of those that came last."""

    def __init__(self, rows: Tensor, length: int, closes_gap: bool) -> None:
        self.rows, self.length, self.closes_gap = rows, length, closes_gap

    def __iter__(self) -> Iterator[Tensor]:
        stream = itertools.count()
        buffer = list(itertools.islice(stream, self.length))
        for number in stream:
            drawn = random.randrange(len(buffer))
            if not self.closes_gap:
                buffer[drawn], buffer[-1] = buffer[-1], buffer[drawn]
                drawn = -1
            yield self.rows[buffer.pop(drawn) % len(self.rows)]
            buffer.append(number)


def lightning_pops_from_buffer(fault: bool, mark: Mark) -> None:
    """A worker pops from the middle of a list of a million; without the fault from its end.

    What is behind the gap moves up, at each draw.
    """
    width = size(256, 8)
    rows = Shuffled(torch.randn(size(4096, 16), width), size(2**20, 64), fault)
    loader = DataLoader(rows, size(512, 4), num_workers=1)
    fit(Regression(residual_mlp(width, size(6, 1))), loader, mark)


class Augmented(Regression):
    """Mirrors each picture, and turns it upside down, where a coin says so."""

    def __init__(self, model: nn.Module, tossed_on: str) -> None:
        super().__init__(model)
        self.tossed_on = tossed_on

    def augmented(self, picture: Tensor) -> Tensor:
        for axis in (1, 2):
            if torch.rand(1, device=self.tossed_on) < 0.5:
                picture = picture.flip(axis)
        return picture

    def on_after_batch_transfer(self, batch: Tensor, dataloader_idx: int) -> Tensor:
        return torch.stack([self.augmented(picture) for picture in batch])


def lightning_tosses_coins_on_gpu(fault: bool, mark: Mark) -> None:
    """Draws for each of 384 pictures on the GPU whether it is mirrored; without it on the host.

    An `if` of Python asks for each of the 768 numbers.
    """
    edge, width = size(32, 8), size(256, 8)
    pictures = torch.randn(size(384, 4), 3, edge, edge, device=DEVICE)
    embed = nn.Sequential(nn.Flatten(), nn.Linear(3 * edge * edge, width))
    model = nn.Sequential(embed, residual_mlp(width, size(4, 1)))
    fit(Augmented(model, DEVICE if fault else "cpu"), itertools.repeat(pictures), mark)


class Heat(Regression):
    """Fits a temperature of place and time to the equation of heat."""

    def training_step(self, batch: Tensor, index: int) -> Tensor:
        points = batch.detach().requires_grad_()
        slopes = self.slopes(self.model(points), points)
        curvature = self.slopes(slopes[:, 0], points)[:, 0]
        return (slopes[:, 1] - curvature).square().mean()

    def slopes(self, heights: Tensor, points: Tensor) -> Tensor:
        (slopes,) = torch.autograd.grad(heights.float().sum(), points, create_graph=True)
        return slopes


def lightning_heat_control(fault: bool, mark: Mark) -> None:
    """Fits a narrow network of ten layers to the equation of heat, at 256 points."""
    width = size(64, 8)
    layers = [layer for _ in range(size(8, 2)) for layer in (nn.Linear(width, width), nn.Tanh())]
    model = nn.Sequential(nn.Linear(2, width), nn.Tanh(), *layers, nn.Linear(width, 1))
    fit(Heat(model), itertools.repeat(torch.rand(size(256, 8), 2, device=DEVICE)), mark)
