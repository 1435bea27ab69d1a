"""The first screen of a report: 24 to 40 lines at 80 columns. Called by the verb report."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from textwrap import wrap

from profiling.analysis.records import Report
from profiling.analysis.verdict.health import PERSONAL, changes_figures
from profiling.report.document import (
    Block,
    Bullets,
    Document,
    Paragraph,
    Section,
    StepBar,
    Table,
    Verdict,
)
from profiling.report.single import tables
from profiling.report.single.document import gpu_name, step_parts, subtitle
from profiling.report.single.key_figures import cpu_figures, judged
from profiling.report.single.lines import lines_table
from profiling.report.single.verdict_line import verdict_line
from profiling.report.whatif import best_line
from profiling.shared.units import milliseconds, percent

EVIDENCE, NEXT, PARTS, ROWS = 4, 2, 3, 5  # most of each
EVIDENCE_LINES, NEXT_LINES = 7, 3  # most lines of them when wrapped
COLUMNS, BULLET = 80, 4  # characters of a line, and of a bullet before its text
LEAST = 0.01  # share of the step; shorter parts and phases are not listed
MEAN_APART = 0.05  # a mean further from the typical step is shown beside it


def first_screen(report: Report) -> Document:
    """The answer, why, what to do, the step and what takes most of it; --full prints the rest."""
    bottleneck = report.bottleneck
    most = bottleneck.most_to_gain
    gain = [Paragraph(f"Largest possible gain: {most}")] if most else []
    if report.what_if and (predicted := best_line(report.what_if)):
        gain.append(Paragraph(predicted))
    return Document(
        f"{report.capture.file} · {gpu_name(report)}",
        subtitle(report),
        [
            Verdict(verdict_line(report), "warning"),
            Bullets(None, first_that_fit(bottleneck.evidence[:EVIDENCE], EVIDENCE_LINES)),
            Bullets("Next", first_that_fit(bottleneck.next[:NEXT], NEXT_LINES)),
            *gain,
            Paragraph(" · ".join(figures(report)), "note"),
            *(Paragraph(line, "warning") for line in findings(report)),
        ],
        [Section(name, "", [block]) for name, block in body(report).items()],
    )


def first_that_fit(sentences: list[str], most: int) -> list[str]:
    """The first sentences that fit into `most` lines when wrapped; at least one."""
    lines = accumulate(len(wrap(sentence, COLUMNS - BULLET)) for sentence in sentences)
    return sentences[: max(1, sum(count <= most for count in lines))]


def figures(report: Report) -> Iterator[str]:
    """Yield the figures that everyone asks for first, as far as they are known."""
    free_ms, mfu = report.health.free_step_ms, report.roofline and report.roofline.mfu
    step, median = report.typical, milliseconds(report.window.step_ms.median)
    without = f"{milliseconds(free_ms)} without capturing" if free_ms is not None else ""
    estimated_ms = report.estimated_free_ms
    if report.window.step_name is None:
        yield f"whole capture {median} ms"
    elif step:  # the overhead of capturing is one of medians
        beside = f" (median {median}, {without})" if without else ""
        if estimated_ms is not None:  # of the mean, which a few long steps lift off the typical one
            mean_ms = report.window.step_ms.mean
            apart = abs(mean_ms / step.ms - 1) > MEAN_APART
            mean = f"mean {milliseconds(mean_ms)}, " if apart else ""
            beside = f" ({mean}about {milliseconds(estimated_ms)} without capturing)"
        yield f"step {milliseconds(step.ms)} ms{beside}"
    else:  # the mean, of which the evidence has shares
        beside = ", ".join(filter(None, [f"median {median}", without]))
        yield f"step {milliseconds(report.window.step_ms.mean)} ms ({beside})"
    if step:
        yield f"GPU busy {percent(step.busy_percent)}"
    if mfu:
        yield f"MFU {percent(100 * mfu)}"
    if report.attention_backend:
        yield f"attention {report.attention_backend}"
    if report.on_cpu:
        yield from (f"{what} {figure}" for what, figure in cpu_figures(report))


def findings(report: Report) -> Iterator[str]:
    """Yield a line for each level with the findings that change how figures are to be read.

    The cures are left out.
    """
    for level in ("warning", "note"):
        matching = [
            each for each in report.health.findings if changes_figures(each) and each.level == level
        ]
        texts = [headline(each.what) for each in matching if each.what != PERSONAL]
        line = f"{level}: {'; '.join(texts)}"
        if len(texts) < len(matching):  # PERSONAL changes no figure, so it gets no line of its own
            whole = f"{level}: {'; '.join([*texts, PERSONAL])}"
            line = whole if not texts or len(whole) <= COLUMNS else f"{line}; 1 more (--full)"
        if matching:
            yield line


def headline(what: str) -> str:
    """The beginning of a finding, up to its details."""
    for mark in (": ", "; ", " ("):
        what = what.partition(mark)[0]
    return what


def body(report: Report) -> dict[str, Block]:
    """The parts of the step, and the kernels or operators that take most, by section name."""
    if not report.on_cpu:
        parts = step_parts(report)
        worth_telling = sum(ms >= LEAST * sum(ms for _, ms in parts) for _, ms in parts)
        kernels = "Kernels that take the most time, over the whole capture"
        return {
            "step": StepBar(parts, min(PARTS, max(1, worth_telling)), judged(report)),
            "kernels": first_rows(tables.kernels(report, {}), kernels),
            **lines_of(report),
        }
    long = [row for row in report.phases if row.host_ms >= LEAST * report.window.wall_ms]
    phases = first_rows(tables.phases(replace(report, ranges=long)), "Phases of a step")
    operators = "Operators that take the most time, over the window"
    return {
        "phases": phases,
        "operators": first_rows(tables.operators(report), operators),
        **lines_of(report),
    }


def lines_of(report: Report) -> dict[str, Block]:
    """The lines of the program that take the most time, where they are known."""
    if report.lines is None:
        return {}
    title = f"Lines of the program, {percent(report.lines.percent)} of the time"
    return {"lines": first_rows(lines_table(report, {}), title)}


def first_rows(table: Table, title: str) -> Table:
    return replace(table, title=title, note="", rows=(table.rows or [])[:ROWS])
