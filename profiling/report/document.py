"""The output of a verb as blocks: built once, rendered for terminal, Markdown and page.

Each kind of output (a capture's report, a comparison, an experiment, the lab's tables) has a module
of profiling.report that builds its Document. The modules of profiling.report.renderers render it,
and they alone know widths, escapes and number formats. Texts here are plain: names from captures go
in unchanged, and the renderer removes control characters and markup.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from profiling.shared.causes import Part

Place = Literal["terminal", "markdown", "page"]
Places = tuple[Place, ...]
EVERYWHERE: Places = ("terminal", "markdown", "page")
TERMINAL: Places = ("terminal",)
MARKDOWN: Places = ("markdown",)
TEXT: Places = ("terminal", "markdown")
PAGE: Places = ("page",)
Tone = Literal["plain", "note", "warning", "good", "bad"]
Figure = dict[str, object]  # plotly's input: {"data": [...], "layout": {...}}


@dataclass(frozen=True, kw_only=True)
class Placed:
    places: Places = EVERYWHERE  # renderers that show the block
    # anchors on a page of its rows, of its lines or of itself, by the names of an agent's answers
    ids: Sequence[str] = ()


@dataclass(frozen=True)
class Verdict(Placed):
    """The answer. On a page its `headline`, if given, is that, and `under_headline` follows."""

    text: str
    tone: Tone = "plain"
    headline: str | None = None
    under_headline: str = ""


@dataclass(frozen=True)
class Paragraph(Placed):
    """A paragraph."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Facts(Placed):
    """Figures with their names."""

    pairs: list[tuple[str, str]]  # (name, figure)
    cards: bool = False  # in the verdict: the few figures that everyone asks for first
    heading: str | None = None


@dataclass(frozen=True)
class Bullets(Placed):
    heading: str | None
    lines: list[str]
    folded: bool = False  # on a page behind the heading, with the number of lines


@dataclass(frozen=True)
class Finding(Placed):
    """Something that may be wrong, with its cure."""

    level: Literal["note", "warning"]
    what: str
    cure: str | None = None
    word: str | None = None  # printed in place of the level


@dataclass(frozen=True)
class StepBar(Placed):
    """The typical step as a bar of its parts, which add up to it. A page shows a Chart instead."""

    parts: list[tuple[Part, float]]  # (part, ms)
    most: int | None = None  # number of parts in the legend, the longest ones; None: all
    whole: str = "the typical step"  # what the parts add up to
    places: Places = field(default=TEXT, kw_only=True)


@dataclass(frozen=True)
class Chart(Placed):
    """A figure that plotly draws; on a page alone."""

    name: str
    label: str  # description; a screen reader hears it, followed by the chart's numbers
    figure: Figure | None
    height: int = 320  # pixels
    title: str | None = None
    absent: str | None = None  # text in place of a missing figure; None: the chart is left out
    numbers: bool = True  # whether a table of its numbers can be opened below it
    places: Places = field(default=PAGE, kw_only=True)


@dataclass(frozen=True)
class Timeline(Placed):
    """Events on rows, to zoom and search; on a page alone."""

    name: str
    label: str  # description for screen readers
    data: Mapping[str, object] | None  # as templates/timeline_data.js reads it
    absent: str  # text in place of missing data
    places: Places = field(default=PAGE, kw_only=True)


@dataclass(frozen=True)
class Cell:
    """A table cell's text with more behind it, such as a full name and links to its sources."""

    text: str | None
    whole: str | None = None  # the unshortened text
    links: Sequence[tuple[str, str]] = ()  # (words, address)
    indent: int = 0  # levels
    most: int | None = None  # characters of `text` that fit; a terminal has its own width


Value = str | int | float | bool | None | Cell


@dataclass(frozen=True)
class Column:
    heading: str
    value: str | Callable[[Any], Value]  # name of a field of the row, or a function of the row
    kind: str  # text, code, or one of profiling.report.text.FORMATS
    brief: bool = False  # shown where room is short: in a terminal, in a pull request
    address: Callable[[Any], str | None] | None = None  # link target of a row's figure on a page

    def value_of(self, row: object) -> Value:
        return self.value(row) if callable(self.value) else getattr(row, self.value)


@dataclass(frozen=True)
class Table(Placed):
    """A table of records. A page prints its title and note unless they are the section's."""

    name: str
    title: str
    note: str
    columns: list[Column]
    rows: Sequence[object] | None  # records of one kind; a table without rows is left out
    most: int = 10  # rows in a terminal
    limit: int = 12  # rows on a page until "all" is clicked
    folded: bool = False  # in Markdown collapsed to a summary


@dataclass(frozen=True)
class Source(Placed):
    """Source code that unfolds behind its name."""

    name: str
    note: str
    code: str
    anchor: str
    lines: list[str] = field(default_factory=list)  # remarks about the code
    places: Places = field(default=PAGE, kw_only=True)


@dataclass(frozen=True)
class SideBySide(Placed):
    """Blocks that a page shows side by side if there is room; elsewhere they follow each other."""

    blocks: "Sequence[Block]"


Block = (
    Verdict
    | Paragraph
    | Facts
    | Bullets
    | Finding
    | StepBar
    | Chart
    | Timeline
    | Table
    | Source
    | SideBySide
)


@dataclass(frozen=True)
class Section(Placed):
    name: str  # anchor on a page
    title: str
    blocks: Sequence[Block]
    short: str | None = None  # title in the page's navigation
    lead: str = ""  # text below the title on a page; default: note of the table with that title


@dataclass(frozen=True)
class Document:
    title: str
    notes: list[str]  # lines under the title
    verdict: Sequence[Block]  # the answer, before the sections
    sections: Sequence[Section]
    captures: str | None = None  # words of a shell that name them in their folder
    step_ms: float | None = None  # the step time that the verdict is about


def row_ids(kind: str, rows: Sequence[object] | None) -> list[str]:
    """Anchors of rows: kernel/0, kernel/1, ..."""
    return [f"{kind}/{number}" for number in range(len(rows or []))]


def is_shown(block: Block, place: Place) -> bool:
    """Whether the block belongs in this place and has something to show."""
    match block:
        case SideBySide():
            return place in block.places and any(is_shown(inner, place) for inner in block.blocks)
        case Chart(figure=None, absent=None) | Bullets(lines=[]) | Table(rows=None | []):
            return False
    return place in block.places


def shown_blocks(blocks: Iterable[Block], place: Place) -> Iterator[Block]:
    """Yield the blocks to show in this place; those side by side follow each other."""
    for block in blocks:
        if isinstance(block, SideBySide) and place in block.places:
            yield from shown_blocks(block.blocks, place)
        elif is_shown(block, place):
            yield block


def text_sections(document: Document, place: Place) -> Iterator[tuple[str | None, list[Block]]]:
    """Yield (title, blocks) of each section that has something to show in this place.

    The title is None where the first block has its own, as a table and the step's bar do.
    """
    for section in document.sections:
        blocks = list(shown_blocks(section.blocks, place))
        if place in section.places and blocks:
            own = isinstance(blocks[0], (Table, StepBar))
            yield None if own else section.title, blocks
