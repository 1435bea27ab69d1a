"""Seeds for the dropout in this project's kernels; one kernel draws all of a step."""

from typing import NamedTuple

import torch
from torch import Tensor


class Seeds(NamedTuple):
    """Seeds of the three dropouts of a block, (1,) int64 each; for None the function draws one."""

    weights: Tensor | None = None  # dropout of the attention weights
    attention: Tensor | None = None  # dropout of what attention adds to the residual stream
    mlp: Tensor | None = None  # dropout of what the MLP adds to it


NO_SEEDS = Seeds()


def draw_seeds(blocks: int, device: torch.device) -> tuple[Tensor, list[Seeds]]:
    """Draw the seed of the embedding's dropout and those of each block.

    They come from torch's generator on the device, so that CUDA graphs draw others at each replay.
    Each lies at a multiple of 16 bytes: torch.compile copies a tensor that does not.
    """
    first, *others = torch.randint(2**31, (1 + 3 * blocks, 2), device=device)[:, :1].unbind()
    return first, [Seeds(*others[3 * block : 3 * block + 3]) for block in range(blocks)]


def new_seed(like: Tensor, dropout: float) -> Tensor:
    """Draw a single seed (1,); without dropout nobody reads it, and it has any value."""
    if dropout == 0:
        return like.new_empty(1, dtype=torch.int64)
    return torch.randint(2**31, (1,), device=like.device)
