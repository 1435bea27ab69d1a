"""Checkpoints of tiny models, as training leaves them."""

from dataclasses import asdict
from pathlib import Path

import torch

from configs.schema import Config
from kernels.fused_model import make_model
from model import GPT
from training.disk import checkpoint, shard_files
from training.disk.checkpoint_file import Checkpoint, read_checkpoint

BLOCK_SIZE = 16
GENERATED = 2 << 20  # floats of the state that is killed while it is written: 8 MB


def tiny(attention: str = "auto", kernels: str = "compiled") -> Config:
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 32, "block_size": BLOCK_SIZE}
    return Config(**sizes, dropout=0.0, attention=attention, kernels=kernels)


def tiny_model(config: Config, vocab_size: int = 65) -> GPT:
    torch.manual_seed(1)
    model = make_model(config, vocab_size).eval()
    for parameter in model.parameters():
        parameter.data *= 3  # farther from uniform: a wrong context must change the text
    return model


def write_checkpoint(
    folder: Path, tokenizer, attention: str = "auto", kernels: str = "compiled"
) -> str:
    config = tiny(attention, kernels)
    state = {
        "model": tiny_model(config, tokenizer.vocab_size).state_dict(),
        "config": asdict(config),
        "tokenizer": tokenizer.to_record(),
        "iter_num": 20,
        "best_val_loss": 1.25,
        "best_iteration": 20,
        "text": {"source": "stand-in", "sha256": ""},
    }
    checkpoint.write(folder / "ckpt.pt", state)
    return f"out_dir={folder}"


def read(out_dir: Path, name: str = "ckpt.pt") -> dict:
    return torch.load(out_dir / name, weights_only=True)


def assert_same(left: Path, right: Path) -> None:
    """Assert that weights, moments, random states and progress of two checkpoints are equal."""
    a, b = read(left), read(right)
    for key in ("model", "optimizer", "random_states", "iter_num", "best_val_loss"):
        torch.testing.assert_close(a[key], b[key], rtol=0, atol=0, msg=lambda m, key=key: key + m)


def evaluations(monkeypatch, values: list[float]) -> None:
    """Replace a run's evaluations: they return these validation losses, one after the other."""
    import train

    left = iter(values)

    def evaluate(*_):
        return {"val/loss": next(left), "eval/train_loss": 1.0}

    monkeypatch.setattr(train, "evaluate", evaluate)


def open_whole(out_dir: Path) -> Checkpoint:
    """Checkpoint of a run, put together where its tensors lie in shards."""
    saved = read_checkpoint(out_dir / "ckpt.pt")
    return shard_files.load_shards(saved, {}, "cpu") if saved.shards else saved


def save_for_ever(path: Path) -> None:
    """Save checkpoints without end; that of iteration N has a tensor full of N. Run in a child."""
    number = 0
    while True:
        state = {"iter_num": number, "model": torch.full((GENERATED,), float(number))}
        checkpoint.write(path, {**state, "config": {}, "tokenizer": {}})
        number += 1
