"""A program of PyTorch alone whose time is the GPU's own."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, residual_mlp


def plain_sums_long_histories(fault: bool, mark: Mark) -> None:
    """Sums 8 users' histories of 32,768 items by nn.EmbeddingBag; without it rows, then a sum.

    A thread sums a user's number: 512 threads go through the histories, item by item.
    """
    items, width = size(1_000_000, 32), 64
    table = nn.EmbeddingBag(items, width, mode="sum", device=DEVICE)
    histories = torch.randint(0, items, (size(8, 2), size(32_768, 16)), device=DEVICE)
    head = residual_mlp(width, size(4, 1)).to(DEVICE)

    @torch.no_grad()
    def scores() -> Tensor:
        sums = table(histories) if fault else F.embedding(histories, table.weight).sum(1)
        scored: Tensor = head(sums)
        return scored

    repeat(scores, mark)
