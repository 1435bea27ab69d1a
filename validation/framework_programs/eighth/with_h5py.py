"""A program of PyTorch that reads an HDF5 file by h5py: a robot's policy learns from frames."""

from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.plain import ResidualConvolutions
from validation.framework_programs.torch_parts import DEVICE, endless, training_step

FRAMES, EDGE = size(2048, 64), size(96, 16)


def write_frames(file: Path, **storage: object) -> None:
    slopes = np.linspace(0, 200, EDGE)[:, None, None] + np.linspace(0, 50, EDGE)[:, None]
    noise = np.random.randint(0, 6, (FRAMES, EDGE, EDGE, 3))
    with h5py.File(file, "w") as made:
        made.create_dataset("frames", data=(slopes + noise).astype("uint8"), **storage)


class Frames(Dataset[Tensor]):
    """Frames of a file, which each worker opens for itself."""

    def __init__(self, file: Path) -> None:
        self.file, self.frames = file, None

    def __len__(self) -> int:
        return FRAMES

    def __getitem__(self, index: int) -> Tensor:
        if self.frames is None:
            self.frames = h5py.File(self.file)["frames"]
        return torch.from_numpy(self.frames[index])  # type: ignore[index]


def hdf5_frames(fault: bool, mark: Mark) -> None:
    """Four workers read shuffled frames from compressed chunks of 16; without it one by one.

    A whole chunk is inflated for each frame, and 15 of 16 frames are thrown away.
    """
    model = nn.Sequential(
        nn.Conv2d(3, size(64, 8), 8, 4),
        ResidualConvolutions(size(64, 8), size(4, 1)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(size(64, 8), 7),
    ).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    shape = (EDGE, EDGE, 3)
    chunks = {"chunks": (16, *shape), "compression": "gzip"} if fault else {"chunks": (1, *shape)}
    with TemporaryDirectory(prefix="frames-") as folder:
        write_frames(Path(folder) / "frames.h5", **chunks)
        loader = DataLoader(
            Frames(Path(folder) / "frames.h5"),
            size(128, 4),
            shuffle=True,
            drop_last=True,
            num_workers=size(4, 1),
            pin_memory=size(True, False),
            persistent_workers=True,
        )
        batches = endless(loader)

        def loss() -> Tensor:
            seen = next(batches).to(DEVICE, non_blocking=True).movedim(-1, 1) / 255
            with torch.autocast(DEVICE, torch.bfloat16):
                out: Tensor = model(seen)
            return out.float().square().mean()

        repeat(training_step(optimizer, loss), mark)
