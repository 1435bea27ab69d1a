"""Short names for two commands, made of the words in which they differ.

Called by comparison, and by launch.experiment.commands.
"""

from collections.abc import Sequence
from difflib import SequenceMatcher

LONGEST = 40  # characters of a label


def command_labels(one: Sequence[str], other: Sequence[str]) -> tuple[str, str]:
    """Different labels of two commands, each of that command's own words: --lr 1, compiled.py.

    A command that equals the other, or only lacks words of it, is named by all of its words.
    """
    first, second = label(own_words(one, other)), label(own_words(other, one))
    return first, second if second != first else f"{second} (2)"


def own_words(command: Sequence[str], other: Sequence[str]) -> list[str]:
    """The words of a command that the other lacks, with the option before a value."""
    blocks = SequenceMatcher(None, command, other, autojunk=False).get_opcodes()
    own: list[str] = []
    for kind, begin, end, _, _ in blocks:
        if kind == "equal" or begin == end:
            continue
        is_value = begin > 0 and command[begin - 1].startswith("-") > command[begin].startswith("-")
        own += command[begin - is_value : end]
    return own or list(command)


def label(words: Sequence[str]) -> str:
    """The words on one line of at most LONGEST characters, files with the last of their folders."""
    line = " ".join(" ".join(map(file_name, words)).split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."


def file_name(word: str) -> str:
    return word if word.startswith("-") or "=" in word else "/".join(word.split("/")[-2:])
