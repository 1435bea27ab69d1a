"""The section of a report on the lines of the program. Called by profiling.report.single.document.

A page also shows the source around a line, where the file is at hand and has not changed.
"""

import re
from pathlib import Path

from profiling.analysis.records import Report
from profiling.analysis.source.own_code import Frame
from profiling.analysis.source.source_files import SourceFiles
from profiling.analysis.sum_records import Lines, LineSum
from profiling.report.document import Block, Cell, Column, Section, Source, Table, row_ids
from profiling.report.kernel_label import kernel_cell
from profiling.shared.units import milliseconds, percent

Texts = dict[str, str]  # FILE:LINE -> the source around it
MOST_SOURCES = 8  # on a page
OF_FORWARD = "Backward counts for the line of its forward."
OF_NSYS = (
    "Backward counts for the line that called it. nsys records no Python stack of some calls, such "
    "as cuLaunchKernelEx, by which cuBLAS launches products: outside backward these have no line. "
    "Nor has what threads of autograd launch, if several threads of a process have stacks."
)
AROUND = 4  # lines of source before the line, and behind it
SHOWN = 10  # rows in a terminal


def line_texts(lines: Lines | None, capture: Path) -> Texts:
    """The source around the lines that take the most time, numbered, the line itself marked."""
    files = SourceFiles(capture)
    texts = {}
    for row in lines.lines[:MOST_SOURCES] if lines else []:
        name, _, line = row.place.rpartition(":")
        if found := files.source_of(Frame(name, int(line), row.function)):
            texts[row.place] = around(found[0].text.splitlines(), int(line))
    return texts


def around(source: list[str], line: int) -> str:
    shown = range(max(1, line - AROUND), min(len(source), line + AROUND) + 1)
    width = len(str(shown[-1]))
    return "\n".join(
        f"{'>' if number == line else ' '} {number:{width}}  {source[number - 1]}".rstrip()
        for number in shown
    )


def lines_section(report: Report, texts: Texts) -> Section:
    table = lines_table(report, texts)
    sources: list[Block] = [
        Source(row.place, row.function, texts[row.place], anchor_of(row.place), [time_of(row)])
        for row in (report.lines.lines if report.lines else [])
        if row.place in texts
    ]
    return Section(table.name, table.title, [table, *sources], "Lines", table.note)


def lines_table(report: Report, texts: Texts) -> Table:
    of = report.lines.of if report.lines else "kernels"

    def cell(row: LineSum) -> Cell:
        links = [("source", f"#{anchor_of(row.place)}")] if row.place in texts else []
        return Cell(place_text(row), links=links)

    columns = [
        Column("line", cell, "code", True),
        Column("in", "function", "code", True),
        Column("ms per step", "ms", "ms", True),
        Column("share", "percent", "percent", True),
        Column(of, "count", "number", True),
        Column("of it backward, ms", lambda row: row.found_ms.get("forward"), "ms"),
        Column("line of", lambda row: "the call" if row.exact else "the function", "text"),
        Column("longest", lambda row: kernel_cell(row.longest), "code"),
    ]
    rows = report.lines.lines if report.lines else None
    title = "Lines of the program"
    note = note_on(report.lines, report.capture.kind) if report.lines else ""
    ids = row_ids("line", rows)
    return Table("lines", title, note, columns, rows, most=SHOWN, folded=True, ids=ids)


def note_on(lines: Lines, kind: str) -> str:
    """Sentences on what has a line, and what a line is, in a capture of this kind."""
    what = "kernel time" if lines.of == "kernels" else "operators' time"
    backward = OF_NSYS if kind == "nsys" else OF_FORWARD
    note = (
        f"{percent(lines.percent)} of the {what} in the steps comes from a line of the program's "
        f"own code, the innermost one that was open. {backward}"
    )
    if lines.replayed_ns:
        note += (
            f" {percent(100 * lines.replayed_ns / lines.total_ns)} is in a CUDA graph: its kernels "
            "have the line of the replay; capture with cuda_graphs=false for their own lines."
        )
    if not all(row.exact for row in lines.lines):
        note += (
            " PyTorch records functions: where the source is not at hand, or does not tell which "
            "call it was, the line is the one on which the function begins."
        )
    return note


def place_text(row: LineSum) -> str:
    """The place, and behind it the numbers of further lines: model.py:7, 9."""
    file = row.place.rpartition(":")[0]
    return ", ".join([row.place, *(other.removeprefix(f"{file}:") for other in row.also)])


def time_of(row: LineSum) -> str:
    return f"{milliseconds(row.ms)} ms per step, {percent(row.percent)}"


def anchor_of(place: str) -> str:
    return "line-" + re.sub(r"[^\w.]", "-", place)
