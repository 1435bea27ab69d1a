"""A program of Lightning: a recurrent network."""

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from validation.framework_programs.parts import Mark, size
from validation.framework_programs.torch_parts import DEVICE, Made
from validation.framework_programs.with_lightning import Regression, fit


class Recurrent(Regression):
    """Predicts each next frame, by a cell for each frame or one layer for all."""

    def __init__(self, width: int, by_cells: bool) -> None:
        super().__init__(nn.Linear(width, width))
        self.cell = nn.LSTMCell(width, width) if by_cells else None
        self.layer = None if by_cells else nn.LSTM(width, width)

    def training_step(self, batch: Tensor, index: int) -> Tensor:
        frames = batch[:-1]
        if self.cell:
            state, states = None, []
            for frame in frames:
                state = self.cell(frame, state)
                states.append(state[0])
            hidden = torch.stack(states)
        else:
            hidden, _ = self.layer(frames)  # type: ignore[misc]
        return nn.functional.mse_loss(self.model(hidden).float(), batch[1:])


def lightning_cell_by_cell(fault: bool, mark: Mark) -> None:
    """Goes through 128 frames by nn.LSTMCell in a loop; without the fault by nn.LSTM.

    A dozen small kernels for each frame, and as many backwards.
    """
    width = size(256, 8)
    batch = torch.randn(size(129, 5), size(32, 2), width, device=DEVICE)
    fit(Recurrent(width, fault), DataLoader(Made(lambda _: batch), None), mark)
