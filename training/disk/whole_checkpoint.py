"""A checkpoint with all its weights, wherever they lie: for sampling and for export."""

from dataclasses import replace
from pathlib import Path

import torch

from training.disk.checkpoint_file import Checkpoint, read_checkpoint


def load(path: Path, device: torch.device | str = "cpu") -> Checkpoint:
    """Reads a checkpoint with its weights; the rest too, if all is in one file.

    With shards beside it the optimizer's state is left out: None. Raises ValueError as
    `read_checkpoint` does.
    """
    saved = read_checkpoint(path, device)
    if saved.shards is None:
        return saved
    from training.disk.shard_files import load_shards  # imports DTensor, which takes seconds

    weights_alone = replace(saved, optimizer={}, shards=replace(saved.shards, moments={}))
    return replace(load_shards(weights_alone, {}, device), optimizer=None)
