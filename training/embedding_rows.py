"""What the embedding adds to the gradient of the tied table, exchanged as a row for each token.

The table is the head's weight too. The head's part of its gradient is complete when backward begins
and travels beside it. The embedding's is complete when backward ends, and nothing is left to hide
it: as a dense gradient it would be the largest tensor of the model, of which most rows are zeros.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from kernels.embedding_rows import SortedIds, add_rows_, sort_ids

# see training.all_reduce.Collective
BeginGather = Callable[[Tensor, torch.dtype], Callable[[], Tensor]]


class EmbeddingRows:
    """Of `embedding`, from now on; `dtype`: what a row's gradient travels in.

    In an iteration `sort` comes first, anywhere in backward, then `gather` and `add`, behind it.
    """

    def __init__(self, embedding: nn.Embedding, world_size: int, dtype: torch.dtype):
        self.embedding, self.world_size, self.dtype = embedding, world_size, dtype
        self.idx: Tensor | None = None
        self.rows: Tensor | None = None  # of the tokens in `idx`, where a gradient is asked for
        on_cuda = embedding.weight.is_cuda
        self.stream = torch.cuda.Stream(embedding.weight.device) if on_cuda else None
        self.sorted: SortedIds | None = None  # those of all ranks, in an iteration
        embedding.register_forward_hook(self.cut_off)

    def cut_off(self, module: nn.Module, inputs: tuple[Tensor, ...], rows: Tensor) -> Tensor | None:
        """The rows as a leaf: what backward says of them stays here."""
        if not rows.requires_grad:
            return None
        (self.idx,) = inputs
        self.rows = rows.detach().requires_grad_()
        return self.rows

    def sort(self, begin_gather: BeginGather) -> None:
        """The ids of all ranks, beside backward. Only the first call of an iteration does it."""
        if self.sorted is None and self.idx is not None:
            with self.beside():
                self.sorted = sort_ids(begin_gather(self.idx.flatten(), self.idx.dtype)())

    def beside(self) -> AbstractContextManager[object]:
        if self.stream is None:
            return nullcontext()
        self.stream.wait_stream(torch.cuda.current_stream())
        return torch.cuda.stream(self.stream)

    def gather(self, begin_gather: BeginGather) -> Callable[[], Tensor]:
        """Begins to; what it returns waits for the rows of all ranks, (ranks * B * T, C)."""
        assert self.rows is not None and self.rows.grad is not None
        return begin_gather(self.rows.grad.flatten(0, 1), self.dtype)

    def add(self, rows: Tensor) -> None:
        """Their mean over the ranks, to the averaged gradient of the table."""
        table = self.embedding.weight.grad
        assert table is not None and self.sorted is not None
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
        add_rows_(table, rows, self.sorted, 1 / self.world_size)
        self.sorted = None
