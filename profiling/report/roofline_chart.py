"""The roofline of the kernel families, as plotly draws it. Called by profiling.report.page."""

import math
from typing import Any

from profiling.report import text
from profiling.report.charts import colour
from profiling.report.document import Figure


def roofline(report: dict[str, Any]) -> Figure | None:
    """Achieved TFLOP/s over FLOP per byte, under the roofs of bandwidth and arithmetic."""
    known = report["roofline"]
    rows = [
        row
        for row in (known["families"] if known else [])
        if row["flops"] and row["bytes"] and row["tflops"]
    ]
    if not rows:
        return None
    left, right = reach([row["flops_per_byte"] for row in rows], known)
    data = [*roofs(known, left, right), *points(rows)]
    highest = known["peak_tflops"] or max(row["tflops"] for row in rows)
    layout = {
        "margin": {"l": 60, "r": 20, "t": 10, "b": 48},
        "xaxis": logarithmic("FLOP per byte of device memory", left, right),
        "yaxis": logarithmic("TFLOP/s", min(row["tflops"] for row in rows) / 3, highest * 2),
        "legend": {"itemsizing": "constant"},
    }
    return {"data": data, "layout": layout}


def reach(intensities: list[float], known: dict[str, Any]) -> tuple[float, float]:
    """The ends of the x axis: all families, and the ridge where the roofs meet."""
    ends = list(intensities)
    if known["peak_tflops"] and known["peak_gbps"]:
        ends.append(known["peak_tflops"] * 1e3 / known["peak_gbps"])
    return min(ends) / 4, max(ends) * 6


def roofs(known: dict[str, Any], left: float, right: float) -> list[dict[str, Any]]:
    """The line of memory bandwidth up to the ridge, and that of arithmetic from there on."""
    lines = []
    tflops, gbps = known["peak_tflops"], known["peak_gbps"]
    ridge = tflops * 1e3 / gbps if tflops and gbps else None
    if gbps:
        end = ridge or right
        name = f"memory, {text.number(gbps)} GB/s"
        lines.append((name, [left, end], [left * gbps / 1e3, end * gbps / 1e3], "attention"))
    if tflops:
        name = f"arithmetic, {text.number(tflops)} TFLOP/s"
        lines.append((name, [ridge or left, right], [tflops, tflops], "compute"))
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": x,
            "y": y,
            "line": {"color": colour(shade), "width": 2.5},
            "hoverinfo": "skip",
        }
        for name, x, y, shade in lines
    ]


def points(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A trace for each family, so that the legend names it: at the points names would overlap."""
    longest = max(row["ms"] for row in rows)
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"{row['family']}, {text.percent(row['percent_of_bound'])} of its roof",
            "x": [row["flops_per_byte"]],
            "y": [row["tflops"]],
            "marker": {
                "color": colour(row["family"]),
                "size": 9 + 24 * math.sqrt(row["ms"] / longest),
                "line": {"width": 1, "color": colour("card")},
            },
            "hovertemplate": f"<b>{row['family']}</b>, {text.milliseconds(row['ms'])} ms a step<br>"
            "%{y:.3g} TFLOP/s at %{x:.3g} FLOP/byte<br>"
            f"{text.percent(row['percent_of_bound'])} of the {row['bound']} roof<extra></extra>",
        }
        for row in rows
    ]


def logarithmic(title: str, low: float, high: float) -> dict[str, Any]:
    return {
        "type": "log",
        "title": {"text": title},
        "range": [math.log10(low), math.log10(high)],
        "dtick": 1,
        "exponentformat": "none",
        "fixedrange": True,
    }
