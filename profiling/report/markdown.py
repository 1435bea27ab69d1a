"""The report as Markdown, short enough for a pull request. Called by profiling.verbs.report."""

import re
from typing import Any

from profiling.report import tables, text, wording
from profiling.report.console import cell
from profiling.report.tables import Column, Table

MOST_ROWS = 10
SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~&])")


def markdown(report: dict[str, Any]) -> str:
    bottleneck = report["bottleneck"]
    lines = [
        f"## {escaped(wording.headline(report))}",
        "",
        f"{escaped(wording.title(report))}: {escaped(wording.subtitle(report))}",
        "",
        *bullets(bottleneck["evidence"]),
        *(f"- **next:** {escaped(line)}" for line in bottleneck["next"]),
        *(f"- **cannot be told:** {escaped(line)}" for line in bottleneck["cannot_tell"]),
        *(warning(finding) for finding in report["health"]["findings"]),
        "",
        *facts(report),
        *step(report),
        *section(tables.phases(report)),
        escaped(wording.coverage(report)),
        "",
        *section(tables.families(report)),
        *folded(tables.kernels(report)),
        *folded(tables.gaps(report)),
        *folded(tables.api(report)),
        *folded(tables.memops(report)),
        *folded(tables.metrics(report)),
        *folded(tables.roofline(report)),
    ]
    return "\n".join(lines).rstrip() + "\n"


def escaped(line: str) -> str:
    """Names come from captures: no markup of theirs, and one line each."""
    return SPECIAL.sub(r"\\\1", " ".join(line.split()))


def code(line: str) -> str:
    """In a table a | would end the cell, in code a ` the code."""
    return f"`{' '.join(line.split()).replace('`', chr(39)).replace('|', '¦')}`"


def bullets(lines: list[str]) -> list[str]:
    return [f"- {escaped(line)}" for line in lines]


def warning(finding: dict[str, Any]) -> str:
    cure = f" ({escaped(finding['cure'])})" if finding["cure"] else ""
    return f"- **{finding['level']}:** {escaped(finding['what'])}{cure}"


def facts(report: dict[str, Any]) -> list[str]:
    pairs = wording.facts(report)
    return [
        "| " + " | ".join(what for what, _ in pairs) + " |",
        "|" + "---:|" * len(pairs),
        "| " + " | ".join(escaped(figure) for _, figure in pairs) + " |",
        "",
    ]


def step(report: dict[str, Any]) -> list[str]:
    parts = wording.step_parts(report)
    if parts is None:
        return ["The step cannot be split: no GPU activity was captured.", ""]
    whole = sum(ms for _, ms in parts)
    rows = [
        f"| {wording.PARTS[name]} | {text.milliseconds(ms)} | {wording.share(ms, whole)} |"
        for name, ms in parts
        if ms > 0
    ]
    last = f"| **the mean step** | **{text.milliseconds(whole)}** | |"
    return ["| the mean step | ms | share |", "|---|---:|---:|", *rows, last, ""]


def section(table: Table) -> list[str]:
    if not table.rows:
        return []
    return [f"**{table.title}.** {escaped(table.note)}", "", *grid(table), ""]


def folded(table: Table) -> list[str]:
    if not table.rows:
        return []
    title = f"<details><summary>{table.title}</summary>"
    return [title, "", escaped(table.note), "", *grid(table), "", "</details>", ""]


def grid(table: Table) -> list[str]:
    columns = [column for column in table.columns if column.brief]
    ruler = ["---" if column.kind in ("text", "code") else "---:" for column in columns]
    lines = [[column.heading for column in columns], ruler]
    lines += [[written(row, column) for column in columns] for row in table.rows[:MOST_ROWS]]
    found = ["| " + " | ".join(line) + " |" for line in lines]
    more = len(table.rows) - MOST_ROWS
    return found + ([f"\n… {more} more"] if more > 0 else [])


def written(row: tables.Row, column: Column) -> str:
    said = cell(row, column)
    if column.kind == "code":
        return code(said)
    return escaped(said).replace("\u2003", "&emsp;") if column.kind == "text" else escaped(said)
