"""Refusal of a user's own program by the verbs that start this project's training.

Called by those verbs, and where a capture is opened. The message itself says what to do: an
installation has no docs/.
"""

import re
import shlex
from pathlib import Path

from cli.program import TRAINER

PAGE = "docs/own_program.md"
# first words of a program's command line, and names of scripts
PROGRAM = re.compile(r"python[\d.]*|torchrun|accelerate|deepspeed|[^=]+\.py")
CONFIGURATIONS = ("config", "configs")  # nanoGPT's are scripts in such a folder
COMPARE = "before and after the change, then run: python -m profiling compare BEFORE AFTER"
BOTH = "put two commands of yours behind it: python -m profiling ab -- A ::: B"


def refuse_own_program(verb: str, words: list[str]) -> None:
    """Raise ValueError if the words name a program: `verb` itself starts train.py, and no other."""
    program = program_in(words)
    if program is None:
        return
    if Path(program).resolve() == TRAINER:
        raise ValueError(f"{program}: {verb} starts this program itself; leave the word out")
    if verb == "run":
        begin = min(map(words.index, programs_in(words)), default=0)
        python = ["python"] if words[begin].endswith(".py") else []
        raise ValueError(
            f"{program}: a program of your own follows two dashes: python -m profiling run -- "
            f"{shlex.join(python + words[begin:])}"
        )
    if verb == "ab":
        raise ValueError(f"{program}: without -- ab only starts this project's train.py; {BOTH}")
    raise ValueError(
        f"{program}: {verb} only starts this project's train.py; capture your own program with "
        f"torch.profiler or nsys ({PAGE} shows how), {COMPARE}"
    )


def program_in(words: list[str]) -> str | None:
    """The script among the words, else a launcher such as torchrun, else the first word after `--`
    unless that is an option; None if the words name no program."""
    programs = programs_in(words)
    after_dashes = words[words.index("--") + 1 :] if "--" in words else []
    programs += [word for word in after_dashes[:1] if not word.startswith("-")]
    return min(programs, key=lambda word: not word.endswith(".py"), default=None)


def programs_in(words: list[str]) -> list[str]:
    """The scripts and launchers among the words, in their order."""
    paths = {word: Path(word) for word in words}
    programs = [word for word, path in paths.items() if PROGRAM.fullmatch(path.name)]
    return [word for word in programs if paths[word].parent.name not in CONFIGURATIONS]
