"""What a verb has to say, as blocks: made once, rendered for terminal, Markdown and page.

A Document is built by a module of profiling.report for each output (a capture's report, a
comparison, an experiment, the lab's tables) and rendered by profiling.report.renderers, which alone
know widths, escapes and number formats. Texts here are plain: names from captures go in as they are
and lose control characters and markup at the renderer's edge.
"""

from dataclasses import dataclass, field
from typing import Literal

from profiling.causes import Part

Place = Literal["terminal", "markdown", "page"]
EVERYWHERE: tuple[Place, ...] = ("terminal", "markdown", "page")
Tone = Literal["plain", "note", "warning", "good", "bad"]
Figure = dict[str, object]  # what plotly draws: {"data": [...], "layout": {...}}


@dataclass(frozen=True)
class Said:
    """A paragraph."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Facts:
    """(what, figure) pairs. Cards: the few that everyone asks for first."""

    pairs: list[tuple[str, str]]
    cards: bool = False


@dataclass(frozen=True)
class Bullets:
    heading: str | None
    lines: list[str]


@dataclass(frozen=True)
class Finding:
    """Something that may be wrong, with its cure."""

    level: Literal["note", "warning"]
    what: str
    cure: str | None = None


@dataclass(frozen=True)
class StepBar:
    """The mean step as a bar of its parts, which add up to it."""

    parts: list[tuple[Part, float]]  # ms


@dataclass(frozen=True)
class Chart:
    """On a page alone."""

    name: str
    label: str  # for those who cannot see it
    figure: Figure
    height: int = 320
    zoom: bool = False


@dataclass(frozen=True)
class Column:
    heading: str
    key: str
    kind: str  # text, code, or one of profiling.report.text.FORMATS
    brief: bool = False  # shown where room is short: in a terminal, in a pull request


@dataclass(frozen=True)
class Cell:
    """A text with more behind it: the whole of a name, and links to its sources."""

    text: str | None
    whole: str | None = None
    links: list[tuple[str, str]] = field(default_factory=list)  # (words, address)


Value = str | int | float | bool | None | Cell
Row = dict[str, Value]


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    note: str
    columns: list[Column]
    rows: list[Row] | None  # None: not captured
    most: int | None = None  # rows in a terminal and in Markdown; None: the renderer's choice
    limit: int = 12  # rows on a page before "show all"
    folded: bool = False  # in Markdown behind a summary


@dataclass(frozen=True)
class Source:
    """A text of code behind its name, on a page alone."""

    name: str
    note: str
    code: str
    anchor: str


Block = Said | Facts | Bullets | Finding | StepBar | Chart | Table | Source


@dataclass(frozen=True)
class Section:
    name: str  # its anchor on a page
    title: str
    blocks: list[Block]
    short: str | None = None  # in the page's navigation
    lead: str = ""
    places: tuple[Place, ...] = EVERYWHERE
    beside: bool = False  # on a page the blocks stand side by side where there is room


@dataclass(frozen=True)
class Document:
    title: str
    subtitle: str
    verdict: str | None  # the answer, before all else
    tone: Tone
    verdict_blocks: list[Block]
    sections: list[Section]
