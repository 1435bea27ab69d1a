"""Programs of PyTorch alone whose time is the GPU's own."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import (
    DEVICE,
    bfloats,
    regression_step,
    training_step,
)


def gelu_by_formula(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x**3)))


def norm_by_formula(x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + 1e-5)


class Block(nn.Module):
    def __init__(self, width: int, by_formula: bool) -> None:
        super().__init__()
        self.linear, self.by_formula = nn.Linear(width, width), by_formula

    def forward(self, x: Tensor) -> Tensor:
        if self.by_formula:
            return x + gelu_by_formula(self.linear(norm_by_formula(x)))
        h = F.layer_norm(x, x.shape[-1:])
        return x + F.gelu(self.linear(h), approximate="tanh")


def plain_formulas(fault: bool, mark: Mark) -> None:
    """Norms and GELU as their formulas stand in the papers; without the fault PyTorch's own.

    Each operator of a formula reads a large tensor from memory and writes another.
    """
    width = size(2048, 64)
    x = torch.randn(size(16_384, 16), width, device=DEVICE)
    model = nn.Sequential(*(Block(width, fault) for _ in range(size(6, 1))))
    repeat(regression_step(model, x, x), mark)


def plain_lstm(fault: bool, mark: Mark) -> None:
    """Trains an LSTM on 4 long sequences at a time; without the fault on 256.

    A kernel for each time, a few sequences wide, leaves most of the GPU empty.
    """
    width = size(256, 16)
    model = nn.LSTM(width, width, 2, batch_first=True).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    x = torch.randn(4 if fault else size(256, 8), size(500, 8), width, device=DEVICE)
    repeat(training_step(optimizer, lambda: model(x)[0].square().mean()), mark)


def recorded(work: Callable[[], object]) -> Callable[[], object]:
    """The work as a CUDA graph; on the CPU as it is."""
    if DEVICE == "cpu":
        return work
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        work()  # what is made at the first call
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def plain_graph(fault: bool, mark: Mark) -> None:
    """Replays 300 small layers from a CUDA graph for 32 rows; without the fault for 8,192.

    Nothing is left to launch, and each kernel has work for a few of the GPU's processors.
    """
    width = size(256, 16)
    weight = bfloats(width, width) * width**-0.5
    state = bfloats(size(32 if fault else 8192, 4), width)

    def advance() -> None:
        h = state
        for _ in range(300):
            h = torch.tanh(h @ weight)
        state.copy_(h)

    with torch.no_grad():
        repeat(recorded(advance), mark)


def plain_decode(fault: bool, mark: Mark) -> None:
    """Layers of a language model for one token at a time, from a graph: it reads the weights."""
    width, wide = size(4096, 32), size(11_008, 64)
    rises = [bfloats(wide, width) * width**-0.5 for _ in range(size(24, 2))]
    falls = [bfloats(width, wide) * wide**-0.5 for _ in rises]
    token = bfloats(1, width)

    def decode() -> None:
        h = token
        for rise, fall in zip(rises, falls, strict=True):
            h = h + F.linear(F.silu(F.linear(F.layer_norm(h, (width,)), rise)), fall)
        token.copy_(F.layer_norm(h, (width,)))

    with torch.no_grad():
        replay = recorded(decode)
        repeat(lambda: [replay() for _ in range(8)], mark)
