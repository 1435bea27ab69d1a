"""Encoding of blocks of text to tokens, in parallel processes, with the results in order.

Each process is a fresh Python that reads the tokenizer once. Only a few blocks are in work at a
time, so memory does not grow with the text.
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
class EncodedBlock:
    """Token ids (n,) of a block, by split."""

    train: np.ndarray
    val: np.ndarray

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.train.tobytes() + b"|" + self.val.tobytes()).hexdigest()


@dataclass(frozen=True)
class Reading:
    """Settings that decide which documents a block has."""

    column: str
    val_fraction: float

    def documents(self, block: Block) -> Iterator[Document]:
        if block.path.suffix == PARQUET:
            return documents_of_parquet(block, self.column, self.val_fraction)
        return documents_of_text(block)


@dataclass(frozen=True)
class Characters:
    """Function of a block that returns its distinct characters, sorted."""

    reading: Reading

    def __call__(self, block: Block) -> str:
        texts = (document.text for document in self.reading.documents(block))
        return "".join(sorted(set().union(*texts)))


@dataclass(frozen=True)
class Encode:
    """Function of a block that returns its tokens.

    With `marks_ends` the end-of-text token follows each document that ends in the block.
    """

    reading: Reading
    vocabulary: Path  # the tokenizer's record
    marks_ends: bool

    def __call__(self, block: Block) -> EncodedBlock:
        tokenizer = tokenizer_in(self.vocabulary)
        end = tokenizer.end_of_text if self.marks_ends else None
        ids = np.empty(0, token_dtype(tokenizer.vocab_size))
        parts = {"train": [ids], "val": [ids]}
        for document in self.reading.documents(block):
            parts[document.split].append(tokenizer.encode(document.text))
            if end is not None and document.is_whole:
                parts[document.split].append(np.array([end], ids.dtype))
        return EncodedBlock(np.concatenate(parts["train"]), np.concatenate(parts["val"]))


@cache
def tokenizer_in(vocabulary: Path) -> Tokenizer:
    return load_tokenizer(json.loads(vocabulary.read_text(encoding="utf-8")))


@contextmanager
def results_in_order(
    work: Callable[[Block], Result], blocks: Iterable[Block], workers: int
) -> Iterator[Iterator[Result]]:
    """Yield an iterator over `work(block)` of each block, in order; only a few are in work at once.

    The iterator raises what `work` raises, and the block ValueError if a process was killed.
    """
    try:
        with side_by_side(work, blocks, workers) as results:
            yield results
    except Killed as error:
        raise ValueError(
            f"workers={workers}: a worker was killed, perhaps for lack of memory. Finished "
            "blocks are kept: run the same command again with fewer workers"
        ) from error
