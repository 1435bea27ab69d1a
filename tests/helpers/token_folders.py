"""Folders of tokens as nanoGPT and modded-nanogpt leave them."""

import pickle
from pathlib import Path

import numpy as np

CHARACTERS = "\n !abcdefghijklmnopqrstuvwxyz"


def write_meta(folder: Path, characters: str = CHARACTERS, **changed: object) -> Path:
    itos = dict(enumerate(characters))
    meta = {"vocab_size": len(itos), "itos": itos, "stoi": {c: i for i, c in itos.items()}}
    path = folder / "meta.pkl"
    path.write_bytes(pickle.dumps({**meta, **changed}))
    return path


def write_nanogpt(
    folder: Path, train: int = 5000, val: int = 600, characters: str | None = CHARACTERS
) -> Path:
    """Write a folder of random ids; without `characters` GPT-2's ids and no meta.pkl."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    size = len(characters) if characters else 50257
    for split, count in (("train", train), ("val", val)):
        random.integers(0, size, count).astype("<u2").tofile(folder / f"{split}.bin")
    if characters:
        write_meta(folder, characters)
    return folder


def shard(ids: np.ndarray, version: int = 1, count: int | None = None) -> bytes:
    """Bytes of a shard as modded-nanogpt and llm.c write it."""
    header = np.zeros(256, "<i4")
    header[:3] = 20240520, version, len(ids) if count is None else count
    return header.tobytes() + ids.astype("<u2").tobytes()
