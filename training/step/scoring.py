"""Adds up the losses of evaluation batches on the device, with a CUDA graph where possible.

Without a graph a GPU finishes a forward pass sooner than the host has launched its kernels.
"""

import torch
from torch import Tensor

from configs.schema import Config
from model import GPT
from training.ranks.graph_pieces import capture_graph
from training.step.step import autocast


class Scoring:
    """Sum of the losses, and number of targets, of the batches since `begin`.

    With cuda_graphs=true the very first batch is launched kernel by kernel, which loads the
    kernels, and the same work is then captured. Later batches have its size: each is a copy into
    the graph's input and one launch. The graph reads the weights in place, where optimizers update
    them. Its pool keeps the activations of one forward pass.
    """

    def __init__(self, model: GPT, config: Config, device: torch.device):
        self.model, self.dtype, self.device = model, config.dtype, device
        kind = torch.float32 if device.type == "mps" else torch.float64  # Metal has no float64
        self.totals = torch.zeros(2, device=device, dtype=kind)  # sum of losses, number of targets
        # FlexAttention stays compiled (training.step.evaluate.uncompiled); a graph of it is
        # untested.
        self.replays = config.cuda_graphs == "true" and config.attention != "flex"
        self.graph: torch.cuda.CUDAGraph | None = None
        self.batch: Tensor  # (2, B, T), the graph's input

    def begin(self) -> None:
        self.totals.zero_()

    def add(self, x: Tensor, y: Tensor) -> None:
        """Adds the losses of a batch, with x and y (B, T); a target of -1 is not counted.

        The host waits for the GPU only when the graph is captured.
        """
        if self.graph is not None:
            assert x.shape == self.batch.shape[1:]  # else stack would resize the graph's input
            torch.stack((x, y), out=self.batch)  # one kernel
            self.graph.replay()
            return
        self.launch(x, y)
        if self.replays:
            self.batch = torch.stack((x, y))
            # Autocast must not cache rounded weights: the graph would keep reading old ones.
            with autocast(self.dtype, self.device, cache=False):
                self.graph = capture_graph(lambda: self.launch(*self.batch))

    def launch(self, x: Tensor, y: Tensor) -> None:
        _, loss = self.model(x, y)
        counted = (y != -1).sum()
        # The mean of no targets is nan. `torch.where` would copy its 0.0 to the GPU and wait.
        loss_sum = (loss * counted).masked_fill(counted == 0, 0.0)
        self.totals += torch.stack([loss_sum, counted])
