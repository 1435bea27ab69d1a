"""Names and values as text: what the renderers share. Numbers are formatted by profiling.units."""

from cli.plain import plain
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
