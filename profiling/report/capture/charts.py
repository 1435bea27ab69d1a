"""What plotly draws on the page of one capture, but for the timeline: figures as plain dicts.

Called by profiling.report.page. A colour is a name of templates/style.css, so that it follows the
theme: var(--gemm). Each function takes the report's dict, and returns None without what to draw.
"""

from html import escape
from typing import Any

from profiling.report import tables, text, wording
from profiling.report.charts import MARGIN, colour
from profiling.report.document import Figure

MOST_MARKERS = 200  # more would hide the line
BAR_MS = "%{x:.3f} ms"


def called(part: str) -> str:
    return part if part in ("compute", "communication", "copy", "idle") else f"idle: {part}"


def breakdown(report: dict[str, Any]) -> Figure | None:
    """The mean step as one bar, split exclusively."""
    parts = wording.step_parts(report)
    if parts is None:
        return None
    whole = sum(ms for _, ms in parts)
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": called(name),
            "y": [""],
            "x": [ms],
            "text": [f"{called(name)}<br>{text.milliseconds(ms)} ms" if ms > 0.08 * whole else ""],
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "insidetextfont": {"color": "#fff"},
            "marker": {"color": colour(name)},
            "hovertemplate": f"{wording.PARTS[name]}<br><b>{BAR_MS}</b>, "
            f"{wording.share(ms, whole)} of the step<extra></extra>",
        }
        for name, ms in parts
        if ms > 0
    ]
    layout = {
        "barmode": "stack",
        "uniformtext": {"mode": "hide", "minsize": 11},
        "bargap": 0.05,
        "margin": MARGIN | {"t": 34},
        "xaxis": {
            "title": {"text": "ms of the mean step"},
            "range": [0, whole],
            "fixedrange": True,
        },
        "yaxis": {"showticklabels": False, "fixedrange": True},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "showlegend": True,
    }
    return {"data": data, "layout": layout}


def step_times(report: dict[str, Any]) -> Figure:
    """Every step of the window, with the median, and the median of uncaptured steps where known."""
    window = report["window"]
    values = window["step_ms"]["values"]
    first = window["first_iteration"]
    x = list(range(first or 0, (first or 0) + len(values)))
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers" if len(values) <= MOST_MARKERS else "lines",
            "name": "captured steps",
            "x": x,
            "y": values,
            "line": {"color": colour("accent"), "width": 1.5},
            "marker": {"size": 7},
            "hovertemplate": "step %{x}: %{y:.3f} ms<extra></extra>",
        }
    ]
    lines = [("median captured", window["step_ms"]["median"], "muted", "dash")]
    if report["health"]["free_step_ms"] is not None:
        lines.append(("median uncaptured", report["health"]["free_step_ms"], "good", "dot"))
    for name, ms, shade, dash in lines:
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"{name}, {text.milliseconds(ms)} ms",
                "x": [x[0], x[-1]],
                "y": [ms, ms],
                "line": {"color": colour(shade), "dash": dash, "width": 1.5},
                "hoverinfo": "skip",
            }
        )
    what = "step" if first is None else "iteration"
    layout = {
        "margin": MARGIN | {"l": 50, "t": 34},
        "xaxis": {"title": {"text": what}, "tickformat": "d", "fixedrange": True},
        "yaxis": {"title": {"text": "ms"}, "rangemode": "tozero", "fixedrange": True},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
    }
    return {"data": data, "layout": layout}


def phases(report: dict[str, Any]) -> Figure | None:
    """Host against GPU time of each phase, a step."""
    rows = [row for row in tables.phases(report).rows if not row["name"].startswith("\u2003")][::-1]
    if not rows:
        return None
    names = [escape(row["name"]) for row in rows]  # plotly reads markup in texts
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": names,
            "x": [row[key] for row in rows],
            "text": [text.milliseconds(row[key]) for row in rows],
            "textposition": "outside",
            "cliponaxis": False,
            "marker": {"color": colour(shade)},
            "hovertemplate": f"%{{y}}, {name}: {BAR_MS}<extra></extra>",
        }
        for name, key, shade in (("GPU", "gpu_ms", "compute"), ("host", "host_ms", "host"))
        if any(row[key] is not None for row in rows)
    ]
    layout = {
        "margin": MARGIN | {"r": 60, "t": 34},
        "bargap": 0.25,
        "xaxis": {"title": {"text": "ms a step"}, "fixedrange": True},
        "yaxis": {"automargin": True, "fixedrange": True, "ticksuffix": " "},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "reversed"},
    }
    return {"data": data, "layout": layout}


def families(report: dict[str, Any]) -> Figure | None:
    """Kernel time by family, over the capture."""
    rows = sorted(report["families"] or [], key=lambda row: row["total_ns"])
    if not rows:
        return None
    bar = {
        "type": "bar",
        "orientation": "h",
        "y": [row["family"] for row in rows],
        "x": [row["total_ns"] / 1e6 for row in rows],
        "text": [f"{text.percent(row['percent'])}" for row in rows],
        "customdata": [row["count"] for row in rows],
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {"color": [colour(row["family"]) for row in rows]},
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
