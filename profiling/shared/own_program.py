"""Refusal of a user's own program by the verbs that start this project's training, and by those
that take its command only after two dashes, or a name and two dashes.

Called by those verbs, and where a capture is opened. The message itself says what to do: an
installation has no docs/.
"""

import re
import shlex
from pathlib import Path

from cli.program import TRAINER

PAGE = "docs/own_program.md"
# first words of a program's command line, and names of scripts
PROGRAM = re.compile(r"python[\d.]*|torchrun|accelerate|deepspeed|(?:ba|z)?sh|[^=]+\.(?:py|sh)")
SETTING = re.compile(r"[A-Za-z_]\w*=.*")  # of a variable, before a command
CONFIGURATIONS = ("config", "configs")  # nanoGPT's are scripts in such a folder
COMPARE = "before and after the change, then run: python -m profiling compare BEFORE AFTER"
EXAMPLE_NAME = "main"  # of a baseline
BOTH = "put two commands of yours behind it: python -m profiling ab -- A ::: B"


def refuse_own_program(verb: str, words: list[str]) -> None:
    """Raise ValueError if the words name a program: `verb` itself starts train.py, and no other."""
    program = program_in(words)
    if program is None:
        return
    if Path(program).resolve() == TRAINER:
        raise ValueError(f"{program}: {verb} starts this program itself; leave the word out")
    begin = min(map(words.index, programs_in(words)), default=0)
    if verb == "run":
        typed = with_dashes("run", words, begin)
        raise ValueError(f"{program}: a program of your own follows two dashes: {typed}")
    if verb == "ab":
        while begin and SETTING.fullmatch(words[begin - 1]):
            begin -= 1
        complete = ":::" in words or any(word.startswith("--against") for word in words)
        cure = f"put -- before the command: {with_dashes('ab', words, begin)}" if complete else BOTH
        raise ValueError(f"{program}: without -- ab only starts this project's train.py; {cure}")
    raise ValueError(
        f"{program}: {verb} only starts this project's train.py; capture your own program with "
        f"torch.profiler or nsys ({PAGE} shows how), {COMPARE}"
    )


def refuse_without_name(verb: str, argv: list[str], words: list[str]) -> None:
    """Raise ValueError if a command begins where a name belongs, without `--` before it.

    `words` are the one taken for the name and those behind it that are no flags of the verb.
    """
    name, *others = words
    named = others and programs_in(others[:1]) and not others[0].endswith(".py")
    if not programs_in([name]) or named:  # save python python t.py has a name
        return
    begin = begin_of(argv, words)
    typed = with_dashes(verb, [*argv[:begin], EXAMPLE_NAME, *argv[begin:]], begin + 1)
    raise ValueError(f"{name}: a name goes before the command, such as {EXAMPLE_NAME}: {typed}")


def refuse_without_dashes(verb: str, argv: list[str], words: list[str]) -> None:
    """Raise ValueError if the `words` of `argv` that are no flags of the verb begin a command."""
    if not words or words[0].startswith("-"):
        return
    typed = with_dashes(verb, argv, begin_of(argv, words))
    raise ValueError(f"{words[0]}: put -- before the command: {typed}")


def begin_of(argv: list[str], words: list[str]) -> int:
    """Place in `argv` of the first of `words`, which `argv` has in this order."""
    places = [place for place, word in enumerate(argv) if word == words[0]]
    return places[-words.count(words[0])]


def with_dashes(verb: str, words: list[str], begin: int) -> str:
    """Command line of the verb, in which two dashes stand before the command at word `begin`."""
    python = ["python"] if words[begin].endswith(".py") else []
    command = ["--", *python, *words[begin:]]
    return shlex.join(["python", "-m", "profiling", verb, *words[:begin], *command])


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
