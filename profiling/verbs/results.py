"""Where a verb's results go: the terminal, and the files of --json, --markdown and --html."""

import sys
from argparse import Namespace
from pathlib import Path

from rich.console import Console

from cli.files import write_text
from cli.parser import Flags, flag, new_file
from profiling.report.document import Document
from profiling.report.renderers import markdown, page, terminal

STDOUT = Path("-")


def output_flags(parser: Flags, **meanings: str) -> None:
    """--json, --markdown, --html: those of them that the verb has, with their help."""
    for name, meaning in meanings.items():
        flag(parser, f"--{name} FILE", meaning, type=new_file)


def outputs(flags: Namespace) -> list[Path]:
    """The files that were asked for."""
    asked = (getattr(flags, name, None) for name in ("json", "markdown", "html"))
    return [path for path in asked if path]


def write_outputs(flags: Namespace, as_json: str, document: Document) -> list[Path]:
    """Writes the files that were asked for, and returns them. Raises ValueError."""
    makers = {"json": lambda _: as_json, "markdown": markdown.markdown, "html": page.page}
    for name, make in makers.items():
        if path := getattr(flags, name, None):
            put(path, make(document))
    return outputs(flags)


def put(path: Path, content: str) -> None:
    if path == STDOUT:
        sys.stdout.write(content)
    else:
        write_text(path, content)


def show(document: Document) -> None:
    terminal.show(document, Console(highlight=False))
