"""Preparation of texts of any size: streamed, in parallel, and resumed after a kill.

Called by `data.prepare`. The result is a folder as for any prepared text.
"""

import json
import logging
import os
import pickle
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from cli.files import name_path_in_errors, replacement_for, resolve_link, write_text
from cli.lock import Lock
from configs.data import BUILT_IN
from configs.preparing import FilesConfig
from data.dataset import Dataset, load_prepared
from data.encode_blocks import Characters, Encode, Reading, results_in_order
from data.text_blocks import PARQUET, Block, find_sources, parquet_blocks, text_blocks
from data.tokenizers import BpeTokenizer, CharTokenizer, Tokenizer, load_tokenizer, token_dtype
from data.unfinished import VOCABULARY, Done, Plan, Unfinished

log = logging.getLogger(__name__)

VERSION = 1  # raise it if texts are cut or encoded in another way, so that no old folder is resumed
VAL_FRACTIONS = {True: 0.0005, False: 0.1}  # nanoGPT's, by whether the files are Parquet
LEARNT_CHARACTERS = 1 << 24  # length of the beginning that a local vocabulary is trained on


def prepare_files(config: FilesConfig, data_dir: Path) -> Dataset:
    """Make the folder of tokens, or what is missing of it, and load it.

    Raises ValueError with a message of one line.
    """
    paths = find_sources(config.source)
    is_parquet = paths[0].suffix == PARQUET
    if config.column != FilesConfig.column and not is_parquet:
        raise ValueError(
            f"column={config.column}: only for Parquet files, and these are text files; leave "
            "column out"
        )
    fraction = VAL_FRACTIONS[is_parquet] if config.val_fraction is None else config.val_fraction
    plan = plan_of(config, paths, fraction)
    named = Path(config.source).expanduser().resolve()
    if not config.out and named.stem.startswith(BUILT_IN):  # `prepare` names its folders so
        raise ValueError(
            f"{config.source}: {data_dir / named.stem} is reserved for texts that training "
            "prepares by itself; name another folder with out="
        )
    folder = Path(config.out).expanduser() if config.out else data_dir / named.stem
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        return load_existing(folder, plan)
    folder = final_place(folder)
    blocks = parquet_blocks(paths, config.column) if is_parquet else text_blocks(paths, fraction)
    if not blocks:
        raise ValueError(f"{config.source}: contains no text")
    reading = Reading(config.column, fraction)
    unfinished = Unfinished(folder.with_name(f"{folder.name}.unfinished"))
    with name_path_in_errors(unfinished.folder), Lock(unfinished.folder, f"out={folder}"):
        unfinished.begin_or_resume(plan)
        workers = min(config.workers or os.cpu_count() or 1, len(blocks))
        tokenizer = make_tokenizer(config, unfinished.folder, reading, blocks, workers)
        marks_ends = is_parquet or len(paths) > 1
        work = Encode(reading, unfinished.folder / VOCABULARY, marks_ends)
        done = encode(work, unfinished, tokenizer, blocks, workers)
        write_meta(unfinished.folder, plan, named.name, tokenizer, done)
    with name_path_in_errors(folder):
        unfinished.rename_to(folder)
    return load_prepared(folder)


def final_place(folder: Path) -> Path:
    """Path that the finished folder is renamed to, hours later: the target if `folder` is a link.

    Raises ValueError if it cannot be renamed to that.
    """
    place = Path(os.path.realpath(resolve_link(folder)))
    if place == Path.cwd() or place.is_mount():
        raise ValueError(
            f"out={folder}: is a mounted disk or the working folder, which cannot be replaced; "
            f"name a folder in it, such as out={folder / 'tokens'}"
        )
    return place if folder.is_symlink() else folder


def plan_of(config: FilesConfig, paths: list[Path], val_fraction: float) -> Plan:
    states = [(str(path.resolve()), path.stat()) for path in paths]
    sources = [(name, state.st_size, state.st_mtime_ns) for name, state in states]
    label = config.tokenizer + (str(config.bpe_vocab_size) if config.tokenizer == "local" else "")
    return Plan(VERSION, sources, label, config.column, val_fraction)


def load_existing(folder: Path, plan: Plan) -> Dataset:
    """Load a folder that exists already. Raises ValueError if it was not made by the same plan."""
    with suppress(ValueError, OSError):
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        if meta.get("plan_sha256") == plan.sha256:
            log.info("%s: already prepared from the same files", folder)
            return load_prepared(folder)
    raise ValueError(
        f"out={folder}: this folder exists and has other content; name another folder, or remove "
        "this one"
    )


def make_tokenizer(
    config: FilesConfig, folder: Path, reading: Reading, blocks: list[Block], workers: int
) -> Tokenizer:
    """Tokenizer in the folder's vocab.json, which is made first if it is missing.

    Raises ValueError.
    """
    path = folder / VOCABULARY
    if path.exists():
        return load_tokenizer(json.loads(path.read_text(encoding="utf-8")))
    tokenizer: Tokenizer
    if config.tokenizer == "gpt2":
        tokenizer = BpeTokenizer.gpt2()
    elif config.tokenizer == "local":
        tokenizer = BpeTokenizer.train(beginning(reading, blocks), config.bpe_vocab_size)
    else:
        sizes = [block.size_bytes for block in blocks]
        with results_in_order(Characters(reading), blocks, workers) as alphabets:
            steps = show_progress("collecting characters", alphabets, sizes)
            characters = set().union(*steps)
        tokenizer = CharTokenizer("".join(characters))
    write_text(path, json.dumps(tokenizer.to_record()))
    return tokenizer


def beginning(reading: Reading, blocks: list[Block]) -> str:
    texts, length = [], 0
    for block in blocks:
        for document in reading.documents(block):
            texts.append(document.text)
            length += len(document.text)
            if length >= LEARNT_CHARACTERS:
                return "".join(texts)
    return "".join(texts)


def encode(
    work: Encode, unfinished: Unfinished, tokenizer: Tokenizer, blocks: list[Block], workers: int
) -> Done:
    """Encode every block that is not on the disk yet, in order.

    Raises ValueError with a message of one line.
    """
    done = unfinished.done(token_dtype(tokenizer.vocab_size))
    if done.blocks:
        log.info(
            "%s: %d of %d blocks are already encoded", unfinished.folder, done.blocks, len(blocks)
        )
    sizes = [block.size_bytes for block in blocks]
    with results_in_order(work, blocks[done.blocks :], workers) as encoded:
        appended = unfinished.append(done, encoded)
        for so_far in show_progress("encoding", appended, sizes, done.blocks):
            done = so_far
    for split, count in (("training", done.train), ("validation", done.val)):
        if count == 0:
            unfinished.forget_blocks()  # so that the folder can be used with other keys
            raise ValueError(
                f"val_fraction={work.reading.val_fraction:g}: leaves no {split} tokens; choose "
                "another fraction, or a longer text"
            )
    return done


def write_meta(folder: Path, plan: Plan, source: str, tokenizer: Tokenizer, done: Done) -> None:
    """Write meta.json; for characters meta.pkl too, so that nanoGPT can train from the folder."""
    if isinstance(tokenizer, CharTokenizer):
        itos = dict(enumerate(tokenizer.characters))
        stoi = {character: number for number, character in itos.items()}
        content = pickle.dumps({"vocab_size": tokenizer.vocab_size, "itos": itos, "stoi": stoi})
        with replacement_for(folder / "meta.pkl") as unfinished:
            unfinished.write_bytes(content)
    meta = {
        "source": source,
        "text_sha256": done.sha256,
        "plan_sha256": plan.sha256,
        "tokenizer": plan.tokenizer,
        "vocab_size": tokenizer.vocab_size,
        "train_tokens": done.train,
        "val_tokens": done.val,
        "dtype": token_dtype(tokenizer.vocab_size).name,
        "prepared_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_text(folder / "meta.json", json.dumps(meta, indent=2) + "\n")


LINE_S = 10.0  # seconds between two lines

Result = TypeVar("Result")


def show_progress(
    what: str, results: Iterable[Result], sizes: list[int], done: int = 0
) -> Iterator[Result]:
    """Yield the results and show the progress after each.

    `sizes` are the bytes that each result stands for, `done` is how many were made before; these
    have a size but are not among the results.
    """
    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    total, at, began = sum(sizes), sum(sizes[:done]), time.monotonic()
    first, last_line = at, began
    with Progress(
        *columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(what, total=total, completed=at)
        for size, result in zip(sizes[done:], results, strict=True):
            yield result
            at += size
            bar.update(task, completed=at)
            now = time.monotonic()
            if bar.disable and now - last_line >= LINE_S:
                last_line, left_s = now, (now - began) / (at - first) * (total - at)
                console.print(f"{what}: {100 * at / total:.0f} %, {left_s / 60:.0f} min left")
