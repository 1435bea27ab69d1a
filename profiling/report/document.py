"""What a verb has to say, as blocks: made once, rendered for terminal, Markdown and page.

A Document is built by a module of profiling.report for each output (a capture's report, a
comparison, an experiment, the lab's tables) and rendered by profiling.report.renderers, which alone
know widths, escapes and number formats. Texts here are plain: names from captures go in as they are
and lose control characters and markup at the renderer's edge.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from profiling.causes import Part

Place = Literal["terminal", "markdown", "page"]
Places = tuple[Place, ...]
EVERYWHERE: Places = ("terminal", "markdown", "page")
TERMINAL: Places = ("terminal",)
MARKDOWN: Places = ("markdown",)
TEXT: Places = ("terminal", "markdown")
PAGE: Places = ("page",)
Tone = Literal["plain", "note", "warning", "good", "bad"]
Figure = dict[str, object]  # what plotly draws: {"data": [...], "layout": {...}}


@dataclass(frozen=True, kw_only=True)
class Placed:
    places: Places = EVERYWHERE


@dataclass(frozen=True)
class Verdict(Placed):
    """The answer. With a `word` for it, that is the headline on a page and the text follows."""

    text: str
    tone: Tone = "plain"
    word: str | None = None


@dataclass(frozen=True)
class Said(Placed):
    """A paragraph."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Facts(Placed):
    """(what, figure) pairs. Cards: the few that everyone asks for first, in the verdict."""

    pairs: list[tuple[str, str]]
    cards: bool = False
    heading: str | None = None


@dataclass(frozen=True)
class Bullets(Placed):
    heading: str | None
    lines: list[str]


@dataclass(frozen=True)
class Finding(Placed):
    """Something that may be wrong, with its cure. `word`: what it is called instead of its level"""

    level: Literal["note", "warning"]
    what: str
    cure: str | None = None
    word: str | None = None


@dataclass(frozen=True)
class StepBar(Placed):
    """The mean step as a bar of its parts, which add up to it. A page has a Chart of them."""

    parts: list[tuple[Part, float]]  # ms
    most: int | None = None  # so many are told one by one, the longest; None: all
    places: Places = field(default=TEXT, kw_only=True)


@dataclass(frozen=True)
class Chart(Placed):
    """On a page alone."""

    name: str
    label: str  # what it shows; a page tells its figures behind it to who cannot see it
    figure: Figure | None
    height: int = 320
    title: str | None = None
    absent: str | None = None  # said where there is no figure; None: nothing is
    zoom: bool = False
    numbers: bool = True  # in a table below it
    places: Places = field(default=PAGE, kw_only=True)


@dataclass(frozen=True)
class Timeline(Placed):
    """Events on rows, to zoom and search: on a page alone."""

    name: str
    label: str  # for those who cannot see it
    data: Mapping[str, object] | None  # as templates/timeline_data.js reads it
    absent: str  # said where there is none
    places: Places = field(default=PAGE, kw_only=True)


@dataclass(frozen=True)
class Cell:
    """A text with more behind it: the whole of a name, and links to its sources."""

    text: str | None
    whole: str | None = None
    links: Sequence[tuple[str, str]] = ()  # (words, address)
    indent: int = 0


Value = str | int | float | bool | None | Cell


@dataclass(frozen=True)
class Column:
    heading: str
    value: str | Callable[[Any], Value]  # a field of each row, or what is made of the row
    kind: str  # text, code, or one of profiling.report.text.FORMATS
    brief: bool = False  # shown where room is short: in a terminal, in a pull request
    address: Callable[[Any], str | None] | None = None  # where a row's figure leads on a page

    def of(self, row: object) -> Value:
        return self.value(row) if callable(self.value) else getattr(row, self.value)


@dataclass(frozen=True)
class Table(Placed):
    """On a page its title and note stand over it unless they are the section's."""

    name: str
    title: str
    note: str
    columns: list[Column]
    rows: Sequence[object] | None  # records of any kind, alike; without any it is left out
    most: int = 10  # rows in a terminal
    limit: int = 12  # rows on a page before "all"
    folded: bool = False  # in Markdown behind a summary


@dataclass(frozen=True)
class Source(Placed):
    """A text of code behind its name."""

    name: str
    note: str
    code: str
    anchor: str
    lines: list[str] = field(default_factory=list)  # about it
    places: Places = field(default=PAGE, kw_only=True)


@dataclass(frozen=True)
class Beside(Placed):
    """On a page side by side where there is room, elsewhere one after the other."""

    blocks: "Sequence[Block]"


Block = (
    Verdict
    | Said
    | Facts
    | Bullets
    | Finding
    | StepBar
    | Chart
    | Timeline
    | Table
    | Source
    | Beside
)


@dataclass(frozen=True)
class Section(Placed):
    name: str  # its anchor on a page
    title: str
    blocks: Sequence[Block]
    short: str | None = None  # in the page's navigation
    lead: str = ""  # on a page; without one the note of the table that has the section's title


@dataclass(frozen=True)
class Document:
    title: str
    notes: list[str]  # under the title
    verdict: Sequence[Block]  # the answer, before all else
    sections: Sequence[Section]


def is_shown(block: Block, place: Place) -> bool:
    """Whether it belongs there and has something to show."""
    match block:
        case Beside():
            return place in block.places and any(is_shown(inner, place) for inner in block.blocks)
        case Chart(figure=None, absent=None) | Bullets(lines=[]) | Table(rows=None | []):
            return False
    return place in block.places


def shown(blocks: Iterable[Block], place: Place) -> Iterator[Block]:
    """The blocks that are shown there, those beside each other one after the other."""
    for block in blocks:
        if isinstance(block, Beside) and place in block.places:
            yield from shown(block.blocks, place)
        elif is_shown(block, place):
            yield block


def in_text(document: Document, place: Place) -> Iterator[tuple[str | None, list[Block]]]:
    """(title, blocks) of each section that has something to show in this place.

    The title is None where the first block has its own: a table, the bar of the step.
    """
    for section in document.sections:
        blocks = list(shown(section.blocks, place))
        if place in section.places and blocks:
            own = isinstance(blocks[0], (Table, StepBar))
            yield None if own else section.title, blocks
