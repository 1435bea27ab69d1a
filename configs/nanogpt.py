"""nanoGPT's own names on the command line of train.py: each becomes ours, or says what to write.

Keys that bear the same name there and here are not in these tables.
"""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from cli.keys import BOOLEANS

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
    file = Path(word).name
    if size := re.fullmatch(r"eval_(gpt2\w*)\.py", file):
        raise ValueError(
            f"{word}: nanoGPT's; here python train.py config/{size[1]}.yaml init_from={size[1]} "
            "eval_only=true"
        )
    return FILES.get(file)
