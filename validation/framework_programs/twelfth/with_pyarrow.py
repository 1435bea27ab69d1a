"""A program of PyTorch whose texts lie in a table of Arrow."""

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, Made, residual_mlp, training_step

WORDS = size(8192, 64)


def arrow_words_by_lists(fault: bool, mark: Mark) -> None:
    """A worker makes tensors of a column by to_pylist; without the fault of the column's memory.

    Each of 196,608 words becomes an object of Python, and then a number again.
    """
    texts, length, batch, width = size(2048, 16), size(2048, 8), size(96, 2), size(128, 8)
    words = pa.array(np.random.default_rng(0).integers(0, WORDS, texts * length))
    column = pa.table({"words": pa.FixedSizeListArray.from_arrays(words, length)})["words"]

    def read(index: int) -> Tensor:
        part = column.slice(index * batch % (texts - batch), batch)
        if fault:
            return torch.tensor(part.to_pylist())
        return torch.tensor(part.combine_chunks().flatten().to_numpy()).view(batch, length)

    batches = iter(DataLoader(Made(read), None, num_workers=1))
    model = nn.Sequential(nn.Embedding(WORDS, width), residual_mlp(width, 1)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)

    step = training_step(optimizer, lambda: model(next(batches).to(DEVICE)).square().mean())
    repeat(step, mark)
