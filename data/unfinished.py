"""A folder of tokens in the making: what is done is kept, and a kill costs the blocks under way.

Beside the folder to come, as NAME.unfinished: train.bin and val.bin as far as they are, plan.json,
what is made of what, and done.jsonl, a line for each block whose tokens are on the disk.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from cli.files import write_text
from data.encode_blocks import Encoded
from data.token_folder import SPLITS

PLAN, DONE, VOCABULARY = "plan.json", "done.jsonl", "vocab.json"


@dataclass(frozen=True)
class Plan:
    """What is made of what: only the same is gone on with."""

    version: int  # of the way to cut and to encode
    sources: list[tuple[str, int, int]]  # path, bytes, time of the last change in ns
    tokenizer: str
    column: str
    val_fraction: float

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()


@dataclass(frozen=True)
class Done:
    """How far it is: a line of done.jsonl."""

    blocks: int = 0
    train: int = 0  # tokens in train.bin
    val: int = 0
    sha256: str = ""  # of all tokens so far, block by block

    def and_then(self, encoded: Encoded) -> "Done":
        chained = hashlib.sha256(f"{self.sha256}{encoded.sha256}".encode()).hexdigest()
        train, val = self.train + len(encoded.train), self.val + len(encoded.val)
        return Done(self.blocks + 1, train, val, chained)


@dataclass(frozen=True)
class Unfinished:
    """One process at a time: the caller holds its lock."""

    folder: Path

    def keep(self, plan: Plan) -> None:
        """Raises ValueError where tokens lie there that were made of other files, or by other keys.

        Where none are there yet, it begins anew.
        """
        path = self.folder / PLAN
        if path.exists() and path.read_text(encoding="utf-8") != plan.to_json():
            if any(self.lines()):
                raise ValueError(
                    f"{self.folder}: begun with other files or keys; remove it, or name another "
                    "folder with out="
                )
            (self.folder / VOCABULARY).unlink(missing_ok=True)
            path.unlink()
        if not path.exists():
            write_text(path, plan.to_json())

    def forget_blocks(self) -> None:
        (self.folder / DONE).unlink(missing_ok=True)

    def done(self, dtype: np.dtype) -> Done:
        """The last line whose tokens are all on the disk; what was written behind them goes."""
        paths = {split: self.folder / f"{split}.bin" for split in SPLITS}
        there = {
            split: path.stat().st_size // dtype.itemsize if path.exists() else 0
            for split, path in paths.items()
        }
        whole = [Done()]
        for done in self.lines():
            if done.train <= there["train"] and done.val <= there["val"]:
                whole.append(done)
        last = whole[-1]
        for split, path in paths.items():
            path.touch()
            os.truncate(path, getattr(last, split) * dtype.itemsize)
        write_text(self.folder / DONE, "".join(f"{line(done)}\n" for done in whole[1:]))
        return last

    def lines(self) -> Iterator[Done]:
        """Until one that a kill cut off."""
        path = self.folder / DONE
        for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            try:
                yield Done(**json.loads(text))
            except (ValueError, TypeError):
                return

    def append(self, done: Done, found: Iterable[Encoded]) -> Iterator[Done]:
        """Writes the blocks behind those that are done; gives how far it is after each."""
        with ExitStack() as opened:
            bins = [
                opened.enter_context(open(self.folder / f"{split}.bin", "ab")) for split in SPLITS
            ]
            record = opened.enter_context(open(self.folder / DONE, "a", encoding="utf-8"))
            for encoded in found:
                for file, ids in zip(bins, (encoded.train, encoded.val), strict=True):
                    file.write(ids.data)
                    file.flush()
                    os.fsync(file.fileno())
                done = done.and_then(encoded)
                print(line(done), file=record, flush=True)  # not before its tokens are safe
                yield done

    def become(self, folder: Path) -> None:
        """The folder to come, without what was needed on the way."""
        os.rename(self.folder, folder)
        for name in (PLAN, DONE):
            (folder / name).unlink(missing_ok=True)


def line(done: Done) -> str:
    return json.dumps(asdict(done))
