"""Blocks of text as tokens: in processes side by side, handed back in order.

Each process is a fresh Python that reads the tokenizer once. At most a few blocks are on their way,
so memory does not grow with the text.
"""

import hashlib
import json
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import TypeVar

import numpy as np

from data.text_blocks import PARQUET, Block, Document, documents_of_parquet, documents_of_text
from data.tokenizers import Tokenizer, load_tokenizer, token_dtype

AHEAD = 2  # blocks for each process: one in the making, one to come

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


def in_order(
    work: Callable[[Block], Result], blocks: Iterable[Block], workers: int
) -> Iterator[Result]:
    """`work(block)` of each block, in the order of the blocks. Raises what `work` does.

    ValueError where a process was killed. One worker is this process itself.
    """
    if workers == 1:
        yield from map(work, blocks)
        return
    under_way: deque[Future[Result]] = deque()
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=be_a_worker)
    try:
        for block in blocks:
            under_way.append(pool.submit(work, block))
            if len(under_way) >= AHEAD * workers:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    except BrokenProcessPool as error:
        raise ValueError(
            f"workers={workers}: one of them was killed, by a lack of memory? What is done is "
            "kept: run the same command again, with fewer workers"
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def be_a_worker() -> None:
    """Ctrl-C is the first process's affair; where that is killed, nobody is left behind."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
