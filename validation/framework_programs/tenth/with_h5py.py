"""A program of PyTorch that writes an HDF5 file by h5py: particles whose paths are kept."""

from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import torch

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE

FRAMES = 64  # of the file, which the newest take from the oldest


def hdf5_compresses_paths(fault: bool, mark: Mark) -> None:
    """Writes particles after each 20 moves with compression="gzip"; without the fault as they are.

    One core compresses a megabyte of numbers that hardly get smaller, and the GPU waits.
    """
    count = size(60_000, 50)
    places, speeds = torch.rand(count, 3, device=DEVICE), torch.randn(count, 3, device=DEVICE)
    around = torch.randint(0, count, (count, 32), device=DEVICE)
    storage = {"compression": "gzip"} if fault else {}
    with TemporaryDirectory(prefix="paths-") as folder, h5py.File(Path(folder, "h5"), "w") as file:
        kept = file.create_dataset(
            "paths", (FRAMES, count, 6), "float32", chunks=(1, count, 6), **storage
        )
        written = 0

        def step() -> None:
            nonlocal written
            for _ in range(20):
                apart = places[around] - places[:, None]
                squares = apart.square().sum(-1, keepdim=True)
                speeds.add_((apart / (squares + 0.1)).sum(1), alpha=1e-5)
                places.add_(speeds, alpha=1e-4)
            kept[written % FRAMES] = torch.cat([places, speeds], 1).cpu().numpy()
            written += 1

        repeat(step, mark)
