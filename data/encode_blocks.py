"""Blocks of text as tokens: in processes side by side, handed back in order.

Each process is a fresh Python that reads the tokenizer once. At most a few blocks are on their way,
so memory does not grow with the text.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np

from cli.side_by_side import Killed, side_by_side
from data.text_blocks import PARQUET, Block, Document, documents_of_parquet, documents_of_text
from data.tokenizers import Tokenizer, load_tokenizer, token_dtype

Result = TypeVar("Result")


@dataclass(frozen=True)
class Encoded:
    """The ids (n,) that a block gives to each split."""

    train: np.ndarray
    val: np.ndarray

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.train.tobytes() + b"|" + self.val.tobytes()).hexdigest()


@dataclass(frozen=True)
class Reading:
    """How documents are found in a block."""

    column: str
    val_fraction: float

    def documents(self, block: Block) -> Iterator[Document]:
        if block.path.suffix == PARQUET:
            return documents_of_parquet(block, self.column, self.val_fraction)
        return documents_of_text(block)


@dataclass(frozen=True)
class Characters:
    """Called with a block: the distinct characters in it, sorted."""

    reading: Reading

    def __call__(self, block: Block) -> str:
        texts = (document.text for document in self.reading.documents(block))
        return "".join(sorted(set().union(*texts)))


@dataclass(frozen=True)
class Encode:
    """Called with a block: its tokens, each whole document with its end where `marks_ends`."""

    reading: Reading
    vocabulary: Path  # the tokenizer's record
    marks_ends: bool

    def __call__(self, block: Block) -> Encoded:
        tokenizer = tokenizer_in(self.vocabulary)
        end = tokenizer.end_of_text if self.marks_ends else None
        ids = np.empty(0, token_dtype(tokenizer.vocab_size))
        found = {"train": [ids], "val": [ids]}
        for document in self.reading.documents(block):
            found[document.split].append(tokenizer.encode(document.text))
            if end is not None and document.is_whole:
                found[document.split].append(np.array([end], ids.dtype))
        return Encoded(np.concatenate(found["train"]), np.concatenate(found["val"]))


@cache
def tokenizer_in(vocabulary: Path) -> Tokenizer:
    return load_tokenizer(json.loads(vocabulary.read_text(encoding="utf-8")))


@contextmanager
def in_order(
    work: Callable[[Block], Result], blocks: Iterable[Block], workers: int
) -> Iterator[Iterator[Result]]:
    """`work(block)` of each block, in the order of the blocks; at most a few are on their way.

    The iterator raises what `work` does. ValueError where a process was killed.
    """
    try:
        with side_by_side(work, blocks, workers) as results:
            yield results
    except Killed as error:
        raise ValueError(
            f"workers={workers}: one of them was killed, by a lack of memory? What is done is "
            "kept: run the same command again, with fewer workers"
        ) from error
