"""Names and values as text: what the renderers share. Numbers are formatted by profiling.units."""

import re

from cli.plain import plain
from profiling import units
from profiling.report.document import Cell, Value
from profiling.units import ABSENT

FORMATS = {
    "ms": units.milliseconds,
    "ns": units.duration_ns,
    "bytes": units.size_bytes,
    "percent": units.percent,
    "ms_change": units.change_ms,
    "percent_change": units.change_percent,
    "number": units.number,
}
WORDS = ("text", "code")  # the kinds of a column that is no figure
INDENT = "\u2003"
CODE = re.compile(
    r"""
    (?P<command> \b(?: python\ -m\ profiling | nsys\ profile | nvidia-smi )\b
        .*? (?= [.;]?$ | [.;,]\s | \ (?:or|and)\  ) )
    | (?P<code> (?<!\S)--[a-z][a-z-]* | \b[a-z][\w.]*=[\w.:]*\w | \btorch\.\w[\w.]*(?:\([^()]*\))? )
    """,
    re.VERBOSE,
)


def cell(value: Value, kind: str) -> str:
    """A value of a table as text, in a column of this kind."""
    if isinstance(value, Cell):
        return INDENT * value.indent + cell(value.text, kind)
    if value is None:
        return ABSENT
    if kind in WORDS or isinstance(value, str):
        return plain(str(value))
    return FORMATS[kind](value)


def shorten(words: str, width: int) -> str:
    """The middle goes: names of generated kernels differ at both ends."""
    if len(words) <= width:
        return words
    tail = (width - 1) // 3
    return f"{words[: width - 1 - tail]}…{words[len(words) - tail :]}"


def marked(words: str) -> list[tuple[str, str]]:
    """(piece, mark): "command" for a shell, "code" for a key, a flag or a call, else ""."""
    found, end = [], 0
    for match in CODE.finditer(words):
        found += [(words[end : match.start()], ""), (match[0], match.lastgroup or "")]
        end = match.end()
    return [(piece, mark) for piece, mark in [*found, (words[end:], "")] if piece]
