"""Translation of nanoGPT's names, on the command line of train.py and in its own files, into ours.

Keys that have the same name in both are not in these tables.
"""

import re
from collections.abc import Callable
from pathlib import Path

from cli.errors import note_once
from cli.keys import BOOLEANS, Value
from configs.python_files import settings

PYTHON = ".py"
# nanoGPT's experiment files, which users type although they do not exist here -> ours
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
    "backend": lambda value: "",  # we always use NCCL on CUDA, else gloo
}

# values in nanoGPT's train.py that differ from the schema's; its files override them
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
    """Keys and values of one of nanoGPT's configurations, under our names.

    Such a file has `key = value` lines in Python. Raises ValueError.
    """
    try:
        theirs = settings(path)
    except ValueError as error:
        same = f"; ours is {FILES[path.name]}" if path.name in FILES else ""
        raise ValueError(f"{error}{same}") from error
    values: dict[str, Value] = {}
    for name, value in theirs.items():
        if name not in KEYS:
            values[name] = value
        elif word := KEYS[name](str(value)):
            key, _, text = word.partition("=")
            section, _, inner = key.partition(".")
            values = merge(values, {section: {inner: None if value is None else text}})
    return values


def merge(below: dict[str, Value], above: dict[str, Value]) -> dict[str, Value]:
    """Merge `above` over `below`, sections key by key, into a new mapping."""
    values = dict(below)
    for name, value in above.items():
        under = values.get(name)
        if isinstance(under, dict) and isinstance(value, dict):
            value = {**under, **value}
        values[name] = value
    return values


def say_defaults(path: Path) -> None:
    """Say on stderr, on the first rank, where the keys come from that a nanoGPT file leaves out."""
    if path.suffix == PYTHON:
        line = (
            "keys that this file does not set are as in nanoGPT's train.py: GPT-2 124M on "
            "openwebtext"
        )
        note_once(f"{path}: {line}")


def is_python_file(word: str) -> bool:
    return word.endswith(PYTHON) and "=" not in word and Path(word).is_file()


def translate_words(words: list[str]) -> list[str]:
    """Replace nanoGPT's words by ours, and say so in one line on stderr, on the first rank.

    Raises ValueError for a word that has no counterpart here.
    """
    new_words = {word: new for word in words if (new := translation_of(word)) is not None}
    if new_words:
        parts = [f"{word} is {new or 'decided by device'}" for word, new in new_words.items()]
        note_once(f"nanoGPT's names: {', '.join(parts)}")
    return [word for old in words if (word := new_words.get(old, old))]


def translation_of(word: str) -> str | None:
    """Our word for nanoGPT's, '' if it is to be dropped, or None if it is not nanoGPT's."""
    name, equals, value = word.partition("=")
    if equals:
        return KEYS[name](value) if name in KEYS else None
    if is_python_file(word):
        return None
    file = Path(word).name
    if size := re.fullmatch(r"eval_(gpt2\w*)\.py", file):
        raise ValueError(
            f"{word}: nanoGPT's; here python train.py config/{size[1]}.yaml init_from={size[1]} "
            "eval_only=true"
        )
    return FILES.get(file)
