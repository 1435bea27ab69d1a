"""Another checkout of nanoGPT, run as it stands: its keys, its text, its commands.

Nothing of it is imported: its keys are read off the sources. Called by profiling.verbs.bench.
"""

import ast
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cli.files import name_path_in_errors
from configs.python_files import Setting, parse_file, value_of
from profiling.launch.experiment.processes import run_process

if TYPE_CHECKING:
    from data.dataset import Dataset

EXPERIMENT = Path("config/train_shakespeare_char.py")
TEXT = Path("data/shakespeare_char")  # where its prepare.py writes
TRAINER, SAMPLER, PREPARE = Path("train.py"), Path("sample.py"), TEXT / "prepare.py"
CONFIGURATOR = "configurator.py"  # both programs run it where their keys are declared
NEEDED = (TRAINER, SAMPLER, Path("model.py"), Path(CONFIGURATOR), EXPERIMENT, PREPARE)
DATASET = "shakespeare_char"


@dataclass(frozen=True)
class Checkout:
    folder: Path
    commit: str | None  # None: it is no git checkout
    # its keys, with the values that its experiment has; None: the source computes it, as a dtype
    train: dict[str, Setting]
    sample: dict[str, Setting]

    @property
    def name(self) -> str:
        return self.folder.name


def open_checkout(folder: Path) -> Checkout:
    """Raises ValueError where it is none."""
    if not folder.is_dir():
        raise ValueError(f"--against {folder}: no such folder; give a checkout of nanoGPT")
    lacking = [str(path) for path in NEEDED if not (folder / path).is_file()]
    if lacking:
        raise ValueError(f"--against {folder}: has no {lacking[0]}; is it a checkout of nanoGPT?")
    folder = folder.resolve()
    train = settings(folder / TRAINER) | settings(folder / EXPERIMENT)
    return Checkout(folder, commit_of(folder), train, settings(folder / SAMPLER))


def settings(source: Path) -> dict[str, Setting]:
    """The names that it assigns up to the configurator: nanoGPT's keys. Raises ValueError."""
    try:
        module = parse_file(source)
    except ValueError as error:
        raise ValueError(f"--against: {error}") from error
    found: dict[str, Setting] = {}
    for node in module.body:
        if isinstance(node, ast.Expr) and CONFIGURATOR in ast.unparse(node):
            break
        if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
            with suppress(ValueError, ArithmeticError, RecursionError):
                found[target.id] = value_of(node.value, found)
                continue
            found[target.id] = None
    return found


def commit_of(folder: Path) -> str | None:
    """Of the repository whose root the folder is."""
    command = ["git", "-C", str(folder), "rev-parse", "--show-toplevel", "HEAD"]
    try:
        said = subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    root, commit = said.splitlines()
    return commit if Path(root) == folder else None


def overrides(asked: dict[str, Setting], known: dict[str, Setting]) -> list[str]:
    """The words that give its keys the values that ours have; a key that it lacks is left out."""
    return [
        f"--{name}={value}"
        for name, value in asked.items()
        if value is not None and name in known and known[name] != value
    ]


def prepare_text(checkout: Checkout, ours: "Dataset", log: Path) -> bool:
    """Its tokens are ours: from our text, by its own prepare.py, if it has none; whether it had.

    Raises ValueError where it has another text, or cannot be written to.
    """
    folder = checkout.folder / TEXT
    there = all((folder / name).is_file() for name in ("train.bin", "val.bin", "meta.pkl"))
    if not there:
        text = folder / "input.txt"
        if not text.exists():
            with name_path_in_errors(text):
                text.write_bytes(b"".join(text_of(ours, split) for split in ("train", "val")))
        run_process(
            [sys.executable, str(PREPARE)], log, f"{checkout.name}'s {PREPARE}", checkout.folder
        )
    for split in ("train", "val"):
        theirs = np.fromfile(folder / f"{split}.bin", np.uint16)
        if not np.array_equal(theirs, ours.tokens(split).read_all()):
            raise ValueError(
                f"--against: {folder} holds another text than {ours.source}; remove its "
                "input.txt, train.bin and val.bin, or name its text here: "
                f"data_source={folder / 'input.txt'}"
            )
    return there


def text_of(dataset: "Dataset", split: str) -> bytes:
    return dataset.tokenizer.decode_bytes(dataset.tokens(split).read_all())
