"""A program of Lightning: a loader of what a file of JSON holds."""

import torch
from torch.utils.data import DataLoader

from validation.framework_programs.parts import Mark, size
from validation.framework_programs.torch_parts import Made, residual_mlp
from validation.framework_programs.with_lightning import Regression, fit


def lightning_lists(fault: bool, mark: Mark) -> None:
    """Collates measurements that are lists of Python; without the fault tensors.

    The loop's own process makes a tensor of 500,000 numbers, one object behind the other.
    """
    count, width = size(512, 4), size(1024, 32)
    tensors = list(torch.randn(count, width))
    lists = [row.tolist() for row in tensors]
    loader = DataLoader(
        Made(lambda index: (lists if fault else tensors)[index % count]),
        count,
        collate_fn=torch.tensor if fault else torch.stack,
    )
    fit(Regression(residual_mlp(width, size(8, 1))), loader, mark)
