"""Programs of accelerate: it prepares the objects of a loop that is the program's own."""

import gc
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import Made, residual_mlp

WIDTH, CLASSES = size(2048, 64), 100


class Classifying:
    """A classifier that was prepared, with its loader and its optimizer."""

    def __init__(self) -> None:
        self.accelerator = Accelerator(mixed_precision=size("bf16", "no"), cpu=size(False, True))
        ready = torch.randn(WIDTH)
        made = Made(lambda index: (ready, index % CLASSES))
        loader: DataLoader[Tensor] = DataLoader(made, size(2048, 8))
        model = nn.Sequential(residual_mlp(WIDTH, size(10, 1)), nn.Linear(WIDTH, CLASSES))
        optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(model, optimizer, loader)
        self.batch = next(iter(self.loader))  # kept: the loader is not what is looked at

    def step(self) -> None:
        x, y = self.batch
        loss = F.cross_entropy(self.model(x), y)
        self.accelerator.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def hits(self, parts: int) -> Iterator[Tensor]:
        """Number of hits in each of so many parts of the batch."""
        with torch.no_grad():
            for x, y in zip(*(tensor.chunk(parts) for tensor in self.batch), strict=True):
                yield self.accelerator.gather_for_metrics(self.model(x).argmax(-1) == y).sum()


def accelerate_collects_garbage(fault: bool, mark: Mark) -> None:
    """Collects garbage after each step, with an index of samples as dictionaries in memory."""
    index = [{"file": str(i), "span": [i, i + 1]} for i in range(size(200_000, 1_000))]
    classifying = Classifying()

    def step() -> None:
        classifying.step()
        if fault:
            gc.collect()
            len(index)

    repeat(step, mark)


def accelerate_evaluates(fault: bool, mark: Mark) -> None:
    """Evaluates after each step, and reads the hits of each small batch, not their sum."""
    classifying = Classifying()
    read = Tensor.item if fault else Tensor.float

    def step() -> None:
        classifying.step()
        hits = [hit for _ in range(4) for hit in map(read, classifying.hits(8))]
        float(sum(hits))

    repeat(step, mark)
