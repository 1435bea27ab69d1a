"""Output of a verb's results: the terminal, and the files of --json and the like.

Renderers are imported where they are used: so the verb report starts in 0.22 s, not in 0.28.
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
from profiling.shared.run_files import check_output

if TYPE_CHECKING:
    from rich.console import Console

    from profiling.report.document import Document

STDOUT = Path("-")
ENDINGS = {"json": (".json",), "markdown": (".md", ".markdown"), "html": (".html", ".htm")}
FLAGS = ", ".join(f"--{name}" for name in ENDINGS)


def output_flags(parser: Flags, **meanings: str) -> None:
    """Add those of FLAGS that the verb has; `meanings` are their help."""
    for name, meaning in meanings.items():
        flag(parser, f"--{name} FILE", meaning, type=new_file(*ENDINGS[name], stdout=True))


def new_file(*endings: str, stdout: bool = False) -> Callable[[str], Path]:
    """Type of a flag for a file that is written after long work, and so checked at once.

    With `stdout` the word - is taken, too. The type raises ArgumentTypeError.
    """

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
    """Raise ValueError for a file that must not or cannot be written, before the work for it.

    Its name has another ending, it belongs to a run, or its place cannot be written to.
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
    """Raise ValueError for a file that was asked for twice, or is one of the `inputs`."""
    asked = outputs(flags)
    if len(set(map(os.path.realpath, asked))) < len(asked):
        raise ValueError(f"{FLAGS}: two of these flags name the same FILE")
    for path in asked:
        if path != STDOUT:
            check_output(path, *inputs)


def write_outputs(flags: Namespace, as_json: str, document: "Document") -> list[Path]:
    """Write the files that were asked for, and return them. Raises ValueError."""
    from profiling.report.renderers import markdown, page
    from profiling.verbs.progress import progress_line

    makers = {
        "json": lambda: as_json,
        "markdown": lambda: markdown.markdown(document),
        "html": lambda: page.page(document, as_json=as_json),
    }
    for name in ENDINGS:
        if path := getattr(flags, name, None):
            with progress_line(f"making {path.name}"):
                content = makers[name]()
            put(path, content)
    return outputs(flags)


def show_or_write(flags: Namespace, as_json: str, document: "Document", line: str) -> list[Path]:
    """Write the files that were asked for, and print the `line`, or else show the document.

    Returns these files.
    """
    written = write_outputs(flags, as_json, document)
    if not written:
        show(document)
    say_written(line, written)
    return written


def say_written(line: str, written: list[Path]) -> None:
    """Print the result in a `line`, and the files with all of it, unless one of them is stdout."""
    if written and STDOUT not in written:
        print(line)
        print("written:", without_controls(", ".join(map(str, written))))


def put(path: Path, content: str) -> None:
    if path == STDOUT:
        sys.stdout.write(content)
    else:
        write_text(resolve_link(path), content)


def show(document: "Document") -> None:
    from profiling.report.renderers import terminal

    terminal.show(document, console())


def show_answer(document: "Document") -> None:
    from profiling.report.renderers import terminal

    terminal.show_answer(document, console())


def console() -> "Console":
    """Our stdout; in a notebook too, where rich would make an output of each line.

    COLUMNS=0 stands for an unknown width, at which rich would print nothing.
    """
    from rich.console import Console

    width = 80 if os.environ.get("COLUMNS") == "0" else None
    return Console(width=width, highlight=False, force_jupyter=False)
