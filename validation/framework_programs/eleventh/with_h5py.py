"""A program of PyTorch that reads an HDF5 file by h5py: a table of rows."""

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, Made, residual_mlp, training_step


def hdf5_rows_by_list(fault: bool, mark: Mark) -> None:
    """A worker picks 4,096 rows of a file by a list of their numbers; without the fault a block.

    HDF5 adds row after row to a selection, and reads each by itself.
    """
    count, batch, width = size(65_536, 64), size(4096, 8), 256
    model = residual_mlp(width, size(4, 1)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    with TemporaryDirectory(prefix="rows-") as folder:
        file = Path(folder, "rows.h5")
        with h5py.File(file, "w") as made:
            made["rows"] = np.random.default_rng(0).random((count, width), "float32")

        def read(index: int) -> Tensor:
            begin = index * batch % (count - batch)
            block = slice(begin, begin + batch)
            picked = sorted(random.sample(range(count), batch)) if fault else block
            with h5py.File(file) as opened:
                return torch.from_numpy(opened["rows"][picked])

        batches = iter(DataLoader(Made(read), None, num_workers=1))

        def loss() -> Tensor:
            out: Tensor = model(next(batches).to(DEVICE))
            return out.square().mean()

        repeat(training_step(optimizer, loss), mark)
