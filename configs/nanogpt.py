"""nanoGPT's own names, on the command line of train.py and in files of its own: they become ours.

Keys that bear the same name there and here are not in these tables.
"""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from cli.keys import BOOLEANS, Value
from configs.python_files import settings

PYTHON = ".py"
# names of its experiments, for whoever types them here, where no such file lies
FILES = {
    "train_shakespeare_char.py": "config/shakespeare_char.yaml",
    "train_gpt2.py": "config/gpt2_124m.yaml",
    "finetune_shakespeare.py": "config/finetune_shakespeare.yaml",
}


def wandb_log(value: str) -> str:
    return f"wandb.mode={'auto' if BOOLEANS.get(value.lower()) else 'disabled'}"


# nanoGPT's key -> the words that it becomes here
KEYS: dict[str, Callable[[str], str]] = {
    "wandb_log": wandb_log,
    "wandb_project": lambda value: f"wandb.project={value}",
    "wandb_run_name": lambda value: f"wandb.name={value}",
    "backend": lambda value: "",  # of several ranks: NCCL on CUDA, else gloo
}

# what a file of its own lies over: the values in its train.py, where they are not the schema's
DEFAULTS: dict[str, Value] = {
    "out_dir": "out",
    "eval_interval": 2000,
    "log_interval": 1,
    "eval_iters": 200,
    "always_save_checkpoint": True,
    "wandb": {"mode": "disabled"},
    "dataset": "openwebtext",
    "gradient_accumulation_steps": 40,
    "batch_size": 12,
    "block_size": 1024,
    "n_layer": 12,
    "n_head": 12,
    "n_embd": 768,
    "dropout": 0.0,
    "learning_rate": 6e-4,
    "max_iters": 600_000,
    "beta2": 0.95,
    "warmup_iters": 2000,
    "lr_decay_iters": 600_000,
    "min_lr": 6e-5,
}


def load(path: Path) -> dict[str, Value]:
    """What one of its configurations sets, `key = value` lines in Python, under our names.

    Raises ValueError.
    """
    try:
        given = settings(path)
    except ValueError as error:
        same = f"; ours is {FILES[path.name]}" if path.name in FILES else ""
        raise ValueError(f"{error}{same}") from error
    found: dict[str, Value] = {}
    for name, value in given.items():
        if name not in KEYS:
            found[name] = value
        elif word := KEYS[name](str(value)):
            key, _, text = word.partition("=")
            section, _, inner = key.partition(".")
            found = merged(found, {section: {inner: None if value is None else text}})
    return found


def merged(below: dict[str, Value], above: dict[str, Value]) -> dict[str, Value]:
    """Both mappings in one, key by key of their sections."""
    found = dict(below)
    for name, value in above.items():
        under = found.get(name)
        if isinstance(under, dict) and isinstance(value, dict):
            value = {**under, **value}
        found[name] = value
    return found


def say_defaults(path: Path) -> None:
    """Tells on stderr what such a file leaves to others; of several ranks the first one does."""
    if path.suffix == PYTHON and os.environ.get("RANK", "0") == "0":
        told = "what it leaves out is as in nanoGPT's train.py: GPT-2 124M on openwebtext"
        print(f"{path}: {told}", file=sys.stderr)


def is_file_of_theirs(word: str) -> bool:
    """Whether it names a Python file that is there."""
    return word.endswith(PYTHON) and "=" not in word and Path(word).is_file()


def translated(words: list[str]) -> list[str]:
    """The words with ours in the place of nanoGPT's, told in one line on stderr.

    Raises ValueError for what there is nothing of here.
    """
    found = {word: new for word in words if (new := ours(word)) is not None}
    if found and os.environ.get("RANK", "0") == "0":
        told = ", ".join(f"{word} is {new or 'decided by device'}" for word, new in found.items())
        print(f"nanoGPT's names: {told}", file=sys.stderr)
    return [word for old in words if (word := found.get(old, old))]


def ours(word: str) -> str | None:
    """What takes the place of the word, empty if nothing does; None: it is not nanoGPT's."""
    name, equals, value = word.partition("=")
    if equals:
        return KEYS[name](value) if name in KEYS else None
    if is_file_of_theirs(word):
        return None
    file = Path(word).name
    if size := re.fullmatch(r"eval_(gpt2\w*)\.py", file):
        raise ValueError(
            f"{word}: nanoGPT's; here python train.py config/{size[1]}.yaml init_from={size[1]} "
            "eval_only=true"
        )
    return FILES.get(file)
