"""The report of one capture as a page: one HTML file that needs nothing else.

Called by profiling.verbs.report.
"""

from collections.abc import Iterable
from typing import Any

from profiling.analysis.gpu_time.median_step import MedianStep
from profiling.report import html, tables, text, wording
from profiling.report.capture import charts
from profiling.report.capture.kernel_sources import Links
from profiling.report.capture.timeline_chart import timeline, timeline_height
from profiling.report.html import laid_out
from profiling.report.roofline_chart import roofline
from profiling.timeline.personal import without_folders

ABSENT = {
    "breakdown": "Not known: the capture holds no GPU activity.",
    "families": "Not known: the capture holds no kernels.",
    "phases": "Not known: the capture holds no ranges; --phases names them.",
    "timeline": "Not known: the capture holds no GPU activity.",
    "roofline": "Not known: it takes a manifest with the model's shapes and a GPU of known peaks.",
}


def page(
    report: dict[str, Any], median_step: MedianStep | None, sources: Links | None = None
) -> str:
    """The whole HTML text. `sources`: where those of its kernels are, relative to its folder."""
    figures = figures_of(report, median_step)
    ranked = [e for e in report["bottleneck"]["ranked"] if e["recoverable_ms_per_step"] > 0]
    phases = tables.phases(report)
    return html.render(
        "report.html.j2",
        figures=figures,
        absent=ABSENT,
        report=report,
        title=wording.title(report),
        subtitle=wording.subtitle(report),
        headline=wording.headline(report),
        coverage=wording.coverage(report),
        facts=wording.facts(report),
        ranked=[wording.recoverable(entry) for entry in ranked],
        phases=laid_out(phases),
        phase_height=90 + 52 * sum(row["depth"] == 0 for row in report["ranges"]),
        family_height=max(280, 70 + 28 * len(report["families"] or [])),
        gaps=laid_out(tables.gaps(report)),
        roofline=laid_out(tables.roofline(report)),
        tables=[
            laid_out(table)
            for table in tables.all_tables(report, sources)
            if table.rows is not None
        ],
        timeline_note=timeline_note(median_step),
        timeline_height=timeline_height(median_step) if median_step else 0,
        allocations=allocations(report),
        capture=pairs(report["capture"]),
        run=[(name, pairs(part)) for name, part in (report["run"] or {}).items() if part],
    )


def figures_of(report: dict[str, Any], median_step: MedianStep | None) -> dict[str, charts.Figure]:
    drawn = {
        "breakdown": charts.breakdown(report),
        "step_times": charts.step_times(report),
        "families": charts.families(report),
        "phases": charts.phases(report),
        "timeline": timeline(median_step) if median_step else None,
        "roofline": roofline(report),
    }
    return {name: figure for name, figure in drawn.items() if figure is not None}


def timeline_note(median_step: MedianStep | None) -> str:
    if median_step is None:
        return "What the host and the GPU did in the step whose time is the median."
    said = (
        f"Step {median_step.number}, {text.milliseconds(median_step.step_ms)} ms. Above what the "
        "host had open and called, below what ran on the GPU. Drag to zoom, double-click to return."
    )
    if not len(median_step.ranges.start_ns):
        said += " The host was ahead: it had left this step's phases before the GPU began them."
    if median_step.left_out:
        said += f" The {median_step.left_out:,} shortest rows are not drawn."
    return said


def allocations(report: dict[str, Any]) -> list[tuple[str, str]]:
    known = report["allocations"]
    if known is None:
        return []
    sizes = ("allocated_bytes", "freed_bytes", "peak_bytes")
    rows = [(name.removesuffix("_bytes"), text.size_bytes(known[name])) for name in sizes]
    return [("allocations", text.number(known["count"])), *rows]


def pairs(part: Any, prefix: str = "") -> list[tuple[str, str]]:
    """A nested mapping as (dotted key, value)."""
    found: list[tuple[str, str]] = []
    items: Iterable = part.items() if isinstance(part, dict) else [("", part)]
    for key, value in items:
        name = f"{prefix}.{key}".strip(".")
        if isinstance(value, dict):
            found += pairs(value, name)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for index, entry in enumerate(value):
                found += pairs(entry, f"{name}.{index}")
        else:
            found.append((name, told(name, value)))
    return found


def told(name: str, value: Any) -> str:
    """Without folders: a page is passed on."""
    if value is None:
        return text.ABSENT
    if name.endswith(("_bytes", "_bytes_per_s")) and isinstance(value, int):
        return text.size_bytes(value) + ("/s" if name.endswith("_per_s") else "")
    if isinstance(value, list):
        return without_folders((" " if name == "command" else ", ").join(map(str, value))) or "none"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value).lower() if isinstance(value, bool) else without_folders(str(value))
