"""A text as tokens: a folder that `data.prepare` wrote, or one that somebody else made.

A prepared folder has the tokens, the tokenizer and a record of their source. Training loads it;
several processes may write and load it at once. A foreign folder is read without any change.
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

from cli.errors import one_line
from cli.interrupts import unwind_on_signal
from cli.records import entry
from data.token_files import TokenFile, Tokens
from data.token_folder import SPLITS, check_file, find_files, fingerprint, tokenizer_of
from data.tokenizers import Tokenizer, load_tokenizer, token_dtype

STAND_IN = "stand-in"  # `source` of the built-in text
FILES = {"train.bin", "val.bin", "vocab.json", "meta.json"}


@dataclass(frozen=True)
class Dataset:
    """A folder of tokens."""

    source: str  # tiny_shakespeare, stand-in, or the name of the user's file or folder
    text_sha256: str  # hash of the text, or a fingerprint of the tokens if it is not known
    tokenizer: Tokenizer
    directory: Path
    files: dict[str, tuple[TokenFile, ...]]  # by split

    def count(self, split: str) -> int:
        """Number of tokens of "train" or "val"."""
        return sum(file.count for file in self.files[split])

    def tokens(self, split: str) -> Tokens:
        """Token ids of "train" or "val", mapped from their files."""
        return Tokens.open(self.files[split], self.tokenizer.vocab_size)


def load_dataset(directory: Path) -> Dataset:
    """Load any folder of tokens. ValueError says in one line what is missing or damaged."""
    if any((directory / name).exists() for name in ("meta.json", "vocab.json")):
        return load_prepared(directory)
    return load_folder(directory)


def load_prepared(directory: Path) -> Dataset:
    """Load a folder that `data.prepare` made. ValueError says what is missing or damaged."""
    try:
        meta, record = (read_record(directory / name) for name in ("meta.json", "vocab.json"))
        source, text_sha256 = (entry(meta, name, str) for name in ("source", "text_sha256"))
        tokenizer = load_tokenizer(record)
        dtype = token_dtype(tokenizer.vocab_size)
        files: dict[str, tuple[TokenFile, ...]] = {}
        for split in SPLITS:
            file = TokenFile(directory / f"{split}.bin", dtype, entry(meta, f"{split}_tokens", int))
            size = file.count * dtype.itemsize
            if file.path.stat().st_size != size:
                raise ValueError(f"{split}.bin does not have the expected size of {size} bytes")
            files[split] = (file,)
    except FileNotFoundError as error:
        raise ValueError(
            f"{directory}: incomplete: there is no {Path(error.filename).name}"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        reason = f"lacks {error}" if isinstance(error, KeyError) else one_line(error)
        raise ValueError(f"{directory}: damaged: {reason}; prepare it again") from error
    return Dataset(source, text_sha256, tokenizer, directory, files)


def read_record(path: Path) -> dict[str, object]:
    """The JSON object in the file. Raises ValueError that names the file."""
    check_file(path)
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error
    if not isinstance(record, dict):
        raise ValueError(f"{path.name}: does not contain names with values")
    return record


def load_folder(directory: Path) -> Dataset:
    """Load a folder of nanoGPT's, or of shards; samples of its tokens are checked.

    Raises ValueError.
    """
    try:
        files, tokenizer = find_files(directory), tokenizer_of(directory)
        size = tokenizer.vocab_size
        sha256 = fingerprint({split: Tokens.open(files[split], size) for split in files})
    except OSError as error:
        raise ValueError(f"{error.filename or directory}: {error.strerror}") from error
    return Dataset(directory.resolve().name, sha256, tokenizer, directory, files)


def refuse_foreign_files(directory: Path) -> None:
    """Raise ValueError if the folder holds files that `data.prepare` did not write.

    A folder is replaced as a whole, and they would be lost.
    """
    try:
        foreign = sorted({path.name for path in directory.iterdir()} - FILES)
    except FileNotFoundError:
        return  # another process is replacing it
    if foreign:
        raise ValueError(
            f"{directory}: contains {', '.join(foreign[:3])}, which data.prepare did not write; "
            "move the folder elsewhere"
        )


@unwind_on_signal()
def write_dataset(
    directory: Path, meta: dict[str, str | int], tokenizer: Tokenizer, splits: dict[str, np.ndarray]
) -> Dataset:
    """Write the folder with the token ids (N,) of train and val; after an error nothing is left."""
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
    return load_prepared(directory)


def put_in_place(finished: Path, directory: Path, meta: dict[str, str | int]) -> None:
    """Rename `finished` to `directory`; one that another process completed meanwhile stays."""
    while True:
        try:
            os.rename(finished, directory)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        with suppress(ValueError):  # a damaged one is replaced
            if load_prepared(directory).text_sha256 == meta["text_sha256"]:
                return
        damaged = finished.with_name(f"{finished.name}.damaged")
        with suppress(FileNotFoundError):  # another process was quicker
            os.rename(directory, damaged)
            shutil.rmtree(damaged)
