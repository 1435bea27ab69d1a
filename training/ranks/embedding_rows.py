"""Exchanges the embedding's part of the tied table's gradient, as one row for each token.

The table is the head's weight, too. The head's part of its gradient is complete when backward
begins, and is averaged while backward goes on. The embedding's part is complete when backward ends,
and no work is left to hide its exchange. As a dense gradient it would be the largest tensor of the
model, with zeros in most of its rows; so only the rows of the batch's tokens are exchanged.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from kernels.embedding_rows import add_rows_
from kernels.embedding_rows.sorted_ids import SortedIds, sort_ids

# see training.ranks.all_reduce.Collective
BeginGather = Callable[[Tensor, torch.dtype], Callable[[], Tensor]]


class EmbeddingRows:
    """Takes the rows' gradients of `embedding` out of its dense gradient, from now on.

    `dtype` is the type in which the gradients of rows are sent. In an iteration call `sort` first,
    at any time in backward, and after backward `gather` and `add`.
    """

    def __init__(self, embedding: nn.Embedding, world_size: int, dtype: torch.dtype):
        self.embedding, self.world_size, self.dtype = embedding, world_size, dtype
        self.idx: Tensor | None = None
        self.rows: Tensor | None = None  # rows of the tokens in `idx`, if their gradient is needed
        on_cuda = embedding.weight.is_cuda
        self.stream = torch.cuda.Stream(embedding.weight.device) if on_cuda else None
        self.sorted: SortedIds | None = None  # ids of all ranks, until `add`
        embedding.register_forward_hook(self.cut_off)

    def cut_off(self, module: nn.Module, inputs: tuple[Tensor, ...], rows: Tensor) -> Tensor | None:
        """Forward hook that makes the rows a leaf, so that their gradient stays in `rows.grad`.

        Returns None, which changes nothing, if no gradient is needed.
        """
        if not rows.requires_grad:
            return None
        (self.idx,) = inputs
        self.rows = rows.detach().requires_grad_()
        return self.rows

    def sort(self, begin_gather: BeginGather) -> None:
        """Gathers and sorts the ids of all ranks, beside backward.

        Only the first call in an iteration does so.
        """
        if self.sorted is None and self.idx is not None:
            with self.beside():
                self.sorted = sort_ids(begin_gather(self.idx.flatten(), self.idx.dtype)())

    def beside(self) -> AbstractContextManager[object]:
        """Context manager that launches its block on a stream beside backward's, if on CUDA."""
        if self.stream is None:
            return nullcontext()
        self.stream.wait_stream(torch.cuda.current_stream())
        return torch.cuda.stream(self.stream)

    def gather(self, begin_gather: BeginGather) -> Callable[[], Tensor]:
        """Begins to gather the rows' gradients.

        Returns a function that waits for those of all ranks and returns them, (ranks * B * T, C).
        """
        assert self.rows is not None and self.rows.grad is not None
        return begin_gather(self.rows.grad.flatten(0, 1), self.dtype)

    def add(self, rows: Tensor) -> None:
        """Adds the mean over the ranks of `rows` to the table's gradient, averaged already.

        `rows` (ranks * B * T, C) is what `gather` has gathered.
        """
        table = self.embedding.weight.grad
        assert table is not None and self.sorted is not None
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
        add_rows_(table, rows, self.sorted, 1 / self.world_size)
        self.sorted = None
