"""Kernels as Nsight Compute measured them, as a page and as tables in a terminal.

Called by profiling.verbs.ncu with the records of its JSON.
"""

import textwrap
from typing import Any

from rich.console import Console
from rich.text import Text

from profiling.report import html, text
from profiling.report.console import bullet, grid
from profiling.report.kernel_label import kernel_label
from profiling.report.tables import Column, Table

COLUMNS = [
    ("kernel", "label", "code"),
    ("range", "range", "text"),
    ("duration", "duration_ns", "ns"),
    ("SM", "sm_percent", "percent"),
    ("memory", "memory_percent", "percent"),
    ("DRAM", "dram_percent", "percent"),
    ("occupancy", "achieved_occupancy_percent", "percent"),
    ("at most", "theoretical_occupancy_percent", "percent"),
    ("limited by", "told_limits", "text"),
    ("registers", "registers", "number"),
    ("waves", "waves", "number"),
    ("tail empty", "tail_percent", "percent"),
]
# in a terminal, where percents stand without their sign
BRIEF = [
    Column("#", "number", "number", True),
    Column("kernel", "label", "code", True),
    Column("time", "duration_ns", "ns", True),
    Column("SM %", "sm_percent", "number", True),
    Column("DRAM %", "dram_percent", "number", True),
    Column("occ. %", "achieved_occupancy_percent", "number", True),
    Column("of %", "theoretical_occupancy_percent", "number", True),
    Column("by", "told_limits", "code", True),
    Column("waves", "waves", "number", True),
    Column("tail %", "tail_percent", "number", True),
]
BRIEF_NOTE = "occ.: occupancy reached, of: possible at most, by: what limits it. Advice follows."
ADVICE_SHOWN, ADVICE_WIDTH = 3, 230  # in a terminal, of each kernel


def page(records: list[dict[str, Any]]) -> str:
    """The whole HTML text."""
    return html.render(
        "ncu.html.j2",
        figures={},
        headline=headline(records),
        columns=COLUMNS,
        kernels=[told(record) for record in records],
        advice=[(told(record), advice_lines(record)) for record in records],
    )


def headline(records: list[dict[str, Any]]) -> str:
    total = text.duration_ns(sum(record["duration_ns"] or 0 for record in records))
    plural = "" if len(records) == 1 else "s"
    return f"{len(records)} kernel launch{'es' if plural else ''} profiled, {total} in all"


def told(record: dict[str, Any]) -> dict[str, Any]:
    return record | {
        "label": kernel_label(record["name"]),
        "label_full": record["name"],
        "range": " / ".join(record["ranges"]) or None,
        "told_limits": ", ".join(record["limited_by"]) or None,
    }


def ranked(advice: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By ncu's estimate: of the kernel's whole time first, of a part of it next, then without."""
    return sorted(
        advice,
        key=lambda entry: (
            entry["kind"] != "OPT",
            entry["speedup_percent"] is None,
            entry["scope"] != "global",
            -(entry["speedup_percent"] or 0),
        ),
    )


def advice_lines(record: dict[str, Any]) -> list[str]:
    return [f"{estimate(entry)}{entry['text']}" for entry in ranked(record["advice"])]


def estimate(entry: dict[str, Any]) -> str:
    if entry["speedup_percent"] is None:
        return ""
    of = "" if entry["scope"] == "global" else " of a part"
    return f"{entry['rule']}, up to {entry['speedup_percent']:.3g} %{of}: "


def print_kernels(records: list[dict[str, Any]]) -> None:
    console = Console(highlight=False)
    console.print(Text(headline(records), style="bold"))
    rows = [told(record) | {"number": n} for n, record in enumerate(records, start=1)]
    if rows:
        table = Table("kernels", "Kernels", BRIEF_NOTE, BRIEF, rows)
        console.print(grid(table, console.width, most=len(rows)))
    for row in rows:
        console.print(Text(f"{row['number']}. {row['label']}", style="bold"), row["range"] or "")
        for line in advice_lines(row)[:ADVICE_SHOWN]:
            console.print(bullet(textwrap.shorten(line, ADVICE_WIDTH, placeholder=" …")))
