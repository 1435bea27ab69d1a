"""A folder of tokens that somebody else made: nanoGPT's, or shards of modded-nanogpt and llm.c.

nanoGPT's has train.bin and val.bin, bare uint16 ids, and meta.pkl if tokens are characters.
Shards (*.bin) have their split in their names, and a header of 256 int32: a magic number, the
version, the number of tokens that follow. Nothing is ever written there. Called by `data.dataset`.
"""

import hashlib
import logging
import os
import re
import struct
from pathlib import Path

import numpy as np

from data.meta_pickle import read_meta
from data.token_files import TokenFile, Tokens
from data.tokenizers import CharTokenizer, Gpt2Tokenizer

log = logging.getLogger(__name__)

IDS = np.dtype("<u2")
HEADER, HEADER_BYTES = struct.Struct("<3i"), 1024  # beginning of the header, size of all of it
MAGIC, VERSION = 20240520, 1
LLAMA_3_MAGIC = 20240801  # llm.c's magic number of shards with uint32
NAMES = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val"}
SPLITS = ("train", "val")
SAMPLES, SAMPLE_TOKENS = 64, 1 << 15  # 4 MB of a split are its fingerprint


def find_files(folder: Path) -> dict[str, tuple[TokenFile, ...]]:
    """Files of each split, in the order of their numbers.

    Raises ValueError with a message of one line.
    """
    paths: dict[str, list[Path]] = {split: [] for split in SPLITS}
    unknown: list[Path] = []
    for path in sorted(folder.glob("*.bin"), key=numeric_key):
        split = split_of(path)
        (paths[split] if split else unknown).append(path)
    for split, files in paths.items():
        if not files:
            there = f"; the name of {unknown[0].name} does not say" if unknown else ""
            raise ValueError(
                f"{folder}: no {split} split: it needs {split}.bin, or shards with {split} in "
                f"their names, such as {split}_000001.bin{there}"
            )
    if unknown:
        log.warning("%s: %s not read, because its name contains no split", folder, unknown[0].name)
    return {split: tuple(map(token_file, files)) for split, files in paths.items()}


def numeric_key(path: Path) -> list[tuple[int, str]]:
    """Sort key of a path that puts part 10 after part 9."""
    words = re.findall(r"\d+|\D+", path.name)
    return [(int(word), "") if word.isdecimal() else (0, word) for word in words]


def split_of(path: Path) -> str | None:
    """Split that the file's name says, by its first word that is one: fineweb_val_000000.bin."""
    words = re.findall(r"[a-z]+", path.stem.lower())
    return next((NAMES[word] for word in words if word in NAMES), None)


def token_file(path: Path) -> TokenFile:
    """Layout of a file of tokens, from its header if it has one. ValueError if it is cut off."""
    check_file(path)
    size = path.stat().st_size
    with open(path, "rb") as file:
        magic, version, count = HEADER.unpack(file.read(HEADER.size).ljust(HEADER.size, b"\0"))
    if magic == LLAMA_3_MAGIC:
        raise ValueError(f"{path}: contains tokens of Llama 3, whose vocabulary is not supported")
    if magic == MAGIC and size >= HEADER_BYTES:
        if version != VERSION:
            raise ValueError(
                f"{path}: is a shard of version {version}; only version {VERSION} can be read"
            )
        if count <= 0 or size != HEADER_BYTES + count * IDS.itemsize:
            raise ValueError(
                f"{path}: cut off, or damaged: {count} tokens announced, "
                f"{(size - HEADER_BYTES) / IDS.itemsize:g} found; copy or prepare it again"
            )
        return TokenFile(path, IDS, count, HEADER_BYTES)
    if size == 0:
        raise ValueError(f"{path}: empty; copy or prepare it again")
    if size % IDS.itemsize:
        raise ValueError(
            f"{path}: {size} bytes, an odd number, so these are not whole uint16 tokens and the "
            "file may be cut off; copy or prepare it again"
        )
    return TokenFile(path, IDS, size // IDS.itemsize)


def check_file(path: Path) -> None:
    """Raise ValueError for a pipe or the like: to open one is to wait for its writer."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: is not a file; copy or prepare it again")


def tokenizer_of(folder: Path) -> CharTokenizer | Gpt2Tokenizer:
    """Tokenizer in meta.pkl, or else GPT-2's, as in nanoGPT. Raises ValueError."""
    meta = folder / "meta.pkl"
    if os.path.lexists(meta):  # a broken link is an error, not a folder without meta.pkl
        check_file(meta)
        return read_meta(meta)
    return Gpt2Tokenizer()


def fingerprint(splits: dict[str, Tokens]) -> str:
    """SHA-256 of the number of tokens of each split and of evenly spaced samples of them.

    Only a few megabytes are read, however long the files are; ValueError for an id there that is no
    token. The hash does not depend on how the tokens are distributed over files.
    """
    digest = hashlib.sha256()
    for split, tokens in splits.items():
        length = min(len(tokens), SAMPLE_TOKENS)
        starts = np.unique(np.linspace(0, len(tokens) - length, SAMPLES).astype(np.int64))
        digest.update(f"{split} {len(tokens)} ".encode())
        for start in starts:
            digest.update(tokens.read(start[None], length).astype("<u4").tobytes())
    return digest.hexdigest()
