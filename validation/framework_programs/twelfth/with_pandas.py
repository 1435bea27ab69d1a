"""A program of PyTorch that reads a table of events by pandas."""

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, residual_mlp, training_step


def pandas_filters_in_collate(fault: bool, mark: Mark) -> None:
    """Two workers filter the table for each user of a batch; without the fault it was grouped once.

    A look for one user compares 300,000 rows, and sorts those that stay.
    """
    users, items, rows, last = size(5_000, 20), size(10_000, 50), size(300_000, 400), size(32, 4)
    draw = np.random.default_rng(0).integers
    columns = {"user": draw(0, users, rows), "item": draw(0, items, rows)}
    events = pd.DataFrame(columns | {"time": draw(0, 1_000_000, rows)})
    grouped = dict(iter(events.groupby("user")["item"]))

    def read(user: int) -> Tensor:
        seen = grouped.get(user, events["item"][:0])
        if fault:
            seen = events[events["user"] == user].sort_values("time")["item"]
        return torch.tensor(seen.to_numpy()[-last:])

    def collate(batch: list[int]) -> Tensor:
        return nn.utils.rnn.pad_sequence([read(user) for user in batch], batch_first=True)

    chosen = draw(0, users, size(200_000, 2_000)).tolist()
    batches = iter(DataLoader(chosen, size(96, 4), collate_fn=collate, num_workers=size(2, 1)))
    width = size(256, 8)
    model = nn.Sequential(nn.Embedding(items, width), residual_mlp(width, size(4, 1))).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    step = training_step(optimizer, lambda: model(next(batches).to(DEVICE)).square().mean())
    repeat(step, mark)
