"""What plotly draws on the page of one capture, but for the timeline.

Called by profiling.report.capture.document. Each function returns None without what to draw.
"""

import math
from html import escape

from profiling.analysis.report import Report, Roofline, RooflineRow
from profiling.causes import Part
from profiling.report.charts import (
    ABOVE,
    MARGIN,
    NAMES,
    axis,
    bars,
    colour,
    line,
    logarithmic,
    reach,
    roofs,
)
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
    inside = {
        "textposition": "inside",
        "insidetextanchor": "middle",
        "insidetextfont": {"color": "#fff"},
        "textangle": 0,
    }
    data = []
    for part, ms in (pair for pair in parts if pair[1] > 0):
        share = f"{percent(100 * ms / whole_ms)} of the step"
        name = called(part)
        text = f"{name}<br>{milliseconds(ms)} ms" if ms > SMALL_SHARE * whole_ms else ""
        hover = f"{part.meaning}<br><b>{BAR_MS}</b>, {share}<extra></extra>"
        bar = bars([""], [ms], colour(part.name), name=name, text=[text], hovertemplate=hover)
        data.append(bar | inside)
    layout = {
        "barmode": "stack",
        "uniformtext": {"mode": "hide", "minsize": 11},
        "bargap": 0.05,
        "margin": MARGIN | {"t": 34},
        "xaxis": axis("ms of the mean step", range=[0, whole_ms]),
        "yaxis": {"showticklabels": False, "fixedrange": True},
        "legend": ABOVE | {"traceorder": "normal"},
        "showlegend": True,
    }
    return {"data": data, "layout": layout}


def step_times(report: Report) -> Figure:
    """Every step of the window, with the median, and the median of uncaptured steps where known."""
    step, first = report.window.step_ms, report.window.first_iteration
    x: list[float] = [number + (first or 0) for number in range(len(step.values))]
    steps: Figure = {
        "type": "scatter",
        "mode": "lines+markers" if len(x) <= MOST_MARKERS else "lines",
        "name": "captured steps",
        "x": x,
        "y": step.values,
        "line": {"color": colour("accent"), "width": 1.5},
        "marker": {"size": 7},
        "hovertemplate": "step %{x}: %{y:.3f} ms<extra></extra>",
    }
    medians = [("median captured", step.median, "muted", "dash")]
    if report.health.free_step_ms is not None:
        medians.append(("median uncaptured", report.health.free_step_ms, "good", "dot"))
    ends = [x[0], x[-1]]
    lines = [
        line(f"{name}, {milliseconds(ms)} ms", ends, [ms, ms], shade, dash=dash, width=1.5)
        for name, ms, shade, dash in medians
    ]
    layout = {
        "margin": MARGIN | {"l": 50, "t": 34},
        "xaxis": axis("step" if first is None else "iteration", tickformat="d"),
        "yaxis": axis("ms", rangemode="tozero"),
        "legend": ABOVE,
    }
    return {"data": [steps, *lines], "layout": layout}


def phases(report: Report) -> Figure | None:
    """Host against GPU time of each phase, a step."""
    found = [entry for entry in report.ranges if entry.depth == 0][::-1]
    if not found:
        return None
    names = [escape(entry.name) for entry in found]
    gpu_ms, host_ms = [entry.gpu_ms for entry in found], [entry.host_ms for entry in found]
    data = []
    for name, shade, in_window in (("GPU", "compute", gpu_ms), ("host", "host", host_ms)):
        a_step = [None if ms is None else ms / report.window.steps for ms in in_window]
        style = {
            "name": name,
            "text": list(map(milliseconds, a_step)),
            "textposition": "outside",
            "cliponaxis": False,
            "hovertemplate": f"%{{y}}, {name}: {BAR_MS}<extra></extra>",
        }
        if any(ms is not None for ms in a_step):
            data.append(bars(names, a_step, colour(shade), **style))
    layout = {
        "margin": MARGIN | {"r": 60, "t": 34},
        "bargap": 0.25,
        "xaxis": axis("ms a step"),
        "yaxis": NAMES,
        "legend": ABOVE | {"traceorder": "reversed"},
    }
    return {"data": data, "layout": layout}


def families(report: Report) -> Figure | None:
    """Kernel time by family, over the capture."""
    found = sorted(report.families, key=lambda family: family.total_ns)
    if not found:
        return None
    bar = bars(
        [entry.family for entry in found],
        [entry.total_ns / 1e6 for entry in found],
        [colour(entry.family) for entry in found],
        text=[percent(entry.percent) for entry in found],
        customdata=[entry.count for entry in found],
        textposition="outside",
        cliponaxis=False,
        hovertemplate=f"%{{y}}: {BAR_MS} in %{{customdata:,}} kernels<extra></extra>",
    )
    layout = {
        "margin": MARGIN | {"r": 60},
        "bargap": 0.25,
        "xaxis": axis("ms in the whole capture"),
        "yaxis": NAMES,
        "showlegend": False,
    }
    return {"data": [bar], "layout": layout}


def roofline(known: Roofline | None) -> Figure | None:
    """Achieved TFLOP/s over FLOP per byte, under the roofs of bandwidth and arithmetic."""
    rows = [row for row in known.families if row.flops and row.bytes] if known else []
    if not known or not rows:
        return None
    peaks, lowest = (known.peak_tflops, known.peak_gbps), min(row.tflops for row in rows)
    left, right = reach([row.flops_per_byte for row in rows], *peaks)
    layout = {
        "margin": {"l": 60, "r": 20, "t": 10, "b": 48},
        "xaxis": logarithmic("FLOP per byte of device memory", left, right),
        "yaxis": logarithmic("TFLOP/s", lowest / 3, known.peak_tflops * 2),
        "legend": {"itemsizing": "constant"},
    }
    longest_ms = max(row.ms for row in rows)
    points = [point(row, row.ms / longest_ms) for row in rows]
    return {"data": [*roofs(*peaks, left, right), *points], "layout": layout}


def point(row: RooflineRow, share: float) -> Figure:
    """A trace of its own, so that the legend names it: at the points names would overlap."""
    of_roof = percent(row.percent_of_bound)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{row.family}, {of_roof} of its roof",
        "x": [row.flops_per_byte],
        "y": [row.tflops],
        "marker": {
            "color": colour(row.family),
            "size": 9 + 24 * math.sqrt(share),
            "line": {"width": 1, "color": colour("card")},
        },
        "hovertemplate": f"<b>{row.family}</b>, {milliseconds(row.ms)} ms a step<br>"
        "%{y:.3g} TFLOP/s at %{x:.3g} FLOP/byte<br>"
        f"{of_roof} of the {row.bound} roof<extra></extra>",
    }
