"""Programs of PyTorch alone whose loader is late."""

import json
import random
from collections.abc import Iterator
from itertools import cycle, islice

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import (
    DEVICE,
    Made,
    endless,
    residual_mlp,
    training_step,
)


def parsed(line: str) -> Tensor:
    return torch.tensor(json.loads(line)["values"])


class Lines(IterableDataset[Tensor]):
    """Rows of lines of JSON, of which each worker gives its share."""

    def __init__(self, lines: list[str], parses_all: bool) -> None:
        self.lines, self.parses_all = lines, parses_all

    def __iter__(self) -> Iterator[Tensor]:
        worker = get_worker_info()
        assert worker
        share = worker.id, None, worker.num_workers
        if self.parses_all:
            return islice(map(parsed, cycle(self.lines)), *share)
        return map(parsed, islice(cycle(self.lines), *share))


def plain_parses_lines_of_others(fault: bool, mark: Mark) -> None:
    """Each of four workers parses all lines and gives a fourth; without it parses a fourth."""
    batch, width = size(64, 4), size(1000, 8)
    values = [[round(random.random(), 6) for _ in range(width)] for _ in range(size(512, 16))]
    lines = [json.dumps({"values": row}) for row in values]
    loader = DataLoader(Lines(lines, fault), batch, num_workers=size(4, 2))
    batches = iter(loader)
    model = residual_mlp(width, size(6, 1)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    repeat(training_step(optimizer, lambda: model(next(batches).to(DEVICE)).square().mean()), mark)


def plain_makes_new_iterators(fault: bool, mark: Mark) -> None:
    """Takes each batch by next(iter(loader)); without the fault from one iterator.

    A new iterator shuffles a million samples, of which one batch is used.
    """
    width = size(512, 8)
    rows = torch.randn(1024, width)
    loader = DataLoader(Made(lambda index: rows[index % 1024]), size(256, 4), shuffle=True)
    model = residual_mlp(width, size(4, 1)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    batches = endless(loader)

    def loss() -> Tensor:
        batch: Tensor = next(iter(loader)) if fault else next(batches)
        out: Tensor = model(batch.to(DEVICE))
        return out.square().mean()

    repeat(training_step(optimizer, loss), mark)
