"""Where a verb's results go: the terminal, and the files of --json, --markdown and --html.

What renders is imported where it is used: without it the verb report is there in 0.22 s, not 0.28.
"""

import os
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cli.files import check_place, resolve_link, write_text
from cli.parser import Flags, flag
from cli.plain import without_controls
from profiling.run_files import check_output

if TYPE_CHECKING:
    from profiling.report.document import Document

STDOUT = Path("-")
ENDINGS = {"json": (".json",), "markdown": (".md", ".markdown"), "html": (".html", ".htm")}


def output_flags(parser: Flags, **meanings: str) -> None:
    """--json, --markdown, --html: those of them that the verb has, with their help."""
    for name, meaning in meanings.items():
        flag(parser, f"--{name} FILE", meaning, type=new_file(*ENDINGS[name], stdout=True))


def new_file(*endings: str, stdout: bool = False) -> Callable[[str], Path]:
    """The type of a flag: a file to write after long work; `stdout`: or - for that."""

    def file(word: str) -> Path:
        path = Path(word)
        if stdout and path == STDOUT:
            return path
        try:
            check_new(path, *endings)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None
        return path

    return file


def check_new(path: Path, *endings: str) -> None:
    """Refuses a file, before the work for it, that is not to be written. Raises ValueError.

    Where its name says another kind, where it belongs to a run, where there is no writing.
    """
    if not path.name.endswith(endings):
        raise ValueError(f"{path}: the name must end in {' or '.join(endings)}")
    check_place(resolve_link(path))
    check_output(path)


def outputs(flags: Namespace) -> list[Path]:
    """The files that were asked for."""
    asked = (getattr(flags, name, None) for name in ENDINGS)
    return [path for path in asked if path]


def check_outputs(flags: Namespace, *inputs: Path) -> None:
    """Refuses a file that was asked for twice, or is one of those that are read. ValueError."""
    asked = outputs(flags)
    if len(set(map(os.path.realpath, asked))) < len(asked):
        raise ValueError("--json, --markdown, --html: two of them have the same FILE")
    for path in asked:
        if path != STDOUT:
            check_output(path, *inputs)


def write_outputs(flags: Namespace, as_json: str, document: "Document") -> list[Path]:
    """Writes the files that were asked for, and returns them. Raises ValueError."""
    from profiling.report.renderers import markdown, page

    makers = {"json": lambda _: as_json, "markdown": markdown.markdown, "html": page.page}
    for name, make in makers.items():
        if path := getattr(flags, name, None):
            put(path, make(document))
    return outputs(flags)


def say_written(line: str, written: list[Path]) -> None:
    """The result in a `line`, and where all of it lies; nothing where standard output has it."""
    if written and STDOUT not in written:
        print(line)
        print("written:", without_controls(", ".join(map(str, written))))


def put(path: Path, content: str) -> None:
    if path == STDOUT:
        sys.stdout.write(content)
    else:
        write_text(resolve_link(path), content)


def show(document: "Document") -> None:
    from rich.console import Console

    from profiling.report.renderers import terminal

    terminal.show(document, Console(highlight=False))


def show_answer(document: "Document") -> None:
    from rich.console import Console

    from profiling.report.renderers import terminal

    terminal.show_answer(document, Console(highlight=False))
