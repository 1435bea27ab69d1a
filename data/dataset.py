"""A prepared text: a folder with its tokens, its tokenizer and what they were made from.

`data.prepare` writes such folders, training loads them; several processes may do both at once.
"""

import errno
import json
import os
import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cli.interrupts import unwinding
from data.tokenizers import Tokenizer, load_tokenizer, token_dtype

STAND_IN = "stand-in"  # the source of the built-in text
FILES = {"train.bin", "val.bin", "vocab.json", "meta.json"}
META = ("source", "text_sha256", "train_tokens", "val_tokens")  # what is read of meta.json


@dataclass(frozen=True)
class Dataset:
    """A prepared folder."""

    source: str  # tiny_shakespeare, stand-in, or the name of the user's file
    text_sha256: str
    tokenizer: Tokenizer
    directory: Path
    train_tokens: int
    val_tokens: int

    def tokens(self, split: str) -> np.memmap:
        """The ids of "train" or "val", mapped from the file."""
        return np.memmap(
            self.directory / f"{split}.bin", token_dtype(self.tokenizer.vocab_size), mode="r"
        )


def load_dataset(directory: Path) -> Dataset:
    """A folder that `write_dataset` made; ValueError says what is missing or damaged."""
    try:
        meta = json.loads((directory / "meta.json").read_text(encoding="utf-8"))
        record = json.loads((directory / "vocab.json").read_text(encoding="utf-8"))
        known = {name: meta[name] for name in META}
        dataset = Dataset(directory=directory, tokenizer=load_tokenizer(record), **known)
        for split in ("train", "val"):
            size = meta[f"{split}_tokens"] * token_dtype(dataset.tokenizer.vocab_size).itemsize
            if (directory / f"{split}.bin").stat().st_size != size:
                raise ValueError(f"{split}.bin has not the {size} bytes it should have")
    except FileNotFoundError as error:
        raise ValueError(f"{directory}: incomplete: no {Path(error.filename).name}") from error
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise ValueError(f"{directory}: damaged: {type(error).__name__}: {error}") from error
    return dataset


def refuse_foreign_files(directory: Path) -> None:
    """A folder is replaced as a whole, so it must hold nothing that somebody else put there."""
    try:
        foreign = sorted({path.name for path in directory.iterdir()} - FILES)
    except FileNotFoundError:
        return  # another process is replacing it
    if foreign:
        raise ValueError(
            f"{directory}: holds {', '.join(foreign[:3])}, which data.prepare did not write; "
            "move the folder elsewhere"
        )


@unwinding()
def write_dataset(
    directory: Path, meta: dict[str, str | int], tokenizer: Tokenizer, splits: dict[str, np.ndarray]
) -> Dataset:
    """The folder with the tokens, (N,), of train and val: all or, after an error, nothing."""
    unfinished = directory.with_name(f".{directory.name}.{secrets.token_hex(4)}")
    unfinished.mkdir(parents=True)
    try:
        for split, ids in splits.items():
            ids.tofile(unfinished / f"{split}.bin")
        (unfinished / "vocab.json").write_text(json.dumps(tokenizer.to_record()), encoding="utf-8")
        (unfinished / "meta.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
        put_in_place(unfinished, directory, meta)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)  # already renamed, unless something failed
    return load_dataset(directory)


def put_in_place(finished: Path, directory: Path, meta: dict[str, str | int]) -> None:
    """Renames the folder; one that another process completed meanwhile stays."""
    while True:
        try:
            os.rename(finished, directory)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        with suppress(ValueError):  # damaged: it goes
            if load_dataset(directory).text_sha256 == meta["text_sha256"]:
                return
        damaged = finished.with_name(f"{finished.name}.damaged")
        with suppress(FileNotFoundError):  # another process was quicker
            os.rename(directory, damaged)
            shutil.rmtree(damaged)
