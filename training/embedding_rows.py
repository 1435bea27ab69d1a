"""What the embedding adds to the gradient of the tied table, exchanged as a row for each token.

The table is the head's weight too. The head's part of its gradient is complete when backward begins
and travels beside it. The embedding's is complete when backward ends, and nothing is left to hide
it: as a dense gradient it would be the largest tensor of the model, of which most rows are zeros.
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn


class EmbeddingRows:
    """Of `embedding`, from now on; `dtype`: what a row's gradient travels in."""

    def __init__(self, embedding: nn.Embedding, world_size: int, dtype: torch.dtype):
        self.embedding, self.world_size, self.dtype = embedding, world_size, dtype
        self.idx: Tensor | None = None
        self.rows: Tensor | None = None  # of the tokens in `idx`, where a gradient is asked for
        embedding.register_forward_hook(self.cut_off)

    def cut_off(self, module: nn.Module, inputs: tuple[Tensor, ...], rows: Tensor) -> Tensor | None:
        """The rows as a leaf: what backward says of them stays here."""
        if not rows.requires_grad:
            return None
        (self.idx,) = inputs
        self.rows = rows.detach().requires_grad_()
        return self.rows

    def add(self) -> None:
        """The mean over the ranks, to the averaged gradient of the table."""
        if self.rows is None or self.idx is None:
            return
        table, rows = self.embedding.weight, self.rows.grad
        assert table.grad is not None and rows is not None
        idx = self.gathered(self.idx.flatten())
        all_rows = self.gathered(rows.flatten(0, 1).to(self.dtype)).to(table.dtype)
        dense = torch.ops.aten.embedding_dense_backward(all_rows, idx, len(table), -1, False)
        table.grad.add_(dense, alpha=1 / self.world_size)

    def gathered(self, mine: Tensor) -> Tensor:
        """(N, ...) of each rank -> (ranks * N, ...)"""
        everything = mine.new_empty(self.world_size * len(mine), *mine.shape[1:])
        dist.all_gather_into_tensor(everything, mine)
        return everything
