"""Sums of rows by id, added to a table: the gradient of an embedding with many ids.

PyTorch sorts the ids, fills a table with zeros, sums into it and adds that to the gradient: 0.47 ms
for 24,576 rows of 768 and 50,257 ids on an H200. Here everything that depends on the ids alone is
prepared beforehand, and the rest is done in place.
"""

from typing import NamedTuple

import torch
from torch import Tensor

PART = 64  # rows of one id that are summed at once


class SortedIds(NamedTuple):
    """Ids of N rows in order, and the parts in which their rows are summed."""

    ids: Tensor  # (N), sorted
    order: Tensor  # (N), the row that each of the sorted ids belongs to
    starts: Tensor  # (N), the place in ids at which the id there begins
    parts: Tensor  # (N), places at which the parts of ids' rows begin, in order, filled up with N


def sort_ids(ids: Tensor) -> SortedIds:
    """Sort ids (N), which are less than 2^31, without a wait for the GPU."""
    sorted_ids, order = torch.sort(ids.int(), stable=True)  # half the passes of int64
    starts = torch.searchsorted(sorted_ids, sorted_ids)
    place = torch.arange(len(ids), device=ids.device)
    begins = (place - starts) % PART == 0
    part_or_end = torch.where(begins, place, len(ids))
    number = begins.cumsum(0) - 1
    parts = torch.full_like(order, len(ids)).scatter_reduce_(0, number, part_or_end, "amin")
    return SortedIds(sorted_ids, order, starts, parts)


def add_rows_(table: Tensor, rows: Tensor, by_id: SortedIds, factor: float) -> None:
    """Add `factor` times the sum of the rows (N, C) of each id to table (V, C), in float32.

    Sums are computed in the same order each time, so that ranks with the same rows stay equal.
    """
    if table.is_cuda:
        from kernels.embedding_rows_triton import launch

        launch(table, rows, by_id, factor)
    else:
        table.index_add_(0, by_id.ids, rows[by_id.order].to(table.dtype), alpha=factor)
