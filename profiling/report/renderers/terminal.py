"""Prints a Document. 80 columns suffice, and a pipe gets the same text without colours."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from textwrap import wrap

from rich import box
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.table import Table as Grid
from rich.text import Text

from cli.plain import plain
from cli.program import as_called
from profiling.report import text
from profiling.report.document import (
    Block,
    Bullets,
    Cell,
    Column,
    Document,
    Facts,
    Finding,
    Paragraph,
    StepBar,
    Table,
    Tone,
    Value,
    Verdict,
    shown_blocks,
    text_sections,
)
from profiling.report.text import WORDS, shorten, shorten_apart
from profiling.shared.units import milliseconds, percent

TONES: dict[Tone, str] = {
    "plain": "",
    "note": "dim",
    "warning": "yellow",
    "good": "green",
    "bad": "red",
}
BAR_WIDTH = 70
LEAST_NAME, LEAST_HEADING = 8, 12  # characters to which names and headings may be shortened
GAP = 2  # blanks between columns


def show(document: Document, console: Console) -> None:
    print_trimmed(styled_text(document.title, "bold"), console)
    for line in document.notes:
        print_trimmed(styled_text(line, "dim"), console)
    show_blocks(document.verdict, console)
    for title, blocks in text_sections(document, "terminal"):
        if title:
            print_trimmed(heading(title), console)
        show_blocks(blocks, console)


def show_answer(document: Document, console: Console) -> None:
    """Prints the verdict again at the end, because readers see the last lines first."""
    for block in document.verdict:
        if isinstance(block, Verdict):
            print_trimmed(answer(block), console)


def show_blocks(blocks: Iterable[Block], console: Console) -> None:
    """Prints blocks, which need not be a whole Document: a verb may print table by table."""
    for block in shown_blocks(blocks, "terminal"):
        print_trimmed(renderable(block, console.width), console)


def print_trimmed(content: RenderableType, console: Console) -> None:
    """Prints the content without the blanks that tables and wrapped lines have at their ends."""
    for line in console.render_lines(content, pad=False):
        while line and not line[-1].text.rstrip():
            line.pop()
        if line:
            line[-1] = Segment(line[-1].text.rstrip(), line[-1].style)
        console.print(Segments([*line, Segment.line()]), end="")


def styled_text(words: str, style: str = "") -> Text:
    return Text(as_called(plain(words)), style)


def heading(title: str) -> Text:
    return Text(f"\n{plain(title)}", "bold cyan")


def renderable(block: Block, width: int) -> RenderableType:
    """The block for rich, at most `width` columns wide. Raises TypeError for one of pages alone."""
    match block:
        case Verdict():
            return Group(Text(), answer(block))
        case Paragraph():
            return styled_text(block.text, TONES[block.tone])
        case Facts():
            return facts(block)
        case Bullets():
            title = [styled_text(block.heading, "bold")] if block.heading else []
            return Group(*title, *map(bullet, block.lines))
        case Finding():
            style = "yellow" if block.level == "warning" else "dim"
            cure = f" — {block.cure}" if block.cure else ""
            return styled_text(f"{block.word or block.level}: {block.what}{cure}", style)
        case StepBar():
            return step_bar(block, min(width, BAR_WIDTH))
        case Table():
            return grid(block, width)
    raise TypeError(f"{block}: not for a terminal")


def answer(block: Verdict) -> Text:
    return styled_text(block.text, f"bold {TONES[block.tone]}")


def bullet(line: str) -> Grid:
    """A line of a list, whose wrapped lines are indented."""
    made = Grid.grid(padding=(0, 1, 0, 0))
    made.add_row(" •", styled_text(line))
    return made


def facts(block: Facts) -> Group:
    made = Grid.grid(padding=(0, 2, 0, 0))
    for what, figure in block.pairs:
        made.add_row(styled_text(what), styled_text(figure, "bold"))
    return Group(heading(block.heading) if block.heading else Text(), made)


def step_bar(block: StepBar, width: int) -> Group:
    """The step as a bar, and its parts in words."""
    title = heading(block.whole[:1].upper() + block.whole[1:])
    if not block.parts:
        return Group(title, Text("Not captured: no GPU activity."))
    whole_ms = sum(ms for _, ms in block.parts)
    bar, done_ms = Text(), 0.0
    legend = Grid.grid(padding=(0, 2, 0, 0))
    legend.add_column()
    legend.add_column(justify="right")
    legend.add_column(justify="right")
    listed = sorted(block.parts, key=lambda each: -each[1])[: block.most]
    for part, ms in block.parts:
        begin, done_ms = round(done_ms / whole_ms * width), done_ms + ms
        ink = part.colours
        bar.append(ink.shade * (round(done_ms / whole_ms * width) - begin), style=ink.terminal)
        swatch = Text(f"{ink.shade} ", style=ink.terminal).append(part.title, style="default")
        if (part, ms) in listed:
            legend.add_row(swatch, f"{milliseconds(ms)} ms", percent(100 * ms / whole_ms))
    if len(listed) < len(block.parts):
        rest_ms = whole_ms - sum(ms for _, ms in listed)
        share = percent(100 * rest_ms / whole_ms)
        legend.add_row("  everything else", f"{milliseconds(rest_ms)} ms", share)
    legend.add_row(
        f"  {block.whole.replace('typical ', '')}",
        f"{milliseconds(whole_ms)} ms",
        "100.0 %",
        style="bold",
    )
    return Group(title, bar, legend)


def grid(table: Table, width: int) -> Group:
    """The table with its brief columns and first rows.

    Columns of figures that do not fit are left out, the last ones first, and named below. Words in
    the first column are wrapped, names are cut.
    """
    rows = table.rows or []
    columns = [column for column in table.columns if column.brief]
    left_out: list[str] = []
    while sum(rooms := widths(columns, table, width)) > width and any(map(is_figure, columns)):
        last = max(index for index, column in enumerate(columns) if is_figure(column))
        left_out.insert(0, plain(columns.pop(last).heading))
    made = Grid(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for column, room in zip(columns, rooms, strict=True):
        title = Text(shorten(plain(column.heading), room - GAP))
        side: JustifyMethod = "right" if is_figure(column) else "left"
        made.add_column(title, justify=side, no_wrap=True, min_width=room - GAP)
    cells = zip(*(cells_of(row, columns) for row in rows[: table.most]), strict=True)
    wraps = [index == 0 and column.kind == "text" for index, column in enumerate(columns)]
    cut = [
        within(of, room - GAP, whole) for of, room, whole in zip(cells, rooms, wraps, strict=True)
    ]
    for row_of_cells in zip(*cut, strict=True):
        made.add_row(*map(Text, row_of_cells))
    more = len(rows) - table.most
    rest = [Text(f"… {more} more: use --json or --html to see all", "dim")] if more > 0 else []
    if left_out:
        rest.append(Text(f"a wider terminal also shows {', '.join(left_out)}", "dim"))
    note = [styled_text(table.note, "dim")] if table.note else []
    return Group(heading(table.title), *note, Padding(made, (0, 0, 0, 1)), *rest)


def within(cells: Sequence[str], width: int, wraps: bool) -> list[str]:
    """The cells of a column in `width` characters: cut, or wrapped if no word is longer."""
    if wraps and all(len(word) <= width for cell in cells for word in cell.split()):
        return ["\n".join(wrap(cell, width)) if len(cell) > width else cell for cell in cells]
    return shorten_apart(cells, width)


def is_figure(column: Column) -> bool:
    return column.kind not in WORDS


def cells_of(row: object, columns: list[Column]) -> list[str]:
    return [text.cell(uncut(column.value_of(row)), column.kind) for column in columns]


def uncut(value: Value) -> Value:
    return replace(value, most=None) if isinstance(value, Cell) else value


def widths(columns: list[Column], table: Table, width: int) -> list[int]:
    """Characters for each column with the gap behind it; more than `width` if they do not fit.

    Headings and names (code, and the first column) may be shortened; they share the remaining room
    equally.
    """
    rows = [cells_of(row, columns) for row in (table.rows or [])[: table.most]]
    rooms, wanted = [], []
    for index, column in enumerate(columns):
        title, cell = len(plain(column.heading)), max(len(row[index]) for row in rows)
        is_name = column.kind == "code" or index == 0
        least = max(min(title, LEAST_HEADING), min(cell, LEAST_NAME) if is_name else cell)
        rooms.append(least + GAP)
        wanted.append(max(title, cell) - least)
    left = max(0, width - 1 - sum(rooms))
    elastic = sorted((index for index, more in enumerate(wanted) if more), key=wanted.__getitem__)
    for place, index in enumerate(elastic):
        more = min(wanted[index], left // (len(elastic) - place))
        rooms[index] += more
        left -= more
    return rooms
