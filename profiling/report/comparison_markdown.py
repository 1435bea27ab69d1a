"""A comparison as Markdown, for a pull request. Called by the verbs compare and ab."""

from typing import Any

from profiling.report.comparison_console import cell
from profiling.report.comparison_tables import all_tables, facts
from profiling.report.tables import Table

MOST_ROWS = 30


def comparison_markdown(comparison: dict[str, Any]) -> str:
    """The whole document."""
    baseline, candidate = comparison["baseline"], comparison["candidate"]
    lines = [f"# {escaped(candidate['name'])} against {escaped(baseline['name'])}", ""]
    lines += [f"**{escaped(comparison['sentence'])}**", ""]
    lines += [f"- not alike: {escaped(r)}" for r in comparison["comparability"]["reasons"]]
    lines += [f"- {escaped(what)}: {escaped(figure)}" for what, figure in facts(comparison)]
    lines += [f"- note: {escaped(note)}" for note in comparison["comparability"]["notes"]]
    for table in all_tables(comparison):
        if table.rows:
            lines += ["", *markdown_table(table)]
    return "\n".join(lines) + "\n"


def markdown_table(table: Table) -> list[str]:
    columns = [column for column in table.columns if column.brief]
    words = [column.kind in ("text", "code") for column in columns]
    lines = [f"## {escaped(table.title)}", "", escaped(table.note), ""]
    lines.append("| " + " | ".join(escaped(column.heading) for column in columns) + " |")
    lines.append("|" + "|".join("---" if word else "---:" for word in words) + "|")
    for row in table.rows[:MOST_ROWS]:
        cells = (escaped(cell(row[column.key], column.kind)) for column in columns)
        lines.append("| " + " | ".join(cells) + " |")
    if len(table.rows) > MOST_ROWS:
        lines += ["", f"and {len(table.rows) - MOST_ROWS} more"]
    return lines


def escaped(text: str) -> str:
    """Nothing in a name of a kernel or a file is Markdown or HTML."""
    for character in "\\`*_[]<>|":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())
