"""Names and values as text, for all renderers. Numbers are formatted by profiling.shared.units."""

import re

from cli.plain import plain
from profiling.report.document import Cell, Value
from profiling.shared import units
from profiling.shared.units import ABSENT

FORMATS = {
    "ms": units.milliseconds,
    "ns": units.duration_ns,
    "bytes": units.size_bytes,
    "percent": units.percent,
    "ms_change": units.change_ms,
    "percent_change": units.change_percent,
    "number": units.number,
}
WORDS = ("text", "code")  # kinds of a column without figures
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
    """The text of a table's value in a column of this kind."""
    if isinstance(value, Cell):
        return INDENT * value.indent + cell(value.text, kind)
    if value is None:
        return ABSENT
    if kind in WORDS or isinstance(value, str):
        return plain(str(value))
    return FORMATS[kind](value)


def shorten(words: str, width: int) -> str:
    """`words` cut to `width` characters in the middle: generated names differ at both ends."""
    if len(words) <= width:
        return words
    tail = (width - 1) // 3
    return f"{words[: width - 1 - tail]}…{words[len(words) - tail :]}"


def split_code(words: str) -> list[tuple[str, str]]:
    """The pieces of a text as (piece, mark).

    The mark is "command" for a shell command, "code" for a key, a flag or a call, else "".
    """
    pieces, end = [], 0
    for match in CODE.finditer(words):
        pieces += [(words[end : match.start()], ""), (match[0], match.lastgroup or "")]
        end = match.end()
    return [(piece, mark) for piece, mark in [*pieces, (words[end:], "")] if piece]
