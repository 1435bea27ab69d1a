"""Names and values as text: what the renderers share. Numbers are formatted by profiling.units."""

import re

from profiling import units
from profiling.report.document import Cell, Value
from profiling.units import ABSENT

FORMATS = {
    "ms": units.milliseconds,
    "ns": units.duration_ns,
    "bytes": units.size_bytes,
    "percent": units.percent,
    "number": units.number,
}
WORDS = ("text", "code")  # the kinds of a column that is no figure
INDENT = "\u2003"
# What names from captures could do to a terminal or a page: move the cursor, colour, rename the
# window, turn the reading direction. Escape sequences go whole; lone surrogates cannot be written.
CONTROLS = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]"
    "|\x1b[\\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\\\|\x9c)"
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f"
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def without_controls(words: str) -> str:
    """Line ends and tabs stay: code has them."""
    return CONTROLS.sub("", words)


def plain(words: str) -> str:
    """On one line, without control characters."""
    return " ".join(without_controls(words).split())


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
