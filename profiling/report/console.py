"""The report in a terminal, verdict first. Called by profiling.verbs.report.

80 columns suffice, and a pipe gets the same text without colours.
"""

from typing import Any, TextIO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from profiling.report import tables, text, wording
from profiling.report.kernel_label import shorten
from profiling.report.tables import Column, Table

MOST_ROWS = 10
STYLES = {
    "compute": "blue",
    "communication": "magenta",
    "copy": "cyan",
    "launch": "red",
    "synchronization": "yellow",
    "data": "green",
    "cpu": "bright_magenta",
    "queue": "bright_black",
    "idle": "bright_black",
}
SHADES = {"compute": "█", "communication": "▓", "copy": "▒"}  # all idle time is light
BAR_WIDTH = 70
WORDS = ("text", "code")
LEAST_NAME = 8
GAP = 2  # between columns


def show(report: dict[str, Any], file: TextIO | None = None, width: int | None = None) -> None:
    """Prints the report to `file` (stdout); `width` in columns, else the terminal's."""
    console = Console(file=file, width=width, highlight=False, soft_wrap=False)
    for part in parts(report, console.width):
        console.print(part)


def parts(report: dict[str, Any], width: int) -> list[RenderableType]:
    made = [
        Text(wording.title(report), style="bold"),
        Text(wording.subtitle(report), style="dim"),
        verdict(report),
        facts(report),
        step_bar(report),
        grid(tables.phases(report), width),
        Text(wording.coverage(report)),
        grid(tables.families(report), width),
        grid(tables.gaps(report), width, most=5),
        *(grid(table, width) for table in tables.all_tables(report)),
        grid(tables.roofline(report), width),
        health(report),
    ]
    return [part for part in made if part is not None]


def verdict(report: dict[str, Any]) -> Group:
    bottleneck = report["bottleneck"]
    ranked = [e for e in bottleneck["ranked"] if e["recoverable_ms_per_step"] > 0]
    lines: list[RenderableType] = [Text(), Text(wording.headline(report), style="bold yellow")]
    for heading, entries in (
        ("", bottleneck["evidence"]),
        ("Next", bottleneck["next"]),
        ("Without it a step gains", [wording.recoverable(entry) for entry in ranked[:4]]),
        ("Cannot be told", bottleneck["cannot_tell"]),
    ):
        if entries and heading:
            lines.append(Text(heading, style="bold"))
        lines += [bullet(entry) for entry in entries]
    return Group(*lines)


def bullet(line: str) -> Grid:
    """With its further lines indented."""
    made = Grid.grid(padding=(0, 1, 0, 0))
    made.add_row(" •", Text(line))
    return made


def heading(title: str) -> Text:
    return Text(f"\n{title}", style="bold cyan")


def facts(report: dict[str, Any]) -> Group:
    made = Grid.grid(padding=(0, 2, 0, 0))
    for what, figure in wording.facts(report):
        made.add_row(Text(what), Text(figure, style="bold"))
    step = report["window"]["step_ms"]
    told = ", ".join(
        f"{key} {text.milliseconds(step[key])}" for key in ("min", "mean", "p95", "max")
    )
    made.add_row(Text("step, ms"), Text(told))
    return Group(Text(), made)


def step_bar(report: dict[str, Any]) -> RenderableType:
    """The mean step as a bar, and its parts in words."""
    shares = wording.step_parts(report)
    title = heading("The mean step")
    if shares is None:
        return Group(title, Text("Not captured: no GPU activity."))
    whole = sum(ms for _, ms in shares)
    bar, done = Text(), 0.0
    legend = Grid.grid(padding=(0, 2, 0, 0))
    legend.add_column()
    legend.add_column(justify="right")
    legend.add_column(justify="right")
    for name, ms in shares:
        shade = SHADES.get(name, "░")
        begin, done = round(done / whole * BAR_WIDTH), done + ms
        bar.append(shade * (round(done / whole * BAR_WIDTH) - begin), style=STYLES[name])
        swatch = Text(f"{shade} ", style=STYLES[name]).append(wording.PARTS[name], style="default")
        legend.add_row(swatch, f"{text.milliseconds(ms)} ms", wording.share(ms, whole))
    legend.add_row("  the step", f"{text.milliseconds(whole)} ms", "100.0 %", style="bold")
    return Group(title, bar, legend)


def grid(table: Table, width: int, most: int = MOST_ROWS) -> RenderableType | None:
    """The brief columns of the first rows, within `width`; None for what was not captured.

    Columns that do not fit are left out, the last ones first, and named below.
    """
    if not table.rows:
        return None
    columns = [column for column in table.columns if column.brief]
    left_out: list[str] = []
    while sum(least(columns, table.rows[:most])) > width and any(map(is_figure, columns)):
        last = max(index for index, column in enumerate(columns) if is_figure(column))
        left_out.insert(0, columns.pop(last).heading)
    rows = [[cell(row, column) for column in columns] for row in table.rows[:most]]
    made = Grid(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column, room in zip(columns, rooms(columns, rows, width), strict=True):
        justify = "left" if column.kind in WORDS else "right"
        made.add_column(column.heading, justify=justify, no_wrap=True, min_width=room)
    for row in rows:
        fitting = zip(row, made.columns, strict=True)
        made.add_row(*(Text(shorten(words, column.min_width)) for words, column in fitting))
    more = len(table.rows) - most
    rest = [Text(f"… {more} more: --json or --html has them", style="dim")] if more > 0 else []
    if left_out:
        rest.append(Text(f"a wider terminal also shows {', '.join(left_out)}", style="dim"))
    return Group(heading(table.title), Text(table.note, style="dim"), made, *rest)


def is_figure(column: Column) -> bool:
    return column.kind not in WORDS


def widths(columns: list[Column], rows: list[list[str]]) -> list[int]:
    """Characters that each column would need."""
    return [
        max(len(words) for words in (column.heading, *(row[index] for row in rows)))
        for index, column in enumerate(columns)
    ]


def least(columns: list[Column], rows: list[tables.Row]) -> list[int]:
    """The same with the names as short as they get, and with the gaps between columns."""
    needed = widths(columns, [[cell(row, column) for column in columns] for row in rows])
    return [
        GAP + (min(room, LEAST_NAME) if is_name(columns, index) else room)
        for index, room in enumerate(needed)
    ]


def is_name(columns: list[Column], index: int) -> bool:
    """Whether the column may be shortened."""
    return columns[index].kind == "code" or index == 0


def rooms(columns: list[Column], rows: list[list[str]], width: int) -> list[int]:
    """Characters for each column: what it needs, but names share what the rest leaves them."""
    needed = widths(columns, rows)
    names = [i for i in range(len(columns)) if is_name(columns, i)]
    left = width - GAP * len(columns) - 1 - sum(needed) + sum(needed[i] for i in names)
    for place, i in enumerate(sorted(names, key=lambda i: needed[i])):
        needed[i] = min(needed[i], max(LEAST_NAME, left // (len(names) - place)))
        left -= needed[i]
    return needed


def cell(row: tables.Row, column: Column) -> str:
    value = row[column.key]
    if column.kind in WORDS:
        return text.ABSENT if value is None else str(value)
    return text.format_as(value, column.kind)


def health(report: dict[str, Any]) -> Group:
    known = report["health"]
    lines: list[RenderableType] = [heading("The capture's health")]
    if known["overhead_percent"] is not None:
        lines.append(Text(f"capturing made a step {known['overhead_percent']:.1f} % longer"))
    for finding in known["findings"]:
        style = "yellow" if finding["level"] == "warning" else "dim"
        cure = f" — {finding['cure']}" if finding["cure"] else ""
        lines.append(Text(f"{finding['level']}: {finding['what']}{cure}", style=style))
    if len(lines) == 1:
        lines.append(Text("nothing was found that spoils it"))
    return Group(*lines)
