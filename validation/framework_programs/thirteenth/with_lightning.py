"""Programs of Lightning: gradients that are clipped, losses of classes, figures, and tables."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.utils.data import DataLoader

from validation.framework_programs.parts import Mark, size
from validation.framework_programs.torch_parts import DEVICE, Made, residual_mlp
from validation.framework_programs.with_lightning import Regression, fit


def resident(batch: Any) -> DataLoader[Any]:
    """A loader of one batch that is on the GPU."""
    return DataLoader(Made(lambda _: batch), None)


class Clipped(Regression):
    """Clips gradients parameter by parameter, or by the norm of all."""

    def __init__(self, model: nn.Module, by_parameter: bool) -> None:
        super().__init__(model)
        self.by_parameter = by_parameter

    def configure_gradient_clipping(self, *given: Any, **more: Any) -> None:
        if not self.by_parameter:
            nn.utils.clip_grad_norm_(self.parameters(), 1.0)
            return
        for parameter in self.parameters():
            gradient = parameter.grad
            if gradient is not None and (norm := gradient.norm()) > 1:
                gradient.div_(norm)


def lightning_clips_one_by_one(fault: bool, mark: Mark) -> None:
    """Clips each of 300 gradients by an `if` of Python; without the fault all by one norm.

    The host asks the GPU whether a norm is too large before it asks for the next.
    """
    width = size(256, 8)
    batch = torch.randn(size(1024, 4), width, device=DEVICE)
    fit(Clipped(residual_mlp(width, size(50, 2)), fault), resident(batch), mark)


class Segmenter(Regression):
    """Names the class of each pixel, and is trained by Dice's overlap of each class."""

    def __init__(self, model: nn.Module, classes: int, by_class: bool) -> None:
        super().__init__(model)
        self.classes, self.by_class = classes, by_class

    def training_step(self, batch: Any, index: int) -> Tensor:
        pictures, names = batch
        chances = self.model(pictures).float().softmax(1)
        if not self.by_class:
            here = F.one_hot(names, self.classes).movedim(-1, 1).float()
            both, all_of = (chances * here).sum((0, 2, 3)), (chances + here).sum((0, 2, 3))
            apart: Tensor = 1 - (2 * both + 1) / (all_of + 1)
            return apart.sum()
        loss = torch.zeros((), device=chances.device)
        for number in range(self.classes):
            chance, here = chances[:, number], (names == number).float()
            both, all_of = (chance * here).sum(), chance.sum() + here.sum()
            loss = loss + 1 - (2 * both + 1) / (all_of + 1)
        return loss


def lightning_dice_class_by_class(fault: bool, mark: Mark) -> None:
    """Computes Dice's loss in a loop over 64 classes; without the fault for all at once.

    A class is a dozen small kernels, and as many backwards.
    """
    classes, width, edge = size(64, 3), size(32, 4), size(64, 8)
    layers = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, classes, 1)]
    pictures = torch.randn(size(4, 2), 3, edge, edge, device=DEVICE)
    names = torch.randint(0, classes, (len(pictures), edge, edge), device=DEVICE)
    module = Segmenter(nn.Sequential(*layers), classes, fault)
    fit(module, resident((pictures, names)), mark)


class Restored(Regression):
    """Restores noisy pictures, and may draw some of them as a figure behind each step."""

    def __init__(self, model: nn.Module, drawn: bool) -> None:
        super().__init__(model)
        self.drawn = drawn
        self.figure = np.zeros(0)

    def training_step(self, batch: Tensor, index: int) -> Tensor:
        made = self.model(batch + 0.1 * torch.randn_like(batch))
        if self.drawn:
            self.draw(made[:4, 0].detach().float().cpu().numpy())
        return F.mse_loss(made.float(), batch)

    def draw(self, pictures: np.ndarray) -> None:
        figure = Figure(figsize=(8, 2))
        canvas = FigureCanvasAgg(figure)
        for axes, picture in zip(figure.subplots(1, len(pictures)), pictures, strict=True):
            axes.imshow(picture)
        canvas.draw()
        self.figure = np.asarray(canvas.buffer_rgba())


def lightning_draws_figures(fault: bool, mark: Mark) -> None:
    """Draws four pictures by Matplotlib in each step, to log them; without the fault none.

    Axes, ticks and letters are drawn by Python on one core, and the GPU waits.
    """
    width, edge = size(64, 4), size(128, 8)
    layers = [nn.Conv2d(1, width, 3, padding=1), nn.GELU(), nn.Conv2d(width, 1, 3, padding=1)]
    pictures = torch.rand(size(64, 4), 1, edge, edge, device=DEVICE)
    fit(Restored(nn.Sequential(*layers), fault), resident(pictures), mark)


class Clicks(Regression):
    """Guesses clicks by the sums of rows of large tables."""

    def __init__(self, tables: int, rows: int, width: int) -> None:
        super().__init__(nn.Linear(tables * width, 1))
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))

    def training_step(self, batch: Tensor, index: int) -> Tensor:
        sums = [table(words) for table, words in zip(self.tables, batch, strict=True)]
        guessed: Tensor = self.model(torch.cat(sums, 1))
        return guessed.float().square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), 1e-4, fused=True)


def lightning_tables_control(fault: bool, mark: Mark) -> None:
    """Trains eight tables of a million rows, with dense gradients, for clicks."""
    tables, rows = size(8, 2), size(1_000_000, 50)
    words = torch.randint(0, rows, (tables, size(16_384, 4), size(16, 2)), device=DEVICE)
    fit(Clicks(tables, rows, size(64, 8)), resident(words), mark)
