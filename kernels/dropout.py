"""Seeds for the dropout inside of this project's kernels, all of a step drawn by one kernel."""

from typing import NamedTuple

import torch
from torch import Tensor


class Seeds(NamedTuple):
    """Of the three dropouts of a block, (1,) int64 each; None: whoever needs one draws it."""

    weights: Tensor | None = None  # of attention
    attention: Tensor | None = None  # what it gives to the residual stream
    mlp: Tensor | None = None


NO_SEEDS = Seeds()


def draw_seeds(blocks: int, device: torch.device) -> tuple[Tensor, list[Seeds]]:
    """The embedding's and those of each block.

    By torch's generator on the device, so that CUDA graphs draw others at each replay. Each lies at
    a multiple of 16 bytes: of what does not torch.compile makes a copy.
    """
    first, *others = torch.randint(2**31, (1 + 3 * blocks, 2), device=device)[:, :1].unbind()
    return first, [Seeds(*others[3 * block : 3 * block + 3]) for block in range(blocks)]


def new_seed(like: Tensor, dropout: float) -> Tensor:
    """A single one; without dropout nobody reads it."""
    if dropout == 0:
        return like.new_empty(1, dtype=torch.int64)
    return torch.randint(2**31, (1,), device=like.device)
