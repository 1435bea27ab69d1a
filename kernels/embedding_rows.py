"""Rows added to a table, a few for each of some ids: what an embedding's gradient is made of.

PyTorch's way sorts, fills a table with zeros, sums into it and adds it: 0.4 ms for 24,576 rows and
50,257 ids of 768 on an H200. Here what is known of the ids is prepared, and the rest is one kernel.
"""

from torch import Tensor


def add_rows_(table: Tensor, rows: Tensor, ids: Tensor, order: Tensor, factor: float) -> None:
    """To table (V, C), in float32, `factor` times the sum of the rows (N, C) of each id.

    ids (N) are sorted, and order (N) is where they lay, as torch.sort has it; int64 both. In the
    same order of sums each time.
    """
    if table.is_cuda:
        from kernels.embedding_rows_triton import launch

        launch(table, rows, ids, order, factor)
    else:
        table.index_add_(0, ids, rows[order].to(table.dtype), alpha=factor)
