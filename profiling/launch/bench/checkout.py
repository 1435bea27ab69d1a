"""Another checkout of nanoGPT, run as it stands: its keys, its text, its commands.

Nothing of it is imported: its keys are parsed out of the sources. Called by profiling.verbs.bench.
"""

import ast
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cli.files import name_path_in_errors, not_a_folder
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
    commit: str | None  # None if it is no git checkout
    # its keys with their values in its experiment; None if the source computes it, as a dtype
    train: dict[str, Setting]
    sample: dict[str, Setting]

    @property
    def name(self) -> str:
        return self.folder.name


def open_checkout(folder: Path) -> Checkout:
    """Read a checkout's keys and commit. Raises ValueError if the folder is none of nanoGPT."""
    if not folder.is_dir():
        raise ValueError(f"--against {folder}: {not_a_folder(folder)}; give a checkout of nanoGPT")
    lacking = [str(path) for path in NEEDED if not (folder / path).is_file()]
    if lacking:
        raise ValueError(
            f"--against {folder}: contains no {lacking[0]}; give a checkout of nanoGPT"
        )
    folder = folder.resolve()
    train = settings(folder / TRAINER) | settings(folder / EXPERIMENT)
    return Checkout(folder, commit_of(folder), train, settings(folder / SAMPLER))


def settings(source: Path) -> dict[str, Setting]:
    """nanoGPT's keys: the names that a source assigns before it runs the configurator.

    A value that cannot be computed from the source alone is None. Raises ValueError if the source
    cannot be parsed.
    """
    try:
        module = parse_file(source)
    except ValueError as error:
        raise ValueError(f"--against: {error}") from error
    values: dict[str, Setting] = {}
    for node in module.body:
        if isinstance(node, ast.Expr) and CONFIGURATOR in ast.unparse(node):
            break
        if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
            with suppress(ValueError, ArithmeticError, RecursionError):
                values[target.id] = value_of(node.value, values)
                continue
            values[target.id] = None
    return values


def commit_of(folder: Path) -> str | None:
    """Commit of the repository whose root is `folder`, or None if it is no such root."""
    command = ["git", "-C", str(folder), "rev-parse", "--show-toplevel", "HEAD"]
    try:
        output = subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    root, commit = output.splitlines()
    return commit if Path(root) == folder else None


def overrides(asked: dict[str, Setting], known: dict[str, Setting]) -> list[str]:
    """Words that give the checkout's keys our values; keys that it lacks are left out.

    `asked` are our values, `known` the checkout's keys with their values.
    """
    return [
        f"--{name}={value}"
        for name, value in asked.items()
        if value is not None and name in known and known[name] != value
    ]


def prepare_text(checkout: Checkout, ours: "Dataset", log: Path) -> bool:
    """Make sure that the checkout trains on our tokens; return whether its text was prepared
    already.

    If it was not, its own prepare.py is run on our text. Raises ValueError if it has another text,
    or cannot be written to.
    """
    folder = checkout.folder / TEXT
    was_prepared = all((folder / name).is_file() for name in ("train.bin", "val.bin", "meta.pkl"))
    if not was_prepared:
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
                f"--against: {folder} contains a different text than {ours.source}; remove its "
                "input.txt, train.bin and val.bin, or use its text here: "
                f"data_source={folder / 'input.txt'}"
            )
    return was_prepared


def text_of(dataset: "Dataset", split: str) -> bytes:
    return dataset.tokenizer.decode_bytes(dataset.tokens(split).read_all())
