"""Places of this project's programs, and their commands as the user of this process types them.

A checkout has packages cli, configs, data and more beside train.py. In an installation all of these
are in the package profiling, so that no other name is taken; setup.py puts them there.

All texts name a command as in a checkout: python -m profiling, python train.py, python sample.py.
What goes to a terminal passes `as_called`. Pages, Markdown and JSON keep the spelling of the texts:
their later reader may have started something else. W&B's own program is not on PATH if its
environment is pipx's, or not active.
"""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

NAME = "profiling-nanogpt"  # what pip installs
PREFIX = __name__.removesuffix("cli.program")  # of all modules' names: "" or, installed, profiling.
HOME = Path(__file__).resolve().parents[1]  # the folder with train.py
TRAINER, SAMPLER = HOME / "train.py", HOME / "sample.py"
# modules that are a program each, and what it does; their names are verbs of `profiling`, too
PROGRAMS = {
    "train": "train a GPT: train.py",
    "sample": "generate text with a trained model: sample.py",
    "data.prepare": "encode texts into token files",
    "training.export": "write a checkpoint as transformers reads it",
}
# environment variable: the installed program as the user called it, for this process and its
# children
VARIABLE = "PROFILING_NANOGPT_PROGRAM"
WANDB = re.compile(r"(?<!-m\s)\bwandb (?=sync|login)")
MODULES = "|".join(map(re.escape, ("profiling", *PROGRAMS)))
COMMAND = re.compile(rf"\bpython (?:-m ({MODULES})|(?:\S*/)?(train|sample)\.py)\b")
TORCHRUN = re.compile(r"\b(torchrun (?:-\S+ )*)(train|sample)\.py\b")


def use_installed_program(path: str) -> None:
    """Let commands begin with the program at `path` from here on: its name alone if on PATH."""
    on_path = str(Path(path).parent) in os.get_exec_path()
    os.environ[VARIABLE] = NAME if on_path else shlex.quote(path)


def as_called(text: str) -> str:
    """The text, with its commands as the user who started this process types them."""
    if shutil.which("wandb") is None:
        text = WANDB.sub(f"{shlex.quote(sys.executable)} -m wandb ", text)
    program = os.environ.get(VARIABLE) or (f"python -m {PREFIX.rstrip('.')}" if PREFIX else None)
    if program is None:
        return text

    def spelled(command: re.Match[str]) -> str:
        name = command[1] or command[2]
        return f"{program} {name}" if name in PROGRAMS else program

    return TORCHRUN.sub(rf"\1-m {PREFIX}\2", COMMAND.sub(spelled, text))


def python_arguments(script: Path) -> list[str]:
    """Python's arguments to start a script of this project.

    An installation's script is started without its folder on sys.path, where the modules of the
    package would be found by names such as `data` and `tools`.
    """
    return ["-P", str(script)] if PREFIX else [str(script)]
