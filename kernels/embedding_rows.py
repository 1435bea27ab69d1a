"""Rows added to a table, some for each of many ids: what an embedding's gradient is made of.

PyTorch's way sorts the ids, fills a table with zeros, sums into it and adds that to the gradient:
0.45 ms for 24,576 rows of 768 and 50,257 ids on an H200. Here what is known of the ids is prepared,
and the rest is done in place.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class SortedIds(NamedTuple):
    """Of N rows, int64 each."""

    ids: Tensor  # (N), in order
    order: Tensor  # (N): the row of each
    starts: Tensor  # (N): where its id begins in ids


def sort_ids(ids: Tensor) -> SortedIds:
    in_order, order = torch.sort(ids, stable=True)
    return SortedIds(in_order, order, torch.searchsorted(in_order, in_order))


def add_rows_(table: Tensor, rows: Tensor, by_id: SortedIds, factor: float) -> None:
    """To table (V, C), in float32, `factor` times the sum of the rows (N, C) of each id.

    Sums are made in the same order each time, so that ranks with the same rows stay the same.
    """
    if table.is_cuda:
        from kernels.embedding_rows_triton import launch

        launch(table, rows, *by_id, factor)
    else:
        table.index_add_(0, by_id.ids, rows[by_id.order].to(table.dtype), alpha=factor)
