"""Checkpoints of tiny models, as training leaves them."""

from dataclasses import asdict
from pathlib import Path

import torch

from configs.schema import Config
from model import GPT
from training import checkpoint

BLOCK_SIZE = 16


def tiny(attention: str = "auto", kernels: str = "compiled") -> Config:
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 32, "block_size": BLOCK_SIZE}
    return Config(**sizes, dropout=0.0, attention=attention, kernels=kernels)


def tiny_model(config: Config, vocab_size: int = 65) -> GPT:
    torch.manual_seed(1)
    model = GPT(config, vocab_size).eval()
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
