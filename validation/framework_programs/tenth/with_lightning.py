"""A program of Lightning: a table whose columns are tensors."""

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate

from validation.framework_programs.parts import Mark, size
from validation.framework_programs.torch_parts import Made, residual_mlp
from validation.framework_programs.with_lightning import Regression, fit


def lightning_columns_of_rows(fault: bool, mark: Mark) -> None:
    """Reads a row as a dictionary of 32 tensors of one number; without the fault as one tensor.

    The loop's own process makes 8,000 tensors for a batch, and stacks them column by column.
    """
    count, batch, columns = size(20_000, 16), size(256, 4), size(32, 4)
    table = np.random.rand(count, columns).astype("float32")

    def row(index: int) -> dict[str, Tensor]:
        values = enumerate(table[index % count])
        return {f"column{number}": torch.tensor(value) for number, value in values}

    def collate(rows: list[dict[str, Tensor]]) -> Tensor:
        return torch.stack(list(default_collate(rows).values()), 1)

    rows = Made(row if fault else lambda index: torch.from_numpy(table[index % count]))
    loader = DataLoader(rows, batch, collate_fn=collate if fault else None)
    fit(Regression(residual_mlp(columns, size(4, 1))), loader, mark)
