"""Charts of comparisons and experiments. Called by profiling.report.comparison.document.

Anybody may have chosen the names, and plotly reads markup in its texts, so names are escaped.
"""

from html import escape
from itertools import cycle

from profiling.analysis.difference.comparison_records import Comparison, ExperimentResult
from profiling.report.charts import ABOVE, MARGIN, axis, bars, colour, figure
from profiling.report.comparison.tables import bucket_label
from profiling.report.document import Figure
from profiling.report.palette import SERIES

BASELINE, CANDIDATE = colour("muted"), colour("accent")
SMALL_SHARE = 0.001  # share of the step; a smaller change is not drawn


def waterfall(comparison: Comparison) -> Figure | None:
    """Waterfall from the baseline's mean step, part by part, to the candidate's."""
    rows = comparison.buckets
    if not rows:
        return None
    start_ms, end_ms = sum(row.baseline_ms for row in rows), sum(row.candidate_ms for row in rows)
    drawn = [row for row in rows if abs(row.delta_ms) >= SMALL_SHARE * start_ms]
    rest_ms = sum(row.delta_ms for row in rows if row not in drawn)
    changes = [(escape(bucket_label(row.bucket)), row.delta_ms) for row in drawn]
    if abs(rest_ms) >= SMALL_SHARE * start_ms:
        changes.append(("the rest", rest_ms))
    labels, deltas_ms = [label for label, _ in changes], [ms for _, ms in changes]
    trace = {
        "type": "waterfall",
        "x": [escape(comparison.baseline.name), *labels, escape(comparison.candidate.name)],
        "y": [start_ms, *deltas_ms, end_ms],
        "measure": ["absolute", *["relative"] * len(deltas_ms), "total"],
        "text": [f"{start_ms:.2f}", *(f"{ms:+.2f}" for ms in deltas_ms), f"{end_ms:.2f}"],
        "textposition": "outside",
        "cliponaxis": False,
        "increasing": {"marker": {"color": colour("bad")}},
        "decreasing": {"marker": {"color": colour("good")}},
        "totals": {"marker": {"color": BASELINE}},
        "connector": {"line": {"color": colour("line"), "width": 1}},
        "hovertemplate": "%{x}: %{text} ms<extra></extra>",
    }
    yaxis, margin = axis("ms per step", rangemode="tozero"), MARGIN | {"t": 25}
    return figure([trace], {"type": "category"}, yaxis, margin=margin, showlegend=False)


def families(comparison: Comparison) -> Figure | None:
    """Kernel families of both sides, the one that takes the most on top."""
    if not comparison.families:
        return None
    rows = sorted(comparison.families, key=lambda row: max(row.baseline_ms, row.candidate_ms))
    names = [escape(row.family) for row in rows]
    hover = "%{y}: %{x:.3f} ms<extra>%{fullData.name}</extra>"
    sides = [
        (comparison.candidate.name, [row.candidate_ms for row in rows], CANDIDATE),
        (comparison.baseline.name, [row.baseline_ms for row in rows], BASELINE),
    ]
    data = [
        bars(names, ms, shade, name=escape(side), hovertemplate=hover) for side, ms, shade in sides
    ]
    xaxis, legend = axis("ms of kernels per step"), ABOVE | {"traceorder": "reversed"}
    return figure(data, xaxis, {"type": "category"}, barmode="group", legend=legend)


def steps(comparison: Comparison) -> Figure:
    """Every step time of both sides."""
    step = comparison.step_ms
    sides = [
        (comparison.candidate.name, step.candidate_values, CANDIDATE),
        (comparison.baseline.name, step.baseline_values, BASELINE),
    ]
    return boxes(sides, step.unit, size=4)


def processes(result: ExperimentResult) -> Figure:
    """Every process as a point, a box for each value; the first value on top."""
    shades = map(colour, cycle(SERIES))
    rows = [(row.label, row.processes, next(shades)) for row in result.values]
    return boxes(rows[::-1], result.unit, size=7)


def boxes(rows: list[tuple[str, list[float], str]], unit: str, size: int) -> Figure:
    """A box for each row (name, values, colour), from bottom to top, with each value as a point."""
    data = [
        {
            "type": "box",
            "name": escape(name),
            "x": values,
            "boxpoints": "all",
            "jitter": 0.5,
            "pointpos": 0,
            "marker": {"color": shade, "size": size, "opacity": 0.7},
            "line": {"color": shade},
            "fillcolor": "rgba(0,0,0,0)",
            "hovertemplate": "%{x:.4f}<extra>%{fullData.name}</extra>",
        }
        for name, values, shade in rows
    ]
    return figure(data, axis(unit), {}, showlegend=False)
