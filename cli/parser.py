"""The flags of a verb: each is described where it is defined, and --help is made of that."""

import argparse
import re
import shutil
import textwrap
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from cli.errors import ending
from cli.program import as_called

Flags = argparse._ActionsContainer  # a parser, or a group of its flags
NARROWEST, WIDEST = 20, 100  # columns of a text
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
        columns = shutil.get_terminal_size().columns
        width = min(max(columns, NARROWEST), WIDEST) - 2  # argparse, too, leaves two
        above, _, below = fitted(as_called(text or ""), width).partition("\n{flags}\n")
        super().__init__(
            prog, usage, above, below, parents, shape, add_help=not parents, allow_abbrev=False
        )
        self.register("type", Path, named_path)

    def format_help(self) -> str:
        return as_called(super().format_help())

    def error(self, message: str) -> NoReturn:
        """Raise ValueError with a line that names the flag, and the nearest right one."""
        unknown = re.search(r"unrecognized arguments: (-[^\s=]+)", message)
        flags = [flag for action in self._actions for flag in action.option_strings]
        raise ValueError(message + ending(unknown[1] if unknown else "", flags, self.prog))


def fitted(text: str, width: int) -> str:
    """The text with its paragraphs, tables of words and examples broken at the width.

    A table has lines of two columns, of which the first is indented by two.
    """
    blocks = [block.split("\n") for block in text.split("\n\n")]
    return "\n\n".join(
        "\n".join((fitted_examples if block[0] == "examples" else fitted_words)(block, width))
        for block in blocks
    )


def fitted_examples(lines: list[str], width: int) -> list[str]:
    """The lines, each at most `width` long, with a shell's backslash where one is broken."""
    made = []
    for line in re.sub(r" \\\n +", " ", "\n".join(lines)).split("\n"):
        whole = re.sub(r"'.*?'|\".*?\"", lambda quoted: quoted[0].replace(" ", "\0"), line)
        parts = broken(whole, width - 2, "", 6) if len(line) > width else [whole]
        made += [part.replace("\0", " ") for part in " \\\n".join(parts).split("\n")]
    return made


def fitted_words(lines: list[str], width: int) -> list[str]:
    columns = (re.match(r"  \S+(?: \S+)* {2,}(?=\S)", line) for line in lines)
    second = next((found.end() for found in columns if found), 0)
    entries: list[tuple[str, str]] = []  # of a table, or ("", paragraph)
    for line in lines:
        first, rest = (line[:second], line[second:]) if line.startswith("  ") else ("", line)
        if entries and not first.strip():
            entries[-1] = entries[-1][0], f"{entries[-1][1]} {rest}"
        else:
            entries.append((first, rest))
    return [part for first, rest in entries for part in broken(rest, width, first, len(first))]


def broken(text: str, width: int, first: str, indent: int) -> list[str]:
    """The lines of a text of at most `width`; the first begins with `first`."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def flag(
    parser: Flags,
    spelled: str,
    help: str,
    type: Callable[[str], object] = str,
    default: object = None,
    choices: Collection[str] | None = None,
) -> None:
    """Add "--name VALUE" to a parser or a group of its flags; "--name" alone is a switch.

    A flag with `choices` shows these in place of a VALUE.
    """
    *names, value = spelled.split()
    if not value.startswith("-"):
        parser.add_argument(*names, metavar=value, type=type, default=default, help=help)
    elif choices:
        parser.add_argument(*names, value, choices=choices, default=default, help=help)
    else:
        parser.add_argument(*names, value, action="store_true", help=help)


def at_dashes(words: list[str]) -> tuple[list[str], list[str] | None]:
    """(the words before `--`, the command behind it, or None without `--`)."""
    if "--" not in words:
        return words, None
    end = words.index("--")
    return words[:end], words[end + 1 :]


def named_path(word: str) -> Path:
    """Type that argparse takes for Path: that of an empty word would be this folder."""
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
    if not (parts := [word.strip() for word in words.split(",") if word.strip()]):
        raise argparse.ArgumentTypeError("is empty; give one or more, separated by commas")
    return parts
