"""Charts of comparisons and experiments. Called by profiling.report.comparison.document.

Anybody may have chosen the names, and plotly reads markup in its texts, so names are escaped.
"""

from collections.abc import Sequence
from html import escape

from profiling.analysis.difference.comparison_records import (
    Comparison,
    Experiment,
    ExperimentResult,
)
from profiling.report.charts import ABOVE, MARGIN, axis, bars, colour, figure
from profiling.report.comparison.tables import bucket_label
from profiling.report.document import Figure
from profiling.report.palette import configuration_colours

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
        "totals": {"marker": {"color": colour("muted")}},
        "connector": {"line": {"color": colour("line"), "width": 1}},
        "hovertemplate": "%{x}: %{text} ms<extra></extra>",
    }
    yaxis, margin = axis("ms per step", rangemode="tozero"), MARGIN | {"t": 25}
    return figure([trace], {"type": "category"}, yaxis, margin=margin, showlegend=False)


def side_colours(comparison: Comparison) -> tuple[str, str]:
    """Names of the colours of the baseline and of the candidate."""
    backends: tuple[object, object]
    if pair := (comparison.differences or {}).get("attention"):
        backends = pair.values
    else:
        backends = comparison.baseline.attention_backend, comparison.candidate.attention_backend
    baseline, candidate = configuration_colours(backends)
    return baseline, candidate


def families(comparison: Comparison, shades: Sequence[str]) -> Figure | None:
    """Kernel families of both sides, the one that takes the most on top.

    `shades` are the colours of the baseline and of the candidate.
    """
    if not comparison.families:
        return None
    rows = sorted(comparison.families, key=lambda row: max(row.baseline_ms, row.candidate_ms))
    names = [escape(row.family) for row in rows]
    hover = "%{y}: %{x:.3f} ms<extra>%{fullData.name}</extra>"
    sides = [
        (comparison.candidate.name, [row.candidate_ms for row in rows], colour(shades[1])),
        (comparison.baseline.name, [row.baseline_ms for row in rows], colour(shades[0])),
    ]
    data = [
        bars(names, ms, shade, name=escape(side), hovertemplate=hover) for side, ms, shade in sides
    ]
    xaxis, legend = axis("ms of kernels per step"), ABOVE | {"traceorder": "reversed"}
    return figure(data, xaxis, {"type": "category"}, barmode="group", legend=legend)


def steps(comparison: Comparison) -> Figure:
    """Every step time of both sides."""
    step, shades = comparison.step_ms, side_colours(comparison)
    sides = [
        (comparison.candidate.name, step.candidate_values, colour(shades[1])),
        (comparison.baseline.name, step.baseline_values, colour(shades[0])),
    ]
    return boxes(sides, step.unit, size=4)


def value_colours(experiment: Experiment) -> list[str]:
    """Names of the colours of the values, the first one's first."""
    attention = experiment.factor.key == "attention"
    return configuration_colours(
        [label if attention else None for label in experiment.factor.labels]
    )


def processes(result: ExperimentResult, shades: Sequence[str]) -> Figure:
    """Every process as a point, a box for each value; the first value on top."""
    values = zip(result.values, shades, strict=True)
    rows = [(row.label, row.processes, colour(shade)) for row, shade in values]
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
