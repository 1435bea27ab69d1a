"""The flags of a verb: each is described where it is defined, and --help is made of that."""

import argparse
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from cli.errors import ending
from cli.program import as_called

Flags = argparse._ActionsContainer  # a parser, or a group of its flags
Number = TypeVar("Number", int, float)


class Parser(argparse.ArgumentParser):
    """argparse's parser, but a mistake is a ValueError, which cli.errors reports in one line.

    `text` is the text of --help, where the flags take the place of its line {flags}; it is the
    docstring of the verb's module. Flags of `parents` are added, their --help too.
    """

    def __init__(
        self,
        verb: str,
        text: str | None = "",
        usage: str | None = None,
        parents: Sequence[argparse.ArgumentParser] = (),
    ):
        shape = argparse.RawDescriptionHelpFormatter
        prog = as_called(f"python -m profiling {verb}")
        above, _, below = (text or "").partition("\n{flags}\n")
        super().__init__(
            prog, usage, above, below, parents, shape, add_help=not parents, allow_abbrev=False
        )

    def format_help(self) -> str:
        return as_called(super().format_help())

    def error(self, message: str) -> NoReturn:
        """Raise ValueError with a line that names the flag, and the nearest right one."""
        unknown = re.search(r"unrecognized arguments: (-[^\s=]+)", message)
        flags = [flag for action in self._actions for flag in action.option_strings]
        raise ValueError(message + ending(unknown[1] if unknown else "", flags, self.prog))


def flag(
    parser: Flags,
    spelled: str,
    help: str,
    type: Callable[[str], object] = str,
    default: object = None,
    choices: Collection[str] | None = None,
) -> None:
    """Add "--name VALUE" to a parser or a group of its flags; "--name" alone is a switch.

    A flag with `choices` shows these in place of a VALUE. An empty VALUE is no path.
    """
    *names, value = spelled.split()
    if type is Path:
        type = named_path
    if not value.startswith("-"):
        parser.add_argument(*names, metavar=value, type=type, default=default, help=help)
    elif choices:
        parser.add_argument(*names, value, choices=choices, default=default, help=help)
    else:
        parser.add_argument(*names, value, action="store_true", help=help)


def named_path(word: str) -> Path:
    """Type of a flag, for argparse: a path; that of an empty word would be this folder."""
    if not word:
        raise argparse.ArgumentTypeError("is empty; name a folder or a file")
    return Path(word)


def within(kind: type[Number], least: float, most: float = float("inf")) -> Callable[[str], Number]:
    """Type of a flag, for argparse: a number from `least` to `most`."""

    def number(word: str) -> Number:
        value = kind(word)
        if not least <= value <= most:
            beyond = f"at least {least:g}" if most == float("inf") else f"{least:g} to {most:g}"
            raise argparse.ArgumentTypeError(f"{word}: must be {beyond}")
        return value

    number.__name__ = {int: "whole number", float: "number"}[kind]
    return number


def names(words: str) -> list[str]:
    """Type of a flag, for argparse: words separated by commas, without blanks around them."""
    return [word.strip() for word in words.split(",") if word.strip()]
