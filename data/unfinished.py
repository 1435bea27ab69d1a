"""An unfinished folder of tokens: finished blocks are kept, and a kill costs only those in work.

It lies beside the final folder, as NAME.unfinished, with train.bin and val.bin so far, plan.json
(sources and settings) and done.jsonl, a line for each block whose tokens are on the disk.
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
from data.encode_blocks import EncodedBlock
from data.token_folder import SPLITS

PLAN, DONE, VOCABULARY = "plan.json", "done.jsonl", "vocab.json"


@dataclass(frozen=True)
class Plan:
    """Sources and settings of a preparation, which resumes only if they are the same."""

    version: int  # number of the way in which texts are cut and encoded
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
    """Progress of a preparation: a line of done.jsonl."""

    blocks: int = 0
    train: int = 0  # tokens in train.bin
    val: int = 0  # tokens in val.bin
    sha256: str = ""  # hash of all tokens so far, block by block

    def plus(self, encoded: EncodedBlock) -> "Done":
        chained = hashlib.sha256(f"{self.sha256}{encoded.sha256}".encode()).hexdigest()
        train, val = self.train + len(encoded.train), self.val + len(encoded.val)
        return Done(self.blocks + 1, train, val, chained)


@dataclass(frozen=True)
class Unfinished:
    """An unfinished folder. The caller holds its lock: only one process may use it at a time."""

    folder: Path

    def begin_or_resume(self, plan: Plan) -> None:
        """Store the plan, or check that it is the stored one.

        Raises ValueError if tokens were made already of other files, or with other keys. Without
        any token yet, the new plan replaces the stored one.
        """
        path = self.folder / PLAN
        if path.exists() and path.read_text(encoding="utf-8") != plan.to_json():
            if any(self.lines()):
                raise ValueError(
                    f"{self.folder}: was started with other files or keys; remove it, or name "
                    "another folder with out="
                )
            (self.folder / VOCABULARY).unlink(missing_ok=True)
            path.unlink()
        if not path.exists():
            write_text(path, plan.to_json())

    def forget_blocks(self) -> None:
        (self.folder / DONE).unlink(missing_ok=True)

    def done(self, dtype: np.dtype) -> Done:
        """Last line of done.jsonl whose tokens are all on the disk; later tokens are cut off."""
        paths = {split: self.folder / f"{split}.bin" for split in SPLITS}
        counts = {
            split: path.stat().st_size // dtype.itemsize if path.exists() else 0
            for split, path in paths.items()
        }
        whole = [Done()]
        for done in self.lines():
            if done.train <= counts["train"] and done.val <= counts["val"]:
                whole.append(done)
        last = whole[-1]
        for split, path in paths.items():
            path.touch()
            os.truncate(path, getattr(last, split) * dtype.itemsize)
        write_text(self.folder / DONE, "".join(f"{line(done)}\n" for done in whole[1:]))
        return last

    def lines(self) -> Iterator[Done]:
        """Yield the lines of done.jsonl, up to one that a kill cut off."""
        path = self.folder / DONE
        for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            try:
                yield Done(**json.loads(text))
            except (ValueError, TypeError):
                return

    def append(self, done: Done, blocks: Iterable[EncodedBlock]) -> Iterator[Done]:
        """Write the blocks that follow `done`; yields the progress after each."""
        with ExitStack() as files:
            bins = [
                files.enter_context(open(self.folder / f"{split}.bin", "ab")) for split in SPLITS
            ]
            record = files.enter_context(open(self.folder / DONE, "a", encoding="utf-8"))
            for encoded in blocks:
                for file, ids in zip(bins, (encoded.train, encoded.val), strict=True):
                    file.write(ids.data)
                    file.flush()
                    os.fsync(file.fileno())
                done = done.plus(encoded)
                print(line(done), file=record, flush=True)  # not before its tokens are safe
                yield done

    def rename_to(self, folder: Path) -> None:
        """Rename it to the final folder, and delete the files that are only for a resume."""
        os.rename(self.folder, folder)
        for name in (PLAN, DONE):
            (folder / name).unlink(missing_ok=True)


def line(done: Done) -> str:
    return json.dumps(asdict(done))
