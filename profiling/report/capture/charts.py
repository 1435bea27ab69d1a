"""What plotly draws on the page of one capture, but for the timeline.

Called by profiling.report.capture.document. Each function returns None without what to draw.
"""

import math
from html import escape

from profiling.analysis.report import Report, Roofline, RooflineRow
from profiling.causes import Part
from profiling.report.charts import MARGIN, colour, logarithmic, reach, roofs
from profiling.report.document import Figure
from profiling.units import milliseconds, percent

MOST_MARKERS = 200  # more would hide the line
SMALL_SHARE = 0.08  # of the step: a part that has no room for its name
BAR_MS = "%{x:.3f} ms"


def called(part: Part) -> str:
    return f"idle: {part.name}" if part.cause else part.name


def breakdown(parts: list[tuple[Part, float]]) -> Figure | None:
    """The mean step as one bar, split exclusively."""
    if not parts:
        return None
    whole_ms = sum(ms for _, ms in parts)
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": called(part),
            "y": [""],
            "x": [ms],
            "text": [
                f"{called(part)}<br>{milliseconds(ms)} ms" if ms > SMALL_SHARE * whole_ms else ""
            ],
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "insidetextfont": {"color": "#fff"},
            "marker": {"color": colour(part.name)},
            "hovertemplate": f"{part.meaning}<br><b>{BAR_MS}</b>, "
            f"{percent(100 * ms / whole_ms)} of the step<extra></extra>",
        }
        for part, ms in parts
        if ms > 0
    ]
    layout = {
        "barmode": "stack",
        "uniformtext": {"mode": "hide", "minsize": 11},
        "bargap": 0.05,
        "margin": MARGIN | {"t": 34},
        "xaxis": {
            "title": {"text": "ms of the mean step"},
            "range": [0, whole_ms],
            "fixedrange": True,
        },
        "yaxis": {"showticklabels": False, "fixedrange": True},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "showlegend": True,
    }
    return {"data": data, "layout": layout}


def step_times(report: Report) -> Figure:
    """Every step of the window, with the median, and the median of uncaptured steps where known."""
    step, first = report.window.step_ms, report.window.first_iteration
    x = list(range(first or 0, (first or 0) + len(step.values)))
    data: list[Figure] = [
        {
            "type": "scatter",
            "mode": "lines+markers" if len(step.values) <= MOST_MARKERS else "lines",
            "name": "captured steps",
            "x": x,
            "y": step.values,
            "line": {"color": colour("accent"), "width": 1.5},
            "marker": {"size": 7},
            "hovertemplate": "step %{x}: %{y:.3f} ms<extra></extra>",
        }
    ]
    lines = [("median captured", step.median, "muted", "dash")]
    if report.health.free_step_ms is not None:
        lines.append(("median uncaptured", report.health.free_step_ms, "good", "dot"))
    data += [
        {
            "type": "scatter",
            "mode": "lines",
            "name": f"{name}, {milliseconds(ms)} ms",
            "x": [x[0], x[-1]],
            "y": [ms, ms],
            "line": {"color": colour(shade), "dash": dash, "width": 1.5},
            "hoverinfo": "skip",
        }
        for name, ms, shade, dash in lines
    ]
    layout = {
        "margin": MARGIN | {"l": 50, "t": 34},
        "xaxis": {
            "title": {"text": "step" if first is None else "iteration"},
            "tickformat": "d",
            "fixedrange": True,
        },
        "yaxis": {"title": {"text": "ms"}, "rangemode": "tozero", "fixedrange": True},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
    }
    return {"data": data, "layout": layout}


def phases(report: Report) -> Figure | None:
    """Host against GPU time of each phase, a step."""
    found = [entry for entry in report.ranges if entry.depth == 0][::-1]
    if not found:
        return None
    gpu_ms, host_ms = [entry.gpu_ms for entry in found], [entry.host_ms for entry in found]
    data = []
    for name, shade, in_window in (("GPU", "compute", gpu_ms), ("host", "host", host_ms)):
        a_step = [None if ms is None else ms / report.window.steps for ms in in_window]
        if any(ms is not None for ms in a_step):
            data.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": name,
                    "y": [escape(entry.name) for entry in found],
                    "x": a_step,
                    "text": [milliseconds(ms) for ms in a_step],
                    "textposition": "outside",
                    "cliponaxis": False,
                    "marker": {"color": colour(shade)},
                    "hovertemplate": f"%{{y}}, {name}: {BAR_MS}<extra></extra>",
                }
            )
    layout = {
        "margin": MARGIN | {"r": 60, "t": 34},
        "bargap": 0.25,
        "xaxis": {"title": {"text": "ms a step"}, "fixedrange": True},
        "yaxis": {"automargin": True, "fixedrange": True, "ticksuffix": " "},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "reversed"},
    }
    return {"data": data, "layout": layout}


def families(report: Report) -> Figure | None:
    """Kernel time by family, over the capture."""
    found = sorted(report.families, key=lambda family: family.total_ns)
    if not found:
        return None
    bar = {
        "type": "bar",
        "orientation": "h",
        "y": [entry.family for entry in found],
        "x": [entry.total_ns / 1e6 for entry in found],
        "text": [percent(entry.percent) for entry in found],
        "customdata": [entry.count for entry in found],
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {"color": [colour(entry.family) for entry in found]},
        "hovertemplate": f"%{{y}}: {BAR_MS} in %{{customdata:,}} kernels<extra></extra>",
    }
    layout = {
        "margin": MARGIN | {"r": 60},
        "bargap": 0.25,
        "xaxis": {"title": {"text": "ms in the whole capture"}, "fixedrange": True},
        "yaxis": {"automargin": True, "fixedrange": True, "ticksuffix": " "},
        "showlegend": False,
    }
    return {"data": [bar], "layout": layout}


def roofline(known: Roofline | None) -> Figure | None:
    """Achieved TFLOP/s over FLOP per byte, under the roofs of bandwidth and arithmetic."""
    rows = [row for row in (known.families if known else []) if row.flops and row.bytes]
    if not known or not rows:
        return None
    peaks = known.peak_tflops, known.peak_gbps
    left, right = reach([row.flops_per_byte for row in rows], *peaks)
    layout = {
        "margin": {"l": 60, "r": 20, "t": 10, "b": 48},
        "xaxis": logarithmic("FLOP per byte of device memory", left, right),
        "yaxis": logarithmic("TFLOP/s", min(row.tflops for row in rows) / 3, known.peak_tflops * 2),
        "legend": {"itemsizing": "constant"},
    }
    return {"data": [*roofs(*peaks, left, right), *points(rows)], "layout": layout}


def points(rows: list[RooflineRow]) -> list[Figure]:
    """A trace for each family, so that the legend names it: at the points names would overlap."""
    longest_ms = max(row.ms for row in rows)
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"{row.family}, {percent(row.percent_of_bound)} of its roof",
            "x": [row.flops_per_byte],
            "y": [row.tflops],
            "marker": {
                "color": colour(row.family),
                "size": 9 + 24 * math.sqrt(row.ms / longest_ms),
                "line": {"width": 1, "color": colour("card")},
            },
            "hovertemplate": f"<b>{row.family}</b>, {milliseconds(row.ms)} ms a step<br>"
            "%{y:.3g} TFLOP/s at %{x:.3g} FLOP/byte<br>"
            f"{percent(row.percent_of_bound)} of the {row.bound} roof<extra></extra>",
        }
        for row in rows
    ]
