"""More programs of Lightning."""

import random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from validation.framework_programs.parts import Mark, size
from validation.framework_programs.torch_parts import Made, residual_mlp
from validation.framework_programs.with_lightning import Regression, fit

ITEMS, USERS = size(100_000, 100), size(50_000, 20)


class Recommender(Regression):
    """Ranks the item that a user chose before others, by vectors of both."""

    def __init__(self, width: int) -> None:
        super().__init__(residual_mlp(width, 2))
        self.users, self.items = nn.Embedding(USERS, width), nn.Embedding(ITEMS, width)

    def training_step(self, batch: Any, index: int) -> Tensor:
        users, items = batch
        of_users, of_items = self.users(users), self.model(self.items(items))
        scores = torch.einsum("bw,biw->bi", of_users, of_items)
        return F.cross_entropy(scores.float(), torch.zeros_like(users))


def lightning_negatives(fault: bool, mark: Mark) -> None:
    """Two workers draw items that a user has not chosen, one by one; without it drawn before.

    A loop of Python asks for each draw whether the item is among the user's.
    """
    chosen = [set(random.sample(range(ITEMS), size(60, 3))) for _ in range(USERS)]
    batch, others = size(2048, 8), size(63, 3)

    def drawn(index: int) -> tuple[Tensor, Tensor]:
        users, rows = random.choices(range(USERS), k=batch), []
        for user in users:
            row = [next(iter(chosen[user]))]
            while len(row) <= others:
                item = random.randrange(ITEMS)
                if item not in chosen[user]:
                    row.append(item)
            rows.append(row)
        return torch.tensor(users), torch.tensor(rows)

    ready = drawn(0)
    loader = DataLoader(
        Made(drawn if fault else lambda index: ready),
        batch_size=None,
        num_workers=size(2, 1),
        pin_memory=size(True, False),
    )
    fit(Recommender(size(64, 8)), loader, mark)


def lightning_anomalies(fault: bool, mark: Mark) -> None:
    """Trains with detect_anomaly=True, left over from a search for a NaN.

    Each operator then writes down the stack of Python, and each gradient is looked at for a NaN.
    """
    width = size(1024, 32)
    ready = torch.randn(size(2048, 4), width)
    loader = DataLoader(Made(lambda index: ready), batch_size=None, pin_memory=size(True, False))
    fit(Regression(residual_mlp(width, size(12, 1))), loader, mark, detect_anomaly=fault)
