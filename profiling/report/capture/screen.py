"""The first screen of a report: 24 to 40 lines at 80 columns. Called by the verb report."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from textwrap import wrap

from profiling.analysis.report import Report
from profiling.analysis.verdict.health import PERSONAL, changes_figures
from profiling.report.capture import tables
from profiling.report.capture.document import (
    cpu_figures,
    gpu_name,
    step_parts,
    steps_by_tool,
)
from profiling.report.capture.verdict_line import verdict_line
from profiling.report.document import (
    Block,
    Bullets,
    Document,
    Said,
    Section,
    StepBar,
    Table,
    Verdict,
)
from profiling.units import milliseconds, percent

EVIDENCE, NEXT, PARTS, ROWS = 4, 2, 3, 5  # of each at most
EVIDENCE_LINES, NEXT_LINES = 7, 3  # that these take when wrapped
COLUMNS, BULLET = 80, 4
LEAST = 0.01  # of the step: shorter parts and phases are not told one by one


def first_screen(report: Report) -> Document:
    """The answer, why, what to do, the step and what takes most of it; --full prints the rest."""
    found = report.bottleneck
    gain = [Said(f"Most to gain: {found.most_to_gain}")] if found.most_to_gain else []
    return Document(
        f"{report.capture.file} · {gpu_name(report)}",
        [steps_by_tool(report)],
        [
            Verdict(verdict_line(report), "warning"),
            Bullets(None, fitting(found.evidence[:EVIDENCE], EVIDENCE_LINES)),
            Bullets("Next", fitting(found.next[:NEXT], NEXT_LINES)),
            *gain,
            Said(" · ".join(figures(report)), "note"),
            *(Said(line, "warning") for line in findings(report)),
        ],
        [Section(name, "", [block]) for name, block in body(report).items()],
    )


def fitting(sentences: list[str], most: int) -> list[str]:
    """As many of the first as take `most` lines, and one in any case."""
    lines = accumulate(len(wrap(sentence, COLUMNS - BULLET)) for sentence in sentences)
    return sentences[: max(1, sum(count <= most for count in lines))]


def figures(report: Report) -> Iterator[str]:
    """Those that everyone asks for first, as far as they are known."""
    free_ms, mfu = report.health.free_step_ms, report.roofline and report.roofline.mfu
    without = f" ({milliseconds(free_ms)} uncaptured)" if free_ms is not None else ""
    yield f"step {milliseconds(report.window.step_ms.median)} ms{without}"
    if report.gpu:
        yield f"GPU busy {percent(report.gpu.busy_percent)}"
    if mfu:
        yield f"MFU {percent(100 * mfu)}"
    if report.attention_backend:
        yield f"attention {report.attention_backend}"
    if report.on_cpu:
        yield from (f"{what} {told}" for what, told in cpu_figures(report))


def findings(report: Report) -> Iterator[str]:
    """What changes how the figures are to be read, level by level, without the cures."""
    for level in ("warning", "note"):
        found = [
            each for each in report.health.findings if changes_figures(each) and each.level == level
        ]
        told = [headline(each.what) for each in found if each.what != PERSONAL]
        line = f"{level}: {'; '.join(told)}"
        if len(told) < len(found):  # that changes no figure, so it may take no line more
            whole = f"{level}: {'; '.join([*told, PERSONAL])}"
            line = whole if not told or len(whole) <= COLUMNS else f"{line}; 1 more (--full)"
        if found:
            yield line


def headline(what: str) -> str:
    """What stands before its details."""
    for mark in (": ", "; ", " ("):
        what = what.partition(mark)[0]
    return what


def body(report: Report) -> dict[str, Block]:
    """What the step is made of, and the kernels or operators that take most."""
    if not report.on_cpu:
        parts = step_parts(report)
        worth_telling = sum(ms >= LEAST * report.window.step_ms.mean for _, ms in parts)
        kernels = "The kernels that take most of the whole capture"
        return {
            "step": StepBar(parts, min(PARTS, max(1, worth_telling))),
            "kernels": first_rows(tables.kernels(report, {}), kernels),
        }
    long = [row for row in report.phases if row.host_ms >= LEAST * report.window.wall_ms]
    phases = first_rows(tables.phases(replace(report, ranges=long)), "Phases of a step")
    operators = "The operators that take most of the window"
    return {"phases": phases, "operators": first_rows(tables.operators(report), operators)}


def first_rows(table: Table, title: str) -> Table:
    return replace(table, title=title, note="", rows=(table.rows or [])[:ROWS])
