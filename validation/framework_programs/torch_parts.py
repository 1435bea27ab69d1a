"""Parts of the programs that run on PyTorch: models, data sets, a training step."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from validation.framework_programs.parts import size

DEVICE = size("cuda", "cpu")


def bfloats(*shape: int) -> Tensor:
    return torch.randn(shape, device=DEVICE, dtype=torch.bfloat16)


def residual_mlp(width: int, blocks: int) -> nn.Module:
    """Blocks of norm, linear, GELU and linear, one behind the other."""

    def block() -> list[nn.Module]:
        return [nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)]

    return nn.Sequential(*(layer for _ in range(blocks) for layer in block()))


def encoder(width: int, layers: int) -> nn.Module:
    """Transformer layers with heads of 64 channels, without dropout."""
    layer = nn.TransformerEncoderLayer(
        width, width // 64, 4 * width, dropout=0, batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def regression_step(model: nn.Module, x: Tensor, y: Tensor) -> Callable[[], None]:
    """Step of bfloat16 autocast, mean squared error and AdamW on one resident batch."""
    model = model.to(DEVICE).train()

    def loss() -> Tensor:
        with torch.autocast(DEVICE, torch.bfloat16):
            return F.mse_loss(model(x).float(), y)

    return training_step(torch.optim.AdamW(model.parameters(), 1e-4), loss)


def training_step(
    optimizer: torch.optim.Optimizer, loss_of: Callable[[], Tensor]
) -> Callable[[], None]:
    """Step of an update by the gradients of a loss, which is computed anew in each."""

    def step() -> None:
        loss_of().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


class Made(Dataset[Any]):
    """A data set of a million samples, each made by a function of its index."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self.make = make

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


def endless(loader: Iterable[Any]) -> Iterator[Any]:
    """Batches of one epoch behind the other, without end."""
    while True:
        yield from loader
