"""A program of Lightning: an optimizer with many groups."""

import torch
from torch.utils.data import DataLoader

from validation.framework_programs.parts import Mark, size
from validation.framework_programs.torch_parts import DEVICE, Made, residual_mlp
from validation.framework_programs.with_lightning import Regression, fit


class Groups(Regression):
    """Trains each parameter at a rate of its own."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        rates = enumerate(self.parameters(), 1)
        return torch.optim.AdamW(
            [{"params": [each], "lr": 1e-4 / number} for number, each in rates]
        )


def lightning_group_for_each_parameter(fault: bool, mark: Mark) -> None:
    """Gives AdamW a group for each of 180 parameters; without the fault one for all.

    A dozen kernels update a group, and most groups are a matrix or a few hundred numbers.
    """
    width = size(512, 16)
    model = residual_mlp(width, size(30, 1))
    batch = torch.randn(size(4096, 4), width, device=DEVICE)
    fit((Groups if fault else Regression)(model), DataLoader(Made(lambda _: batch), None), mark)
