"""Commands in messages, spelled as the user who started this process types them.

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

NAME = "profiling-nanogpt"  # what pip installs; its first word may be one of PROGRAMS
PROGRAMS = ("train", "sample")
# environment variable: the installed program as the user called it, for this process and its
# children
VARIABLE = "PROFILING_NANOGPT_PROGRAM"
WANDB = re.compile(r"\bwandb (?=sync|login)")
COMMAND = re.compile(r"\bpython (?:-m (profiling|train|sample)|(?:\S*/)?(train|sample)\.py)\b")


def use_installed_program(path: str) -> None:
    """Let commands begin with the program at `path` from here on: its name alone if on PATH."""
    on_path = str(Path(path).parent) in os.get_exec_path()
    os.environ[VARIABLE] = NAME if on_path else shlex.quote(path)


def as_called(text: str) -> str:
    """The text, with its commands as the user who started this process types them."""
    if shutil.which("wandb") is None:
        text = WANDB.sub(f"{shlex.quote(sys.executable)} -m wandb ", text)
    program = os.environ.get(VARIABLE)
    if program is None:
        return text

    def spelled(command: re.Match[str]) -> str:
        name = command[1] or command[2]
        return f"{program} {name}" if name in PROGRAMS else program

    return COMMAND.sub(spelled, text)
