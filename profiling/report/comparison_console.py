"""A comparison on the terminal. Called by the verbs compare and ab."""

from typing import Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from profiling.report import text
from profiling.report.comparison_tables import all_tables, facts
from profiling.report.tables import Table

COLOURS = {"faster": "bold green", "slower": "bold red"}
MOST_ROWS = 12


def print_comparison(comparison: dict[str, Any], console: Console) -> None:
    """The verdict first, then what it rests on."""
    said = Text(comparison["sentence"], style=COLOURS.get(comparison["verdict"], "bold"))
    console.print(said, soft_wrap=True)
    for reason in comparison["comparability"]["reasons"]:
        console.print(Text(f"not alike: {reason}", style="yellow"), soft_wrap=True)
    for what, figure in facts(comparison):
        console.print(Text(f"  {what:26}{figure}"), soft_wrap=True)
    for note in comparison["comparability"]["notes"]:
        console.print(Text(f"  note: {note}", style="dim"), soft_wrap=True)
    for table in all_tables(comparison):
        if table.rows:
            print_table(table, console)


def print_table(table: Table, console: Console) -> None:
    """Its brief columns, the first rows; the page and the JSON have the rest."""
    columns = [column for column in table.columns if column.brief]
    drawn = RichTable(title=table.title, title_justify="left", title_style="bold", box=None)
    for column in columns:
        words = column.kind in ("text", "code")
        side = "left" if words else "right"
        drawn.add_column(Text(column.heading), justify=side, no_wrap=not words)
    for row in table.rows[:MOST_ROWS]:
        drawn.add_row(*(Text(cell(row[column.key], column.kind)) for column in columns))
    console.print()
    console.print(drawn)
    if len(table.rows) > MOST_ROWS:
        console.print(f"  and {len(table.rows) - MOST_ROWS} more: see --html or --json")


def cell(value: Any, kind: str) -> str:
    if kind in ("text", "code"):
        return text.ABSENT if value is None else str(value)
    return text.format_as(value, kind)
