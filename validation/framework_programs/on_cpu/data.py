"""Programs that train on the CPU, fed by a DataLoader."""

import time
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, get_worker_info

from validation.framework_programs.parts import Mark
from validation.framework_programs.torch_parts import Made, endless


def convolutions(width: int) -> nn.Module:
    """Three convolutions and a linear layer of ten classes."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(width, width, 3),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 10),
    )


def fit(model: nn.Module, loader: DataLoader[tuple[Tensor, Tensor]], mark: Mark) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    for x, y in endless(loader):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mark()


def pictures_warped_one_by_one(fault: bool, mark: Mark) -> None:
    """Warps and blurs each picture as it is read; without the fault they are stored so."""
    stored = np.random.randint(0, 256, (64, 96, 96, 3), dtype=np.uint8)
    rows, columns = np.mgrid[:96, :96]

    def warped(picture: npt.NDArray[Any]) -> npt.NDArray[Any]:
        for _ in range(3):
            shift = (6 * np.sin(rows / 9 + np.random.rand())).astype(int)
            picture = picture[rows, (columns + shift) % 96]
            around = [np.roll(picture, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)]
            picture = np.mean(around, axis=0)
        return picture

    def make(index: int) -> tuple[Tensor, int]:
        picture = stored[index % 64]
        picture = warped(picture) if fault else picture
        return torch.from_numpy(picture.transpose(2, 0, 1).astype("float32")), index % 10

    fit(convolutions(16), DataLoader(Made(make), batch_size=16), mark)


def samples_from_afar(fault: bool, mark: Mark) -> None:
    """Waits 5 ms for each sample, as a store in another place answers; without it they are here."""

    def make(index: int) -> tuple[Tensor, int]:
        if fault:
            time.sleep(0.005)
        return torch.rand(3, 64, 64), index % 10

    fit(convolutions(24), DataLoader(Made(make), batch_size=16), mark)


def one_worker_is_late(fault: bool, mark: Mark) -> None:
    """One of two workers takes 0.2 s for a batch, and the batches come in turn."""
    ready = torch.rand(16, 3, 64, 64), torch.arange(16) % 10

    def make(index: int) -> tuple[Tensor, Tensor]:
        worker = get_worker_info()
        if fault and worker and worker.id == 0:
            time.sleep(0.2)
        return ready

    fit(convolutions(24), DataLoader(Made(make), batch_size=None, num_workers=2), mark)


def loader_control(fault: bool, mark: Mark) -> None:
    """Two workers that make small batches at once, for a model of some size."""

    def make(index: int) -> tuple[Tensor, int]:
        return torch.rand(3, 96, 96), index % 10

    fit(convolutions(48), DataLoader(Made(make), batch_size=16, num_workers=2), mark)
