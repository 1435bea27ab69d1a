"""Sums of rows by id, added to a table: the gradient of an embedding with many ids.

PyTorch sorts the ids, fills a table with zeros, sums into it and adds that to the gradient: 0.47 ms
for 24,576 rows of 768 and 50,257 ids on an H200. Here everything that depends on the ids alone is
prepared beforehand, and the rest is done in place.
"""

from torch import Tensor

from kernels.embedding_rows.sorted_ids import SortedIds


def add_rows_(table: Tensor, rows: Tensor, by_id: SortedIds, factor: float) -> None:
    """Add `factor` times the sum of the rows (N, C) of each id to table (V, C), in float32.

    Sums are computed in the same order each time, so that ranks with the same rows stay equal.
    """
    if table.is_cuda:
        from kernels.embedding_rows.in_triton import launch

        launch(table, rows, by_id, factor)
    else:
        table.index_add_(0, by_id.ids, rows[by_id.order].to(table.dtype), alpha=factor)
