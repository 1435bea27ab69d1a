"""Text in, token files out: python -m data.prepare [DATASET] [KEY=VALUE ...]

Each variant (text, tokenizer) has a folder of its own under data/: train.bin and val.bin hold the
token ids, vocab.json the tokenizer, meta.json what they were made from. A complete folder is used
again without a network. Training calls `prepare` too, so running this first is optional.

    python -m data.prepare shakespeare_char
    python -m data.prepare shakespeare_char data_source=my_novel.txt
    python -m data.prepare shakespeare_char offline_fallback=false
    python -m data.prepare shakespeare_bpe tokenizer=local bpe_vocab_size=4096
"""

import errno
import hashlib
import json
import logging
import os
import re
import secrets
import shlex
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import numpy as np

from configs.data import DataConfig
from data.download import download
from data.standin import stand_in_text
from data.tokenizers import BpeTokenizer, CharTokenizer, load_tokenizer, token_dtype

log = logging.getLogger(__name__)

DATA_DIR = Path(__file__).resolve().parent
TINY_SHAKESPEARE_URL = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
)
URL_VARIABLE = "TINY_SHAKESPEARE_URL"  # environment: the address of a mirror
TINY_SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"

TINY_SHAKESPEARE, STAND_IN = "tiny_shakespeare", "stand-in"
FILES = {"train.bin", "val.bin", "vocab.json", "meta.json"}
FEWEST_TOKENS = 300
KEYS = ("dataset", "data_source", "offline_fallback", "tokenizer", "bpe_vocab_size")


@dataclass(frozen=True)
class Dataset:
    """A prepared folder."""

    name: str  # shakespeare_char or shakespeare_bpe
    source: str  # tiny_shakespeare, stand-in, or the name of the user's file
    text_sha256: str
    tokenizer: CharTokenizer | BpeTokenizer
    directory: Path
    train_tokens: int
    val_tokens: int

    @property
    def is_stand_in(self) -> bool:
        return self.source == STAND_IN

    @property
    def train_path(self) -> Path:
        return self.directory / "train.bin"

    @property
    def val_path(self) -> Path:
        return self.directory / "val.bin"

    def tokens(self, split: str) -> np.memmap:
        """The ids of "train" or "val", mapped from the file."""
        return np.memmap(
            self.directory / f"{split}.bin", token_dtype(self.tokenizer.vocab_size), mode="r"
        )


@dataclass(frozen=True)
class Text:
    """What is to be prepared, and where it came from."""

    content: str
    source: str
    suffix: str  # of the folder's name: one text is never mistaken for another

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content.encode()).hexdigest()


def prepare(config: DataConfig, data_dir: Path = DATA_DIR) -> Dataset:
    """The data set that the keys ask for, prepared now if it is not yet; ValueError names the key.

    Several processes may call this at once. But let one process of a distributed run call it, and
    the others `load_dataset` its directory: the network may answer one and not the other.
    """
    if config.dataset == "shakespeare_char" and config.tokenizer != "auto":
        log.warning("tokenizer=%s: not used by dataset=shakespeare_char", config.tokenizer)
    try:
        if config.data_source is None:
            dataset = _reuse(config, data_dir, "", TINY_SHAKESPEARE_SHA256)
            if dataset is not None:
                return dataset
        text = _text(config, data_dir)
        dataset = _reuse(config, data_dir, text.suffix, text.sha256)
        return dataset or _make(config, data_dir, text)
    except OSError as error:
        raise ValueError(f"{data_dir}: data could not be prepared there: {error}") from error


def load_dataset(directory: Path) -> Dataset:
    """A folder that `prepare` made; ValueError says what is missing or damaged."""
    try:
        meta = json.loads((directory / "meta.json").read_text(encoding="utf-8"))
        record = json.loads((directory / "vocab.json").read_text(encoding="utf-8"))
        dataset = Dataset(
            name=meta["dataset"],
            source=meta["source"],
            text_sha256=meta["text_sha256"],
            tokenizer=load_tokenizer(record),
            directory=directory,
            train_tokens=meta["train_tokens"],
            val_tokens=meta["val_tokens"],
        )
        itemsize = token_dtype(dataset.tokenizer.vocab_size).itemsize
        for path, count in (
            (dataset.train_path, dataset.train_tokens),
            (dataset.val_path, dataset.val_tokens),
        ):
            if path.stat().st_size != count * itemsize:
                raise ValueError(f"{path.name} has not the {count * itemsize} bytes it should have")
    except FileNotFoundError as error:
        raise ValueError(f"{directory}: incomplete: no {Path(error.filename).name}") from error
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise ValueError(f"{directory}: damaged: {type(error).__name__}: {error}") from error
    return dataset


# Folders


def _labels(config: DataConfig) -> list[str]:
    """The tokenizers that would do, the preferred one first."""
    if config.dataset == "shakespeare_char":
        return ["char"]
    local = f"local{config.bpe_vocab_size}"
    return {"gpt2": ["gpt2"], "local": [local], "auto": ["gpt2", local]}[config.tokenizer]


def _directory(config: DataConfig, data_dir: Path, label: str, suffix: str) -> Path:
    variant = "" if label == "char" else f"-{label}"
    return data_dir / f"{config.dataset}{variant}{suffix}"


def _reuse(config: DataConfig, data_dir: Path, suffix: str, sha256: str) -> Dataset | None:
    for label in _labels(config):
        directory = _directory(config, data_dir, label, suffix)
        if not directory.exists():
            continue
        try:
            dataset = load_dataset(directory)
            if dataset.text_sha256 != sha256:
                raise ValueError(f"{directory}: made from another text")
        except ValueError as error:
            _refuse_foreign_files(directory)
            log.warning("%s; preparing it again", error)
            continue
        if config.dataset == "shakespeare_bpe" and config.tokenizer == "auto" and label != "gpt2":
            log.warning("tokenizer=auto: using %s, prepared earlier without gpt2", directory)
        return dataset
    return None


def _refuse_foreign_files(directory: Path) -> None:
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


def _make(config: DataConfig, data_dir: Path, text: Text) -> Dataset:
    label, tokenizer = _make_tokenizer(config, text.content)
    directory = _directory(config, data_dir, label, text.suffix)
    split = _split_at(text.content)
    train, val = tokenizer.encode(text.content[:split]), tokenizer.encode(text.content[split:])
    if len(train) + len(val) < FEWEST_TOKENS:
        raise ValueError(
            f"data_source={config.data_source}: too short: {len(train) + len(val)} tokens; "
            f"at least {FEWEST_TOKENS} are needed"
        )
    meta = {
        "dataset": config.dataset,
        "source": text.source,
        "text_sha256": text.sha256,
        "characters": len(text.content),
        "tokenizer": label,
        "vocab_size": tokenizer.vocab_size,
        "train_tokens": len(train),
        "val_tokens": len(val),
        "dtype": train.dtype.name,
        "prepared_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    unfinished = data_dir / f".{directory.name}.{secrets.token_hex(4)}"
    unfinished.mkdir(parents=True)
    try:
        train.tofile(unfinished / "train.bin")
        val.tofile(unfinished / "val.bin")
        (unfinished / "vocab.json").write_text(json.dumps(tokenizer.to_record()), encoding="utf-8")
        (unfinished / "meta.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
        _put_in_place(unfinished, directory, text.sha256)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)  # already renamed, unless something failed
    return load_dataset(directory)


def _put_in_place(finished: Path, directory: Path, sha256: str) -> None:
    """Renames the folder; one that another process completed meanwhile stays."""
    while True:
        try:
            os.rename(finished, directory)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        try:
            if load_dataset(directory).text_sha256 == sha256:
                return
        except ValueError:
            pass  # damaged: it goes
        damaged = finished.with_name(f"{finished.name}.damaged")
        with suppress(FileNotFoundError):  # another process was quicker
            os.rename(directory, damaged)
            shutil.rmtree(damaged)


def _split_at(content: str) -> int:
    return int(len(content) * 0.9)  # nanoGPT's split


def _make_tokenizer(config: DataConfig, content: str) -> tuple[str, CharTokenizer | BpeTokenizer]:
    labels = _labels(config)
    if labels[0] == "char":
        return "char", CharTokenizer(content)
    if labels[0] == "gpt2":
        try:
            return "gpt2", BpeTokenizer.gpt2()
        except ValueError as error:
            if config.tokenizer == "gpt2":
                raise
            log.warning(
                "tokenizer=auto: training a local vocabulary on the text, because %s", error
            )
    tokenizer = BpeTokenizer.train(content[: _split_at(content)], config.bpe_vocab_size)
    if tokenizer.vocab_size < config.bpe_vocab_size:
        log.warning(
            "bpe_vocab_size=%d: the text gives only %d tokens",
            config.bpe_vocab_size,
            tokenizer.vocab_size,
        )
    return labels[-1], tokenizer


# Texts


def _text(config: DataConfig, data_dir: Path) -> Text:
    if config.data_source is not None:
        return _read_source(config.data_source)
    try:
        return Text(_tiny_shakespeare(data_dir), TINY_SHAKESPEARE, suffix="")
    except ConnectionError as error:
        if not config.offline_fallback:
            raise ValueError(
                f"offline_fallback=false: tiny Shakespeare could not be downloaded ({error}); "
                "give a text of your own with data_source=FILE"
            ) from error
        log.warning(
            "THIS IS NOT SHAKESPEARE: the text could not be downloaded (%s). A stand-in, an "
            "invented play, takes its place: its losses are NOT comparable with any figure for "
            "tiny Shakespeare. data_source=FILE trains on a text of your own.",
            error,
        )
        return Text(stand_in_text(), STAND_IN, suffix="-standin")


def _read_source(data_source: str) -> Text:
    """A UTF-8 file without byte-order mark, its line ends made \\n as in Python's text mode."""
    path = Path(data_source).expanduser()
    if not path.is_file():
        what = "is not a file" if path.exists() else "no such file"
        raise ValueError(f"data_source={data_source}: {what}; give a UTF-8 text file")
    try:
        content = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"data_source={data_source}: not UTF-8 (byte {error.start} is "
            f"0x{error.object[error.start]:02x}); convert it first, for example with iconv"
        ) from error
    except OSError as error:
        raise ValueError(f"data_source={data_source}: {error.strerror}") from error
    content = content.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if not content:
        raise ValueError(f"data_source={data_source}: empty; give a text to train on")
    text = Text(content, path.name, "")
    stem = re.sub(r"[^\w.-]+", "_", path.stem)[:40]
    return Text(content, path.name, suffix=f"-{stem}-{text.sha256[:8]}")


def _tiny_shakespeare(data_dir: Path) -> str:
    """From data/tinyshakespeare/input.txt, where a copy may also be put by hand, or the network.

    ConnectionError says why neither had it.
    """
    kept = data_dir / "tinyshakespeare" / "input.txt"
    if kept.is_file():
        content = kept.read_bytes()
        if hashlib.sha256(content).hexdigest() == TINY_SHAKESPEARE_SHA256:
            return content.decode("utf-8")
        log.warning("%s: not tiny Shakespeare (wrong SHA-256); downloading it again", kept)
    url = os.environ.get(URL_VARIABLE, TINY_SHAKESPEARE_URL)
    try:
        content = download(url, TINY_SHAKESPEARE_SHA256)
    except OSError as error:
        raise ConnectionError(f"{url}: {error}") from error
    unfinished = kept.with_name(f".{kept.name}.{secrets.token_hex(4)}")
    kept.parent.mkdir(parents=True, exist_ok=True)
    unfinished.write_bytes(content)
    os.replace(unfinished, kept)
    return content.decode("utf-8")


# Command line


def parse(arguments: list[str]) -> DataConfig:
    """Keys from `DATASET key=value --key=value`; ValueError names the argument."""
    by_name = {field.name: field for field in fields(DataConfig) if field.name in KEYS}
    values: dict[str, object] = {}
    for argument in arguments:
        key, equals, value = argument.removeprefix("--").partition("=")
        if not equals and not argument.startswith("-"):
            key, value = "dataset", argument
        elif not equals or key not in by_name:
            raise ValueError(f"{argument}: unknown; the keys are {', '.join(KEYS)}, as KEY=VALUE")
        values[key] = _parse_value(key, value, by_name[key].type)
        choices = by_name[key].metadata.get("choices")
        if choices and value not in choices:
            raise ValueError(f"{key}={value}: must be one of {', '.join(choices)}")
    return DataConfig(**values)


def _parse_value(key: str, value: str, kind: object) -> object:
    if kind is bool:
        if value not in ("true", "false"):
            raise ValueError(f"{key}={value}: must be true or false")
        return value == "true"
    if kind is int:
        if not value.isdecimal():
            raise ValueError(f"{key}={value}: must be a whole number")
        return int(value)
    return None if value == "null" else value


def _spell(value: object) -> str:
    """A value as it is written on the command line."""
    return {None: "null", True: "true", False: "false"}.get(value, str(value))


def _help() -> str:
    keys = [field for field in fields(DataConfig) if field.name in KEYS]
    lines = [f"    {f.name:<17} {f.metadata['help']} (default: {_spell(f.default)})" for f in keys]
    return "\n".join([__doc__, "Keys, those of the training configuration:", *lines])


def main(arguments: list[str]) -> int:
    if {"-h", "--help"} & set(arguments):
        print(_help())
        return 0
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.INFO)
    try:
        config = parse(arguments)
        dataset = prepare(config, DATA_DIR)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(
        f"{dataset.directory}: {dataset.source}, {dataset.train_tokens:,} training and "
        f"{dataset.val_tokens:,} validation tokens, vocabulary of {dataset.tokenizer.vocab_size:,}"
    )
    changed = [
        f"{key}={_spell(value)}"
        for key, value in ((key, getattr(config, key)) for key in KEYS[1:])
        if value != getattr(DataConfig, key)
    ]
    command = ["python", "train.py", f"config/{config.dataset}.yaml", *changed, "attention=flash"]
    print(f"next: {shlex.join(command)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
