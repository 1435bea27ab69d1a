"""Names and values as text, for all renderers. Numbers are formatted by profiling.shared.units."""

import re
from collections import Counter
from collections.abc import Sequence

from cli.plain import plain
from profiling.report.document import Cell, Value
from profiling.shared import units
from profiling.shared.units import ABSENT

FORMATS = {
    "ms": units.milliseconds,
    "ns": units.duration_ns,
    "bytes": units.size_bytes,
    "binary": units.binary_bytes,
    "binary_change": units.change_binary,
    "percent": units.percent,
    "ms_change": units.change_ms,
    "percent_change": units.change_percent,
    "number": units.number,
    "precise": units.precise,
    "times": units.times,
    "seconds": units.seconds,
    "loss": "{:.4f}".format,
}
PIECE = re.compile(r"[^\W_]+|[\W_]+")  # a word of a name, or what separates two
PLACE = re.compile(r"(?P<place>\S+:\d+)(?P<function> \(.*\))")
LEAST_FUNCTION = 8  # characters to which a function behind FILE:LINE may be shortened
WORDS = ("text", "code")  # kinds of a column without figures
INDENT = "\u2003"
CODE = re.compile(
    r"""
    (?P<command> \b(?: python\ -m\ profiling | nsys\ profile | nvidia-smi )\b
        .*? (?= [.;]?$ | [.;,]\s | \ (?:or|and)\  ) )
    | (?P<code> (?<!\S)--[a-z][a-z-]* (?:\ (?:\d+|[A-Z]+)\b)?
        | \b[a-z][\w.]*=[\w.:]*\w | \btorch\.\w[\w.]*(?:\([^()]*\))? )
    """,
    re.VERBOSE,
)


def cell(value: Value, kind: str) -> str:
    """The text of a table's value in a column of this kind."""
    if isinstance(value, Cell):
        words = cell(value.text, kind)
        return INDENT * value.indent + (shorten(words, value.most) if value.most else words)
    if value is None:
        return ABSENT
    if kind in WORDS or isinstance(value, str):
        return plain(str(value))
    return FORMATS[kind](value)


def shorten(words: str, width: int) -> str:
    """`words` cut to `width` characters in the middle: generated names differ at both ends.

    Of FILE:LINE (FUNCTION) the function is cut first.
    """
    if len(words) <= width:
        return words
    if found := PLACE.fullmatch(words):
        words, room = found["place"], width - len(found["place"])
        if room >= 0:
            return words + (shorten(found["function"], room) if room >= LEAST_FUNCTION else "")
    tail = (width - 1) // 3
    return f"{words[: width - 1 - tail]}…{words[len(words) - tail :]}"


def shorten_apart(names: Sequence[str], width: int) -> list[str]:
    """The names cut to `width` characters; those that would then read the same keep their
    differences."""
    cut = [shorten(name, width) for name in names]
    alike: dict[str, list[str]] = {}
    for short, name in zip(cut, names, strict=True):
        alike.setdefault(short, [])
        if name not in alike[short]:
            alike[short].append(name)
    return [
        keep_differences(name, alike[short], width) if len(alike[short]) > 1 else short
        for short, name in zip(cut, names, strict=True)
    ]


def keep_differences(name: str, others: Sequence[str], width: int) -> str:
    """The name cut to `width` characters.

    It keeps its first word, then the pieces that fewest of the `others` have, then those on the
    left.
    """
    pieces = PIECE.findall(name)
    shared = Counter(piece for other in others for piece in {*PIECE.findall(other)})
    order = sorted(range(1, len(pieces)), key=lambda index: (shared[pieces[index]], index))
    kept: set[int] = set()
    for index in [0, *order]:
        belongs = pieces[index].isalnum() or index - 1 in kept  # a separator alone says nothing
        if belongs and len(join_pieces(pieces, kept | {index})) <= width:
            kept.add(index)
    return join_pieces(pieces, kept)


def join_pieces(pieces: Sequence[str], kept: set[int]) -> str:
    """The pieces with these numbers, and an ellipsis for each run of the others."""
    words = ""
    for index, piece in enumerate(pieces):
        words += piece if index in kept else "" if words.endswith("…") else "…"
    return words


def split_code(words: str) -> list[tuple[str, str]]:
    """The pieces of a text as (piece, mark).

    The mark is "command" for a shell command, "code" for a key, a flag or a call, else "".
    """
    pieces, end = [], 0
    for match in CODE.finditer(words):
        pieces += [(words[end : match.start()], ""), (match[0], match.lastgroup or "")]
        end = match.end()
    return [(piece, mark) for piece, mark in [*pieces, (words[end:], "")] if piece]
