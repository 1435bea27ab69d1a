"""Losses of batches, added up on the device: kernel by kernel, or with a CUDA graph for each batch.

For evaluations. A GPU is done with a forward pass sooner than the host has launched its kernels.
"""

import torch
from torch import Tensor

from configs.schema import Config
from model import GPT
from training.one_graph import captured
from training.step import autocast


class Scoring:
    """Sum of the losses, and number of the targets, of the batches since `begin`.

    With cuda_graphs=true the first batch of all is launched, which loads its kernels, and the same
    work is then captured. Any later batch has its size and is a copy into the graph's and a launch.
    The graph reads the weights where they lie, and optimizers write them there. Its pool keeps the
    activations of one forward pass.
    """

    def __init__(self, model: GPT, config: Config, device: torch.device):
        self.model, self.dtype, self.device = model, config.dtype, device
        kind = torch.float32 if device.type == "mps" else torch.float64  # Metal has no float64
        self.totals = torch.zeros(2, device=device, dtype=kind)
        # FlexAttention stays compiled, see training.evaluate.uncompiled: no graph of that was tried
        self.replays = config.cuda_graphs == "true" and config.attention != "flex"
        self.graph: torch.cuda.CUDAGraph | None = None
        self.batch: Tensor  # (2, B, T), which it reads

    def begin(self) -> None:
        self.totals.zero_()

    def add(self, x: Tensor, y: Tensor) -> None:
        """x and y are (B, T); a target of -1 is not counted. No host sync, but at the capture."""
        if self.graph is not None:
            assert x.shape == self.batch.shape[1:]  # else `out` would become another tensor
            torch.stack((x, y), out=self.batch)  # one kernel
            self.graph.replay()
            return
        self.launch(x, y)
        if self.replays:
            self.batch = torch.stack((x, y))
            # weights that autocast keeps from one call to the next are none of the graph's
            with autocast(self.dtype, self.device, cache=False):
                self.graph = captured(lambda: self.launch(*self.batch))

    def launch(self, x: Tensor, y: Tensor) -> None:
        _, loss = self.model(x, y)
        counted = (y != -1).sum()
        # the mean of no target is nan; `where` would copy its 0.0 to the GPU, and wait for that
        loss_sum = (loss * counted).masked_fill(counted == 0, 0.0)
        self.totals += torch.stack([loss_sum, counted])
