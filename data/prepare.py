"""Encodes texts into token files: python -m data.prepare [WHAT] [KEY=VALUE ...]

WHAT is shakespeare_char or shakespeare_bpe, which training prepares by itself if they are missing;
shakespeare or openwebtext, prepared as nanoGPT prepares data/shakespeare and data/openwebtext; or a
text file, a folder of *.txt, a Parquet file or a folder of *.parquet, of any size.

    python -m data.prepare shakespeare_char
    python -m data.prepare shakespeare_char data_source=my_novel.txt
    python -m data.prepare shakespeare_char offline_fallback=false
    python -m data.prepare shakespeare_bpe tokenizer=local bpe_vocab_size=4096
    python -m data.prepare shakespeare
    python -m data.prepare openwebtext
    python -m data.prepare openwebtext source=copies/openwebtext
    python -m data.prepare my_texts/ out=data/mine
    python -m data.prepare dump.parquet column=content out=data/mine workers=16
    python -m data.prepare my_novel.txt tokenizer=char out=data/novel

Each command writes a folder: train.bin and val.bin contain the token ids, vocab.json the tokenizer,
and meta.json describes the source. The folder is in data/ of a checkout; for an installation, in
the user's cache, ~/.cache/profiling-nanogpt (or XDG_CACHE_HOME). A complete folder is reused
without a network.

A text of any size is streamed in blocks, which several processes encode in parallel. If the command
is stopped or killed, the same command continues where it was. The split is that of nanoGPT: the
last tenth of text files is for validation, or one row in 2,000 of Parquet, chosen by its number.
Each row, and each file of a folder, ends with GPT-2's end-of-text token.
"""

if __name__ == "__main__":
    from cli.process import begin

    begin()  # from here on Ctrl-C is quiet

import logging
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path

from cli.errors import suggestion, user_errors
from cli.files import short_path
from cli.help import key_table
from cli.interrupts import unwind_on_signal
from cli.keys import parse_keys, spell
from cli.program import NAME, as_called
from configs.data import BUILT_IN, DataConfig
from configs.preparing import FilesConfig
from data.dataset import (
    Dataset,
    load_dataset,
    load_prepared,
    refuse_foreign_files,
    write_dataset,
)
from data.download import download_openwebtext
from data.source_text import (
    TINY_SHAKESPEARE_SHA256,
    Text,
    read_source,
    read_text,
    read_tiny_shakespeare,
    tiny_shakespeare_in,
)
from data.tokenizers import BpeTokenizer, CharTokenizer, Gpt2Tokenizer, Tokenizer

log = logging.getLogger(__name__)

FEWEST_TOKENS = 300
RECIPES = ("shakespeare", "openwebtext")  # nanoGPT's other folders, made on request
MANY_TOKENS = 10_000_000  # validation tokens from which an evaluation is to be sampled


def data_folder(package: Path, environ: Mapping[str, str]) -> Path:
    """Folder for prepared texts: `package`, data/, in a checkout, else one in the user's cache.

    An installed package may be read-only, or shared by users.
    """
    if (package.parent / "pyproject.toml").is_file():
        return package
    cache = environ.get("XDG_CACHE_HOME")
    return Path(cache or Path.home() / ".cache") / NAME


DATA_DIR = data_folder(Path(__file__).resolve().parent, os.environ)


def prepare(config: DataConfig, data_dir: Path = DATA_DIR) -> Dataset:
    """Data set that the keys ask for: a folder, or a text, which is prepared now if it is not yet.

    ValueError names the key. Several processes may call this at once. But let only one process of a
    distributed run call it, and the others `load_dataset` its directory: the network may answer
    one and not another.
    """
    if config.dataset not in BUILT_IN:
        folder = load_dataset(find_folder(config, data_dir))
        if isinstance(folder.tokenizer, Gpt2Tokenizer):
            log.info(
                "%s: no meta.pkl, so the tokens are taken to be GPT-2's, as in nanoGPT",
                folder.directory,
            )
        return folder
    if config.dataset == "shakespeare_char" and config.tokenizer != "auto":
        log.warning("tokenizer=%s: not used by dataset=shakespeare_char", config.tokenizer)
    try:
        if config.data_source is None:
            dataset = find_prepared(config, data_dir, "", TINY_SHAKESPEARE_SHA256)
            if dataset is not None:
                return dataset
        text = read_text(config, data_dir)
        dataset = find_prepared(config, data_dir, text.suffix, text.sha256)
        return dataset or make(config, data_dir, text)
    except OSError as error:
        cure = "; choose another place with XDG_CACHE_HOME=FOLDER" if data_dir.name == NAME else ""
        raise ValueError(
            f"{data_dir}: could not prepare data in this folder: {error}{cure}"
        ) from error


def find_folder(config: DataConfig, data_dir: Path) -> Path:
    """Folder of tokens that `dataset` names: one in data/, as in nanoGPT, or a path.

    Raises ValueError if there is none.
    """
    name, path = config.dataset, Path(config.dataset).expanduser()
    if config.data_source is not None:
        log.warning("data_source=%s: not used by dataset=%s", config.data_source, name)
    own = data_dir / name if name == path.name else path
    for folder in (own, path):
        if folder.is_dir() and name:
            return folder
    if path.is_file():
        raise ValueError(
            f"dataset={name}: is a file; name its folder, or prepare the file with python -m "
            "data.prepare"
        )
    if name in RECIPES:
        raise ValueError(f"dataset={name}: does not exist yet; run: python -m data.prepare {name}")
    near = suggestion(name, (*BUILT_IN, *RECIPES))
    raise ValueError(
        f"dataset={name}: no such folder{near} ({', '.join(BUILT_IN)}, or a folder of tokens)"
    )


def find_prepared(config: DataConfig, data_dir: Path, suffix: str, sha256: str) -> Dataset | None:
    for label, directory in folders(config, data_dir, suffix).items():
        if not directory.exists():
            continue
        try:
            dataset = load_prepared(directory)
            if dataset.text_sha256 != sha256:
                raise ValueError(f"{directory}: prepared from another text")
        except ValueError as error:
            refuse_foreign_files(directory)
            log.warning("%s; preparing it again", error)
            continue
        if config.dataset == "shakespeare_bpe" and config.tokenizer == "auto" and label != "gpt2":
            log.warning(
                "tokenizer=auto: using %s, which was prepared earlier without gpt2", directory
            )
        return dataset
    return None


def make(config: DataConfig, data_dir: Path, text: Text) -> Dataset:
    split = int(len(text.content) * 0.9)  # as nanoGPT splits
    train_text, val_text = text.content[:split], text.content[split:]
    label, tokenizer = make_tokenizer(config, text.content, train_text)
    train, val = tokenizer.encode(train_text), tokenizer.encode(val_text)
    if len(train) + len(val) < FEWEST_TOKENS:
        raise ValueError(
            f"data_source={config.data_source}: too short: {len(train) + len(val)} tokens; "
            f"at least {FEWEST_TOKENS} are needed"
        )
    meta: dict[str, str | int] = {
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
    directory = folders(config, data_dir, text.suffix)[label]
    dataset = write_dataset(directory, meta, tokenizer, {"train": train, "val": val})
    log.info("%s: tokens of the text, prepared once for all runs", dataset.directory)
    return dataset


def folders(config: DataConfig, data_dir: Path, suffix: str) -> dict[str, Path]:
    """Folders that would do, by the label of their tokenizer, the preferred one first."""
    if config.dataset == "shakespeare_char":
        return {"char": data_dir / f"{config.dataset}{suffix}"}
    local = f"local{config.bpe_vocab_size}"
    labels = {"gpt2": ["gpt2"], "local": [local], "auto": ["gpt2", local]}[config.tokenizer]
    return {label: data_dir / f"{config.dataset}-{label}{suffix}" for label in labels}


def make_tokenizer(config: DataConfig, content: str, train_text: str) -> tuple[str, Tokenizer]:
    """Label, as in `folders`, and tokenizer. Raises ValueError if GPT-2's cannot be had."""
    if config.dataset == "shakespeare_char":
        return "char", CharTokenizer(content)
    if config.tokenizer != "local":
        try:
            return "gpt2", BpeTokenizer.gpt2()
        except ValueError as error:
            if config.tokenizer == "gpt2":
                raise
            log.warning(
                "tokenizer=auto: training a local vocabulary on the text, because %s", error
            )
    tokenizer = BpeTokenizer.train(train_text, config.bpe_vocab_size)
    if tokenizer.vocab_size < config.bpe_vocab_size:
        log.warning(
            "bpe_vocab_size=%d: the text yields only %d tokens",
            config.bpe_vocab_size,
            tokenizer.vocab_size,
        )
    return f"local{config.bpe_vocab_size}", tokenizer


# Texts


def check_source(config: DataConfig) -> None:
    """Raise ValueError that names the key if the user's own text or folder cannot be read."""
    if config.dataset not in BUILT_IN:
        load_dataset(find_folder(config, DATA_DIR))
    elif config.data_source is not None:
        read_source(config.data_source)


# Command line


def main(words: list[str]) -> None:
    if {"-h", "--help"} & set(words):
        with user_errors():
            tables = f"{key_table(DataConfig())}\n\n{key_table(FilesConfig())}"
            print(as_called(f"{__doc__}\n{tables}"))
        return
    logging.basicConfig(format="%(levelname)s: %(message)s")
    with user_errors(), unwind_on_signal():
        named = [w for w in words if "=" not in w and not w.startswith("-")]
        if named and is_of_any_size(named[0], DATA_DIR):
            dataset, next_command = prepare_any_size(words, DATA_DIR)
        else:
            keys = [f"dataset={w}" if w in named else w for w in words]
            config: DataConfig = parse_keys(keys, DataConfig)
            dataset, next_command = prepare(config, DATA_DIR), training_command(config)
        train, val = dataset.count("train"), dataset.count("val")
        print(
            f"{dataset.directory}: {dataset.source}, {train:,} training and {val:,} validation "
            f"tokens, vocabulary of {dataset.tokenizer.vocab_size:,}"
        )
        print(as_called(f"next: {next_command}"))


def is_of_any_size(name: str, data_dir: Path) -> bool:
    """Whether `name` is prepared in blocks: a path, or one of RECIPES.

    If not, it is a data set for `prepare`. Raises ValueError for a name that is neither.
    """
    if name in RECIPES or Path(name).expanduser().exists():
        return True
    if name in BUILT_IN or (data_dir / name).exists():
        return False
    raise ValueError(f"{name}: no such file or folder{suggestion(name, [*BUILT_IN, *RECIPES])}")


def prepare_any_size(words: list[str], data_dir: Path) -> tuple[Dataset, str]:
    """Data set made of texts of any size, and the command that trains on it.

    Raises ValueError with a message of one line.
    """
    from data.prepare_files import prepare_files  # here, as training never needs it

    name = next(word for word in words if "=" not in word and not word.startswith("-"))
    given = parse_keys([word for word in words if word != name], FilesConfig)
    # so that it says from which block it resumes
    logging.getLogger(prepare_files.__module__).setLevel(logging.INFO)
    dataset = prepare_files(with_source(name, given, data_dir), data_dir)
    name_of_run = dataset.directory.absolute().name.replace("_", "-")
    keys = [f"dataset={short_path(dataset.directory)}", f"out_dir=out-{name_of_run}"]
    if dataset.count("val") > MANY_TOKENS:
        keys.append("eval_iters=200")
    return dataset, shlex.join(["python", "train.py", *keys, "attention=flash"])


def with_source(name: str, given: FilesConfig, data_dir: Path) -> FilesConfig:
    """The keys `given`, with the source that `name` stands for: a path, or one of RECIPES.

    A recipe without a source in `given` is downloaded. Raises ValueError if it cannot be.
    """
    if name not in RECIPES:
        if given.source:
            raise ValueError(
                f"source={given.source}: {name} was already given; leave one of the two out"
            )
        return replace(given, source=name)
    source = given.source
    if not source and name == "openwebtext":
        source = download_openwebtext()
    elif not source:
        try:
            read_tiny_shakespeare(data_dir)
        except ConnectionError as error:
            raise ValueError(
                f"shakespeare: could not be downloaded ({error}); give a copy with source=FILE"
            ) from error
        source = str(tiny_shakespeare_in(data_dir))
    return replace(given, source=source, out=given.out or str(data_dir / name))


def training_command(config: DataConfig) -> str:
    values = {f.name: getattr(config, f.name) for f in fields(config) if f.name != "dataset"}
    keys = [f"{k}={spell(v)}" for k, v in values.items() if v != getattr(DataConfig, k)]
    is_built_in = config.dataset in BUILT_IN
    first = f"config/{config.dataset}.yaml" if is_built_in else f"dataset={config.dataset}"
    return shlex.join(["python", "train.py", first, *keys, "attention=flash"])


if __name__ == "__main__":
    main(sys.argv[1:])
