"""What charts share: figures for plotly as plain dicts, drawn by templates/page.js.

A colour is a name that a page knows, so that it follows the theme: var(--gemm) of templates/
style.css, var(--launch) of profiling.causes; what has none is drawn in a neutral one. Plotly reads
markup in texts, so names go through html.escape.
"""

import math

from profiling.report.document import Figure
from profiling.units import number

MARGIN = {"l": 10, "r": 20, "t": 10, "b": 44}


def colour(name: str) -> str:
    return f"var(--{name})"


def logarithmic(title: str, low: float, high: float) -> Figure:
    """An axis."""
    return {
        "type": "log",
        "title": {"text": title},
        "range": [math.log10(low), math.log10(high)],
        "dtick": 1,
        "exponentformat": "none",
        "fixedrange": True,
    }


def reach(
    intensities: list[float], peak_tflops: float | None, peak_gbps: float | None
) -> tuple[float, float]:
    """The ends of a roofline's x axis: all intensities, and the ridge where the roofs meet."""
    ends = list(intensities)
    if peak_tflops and peak_gbps:
        ends.append(peak_tflops * 1e3 / peak_gbps)
    return min(ends) / 4, max(ends) * 6


def roofs(
    peak_tflops: float | None, peak_gbps: float | None, left: float, right: float
) -> list[Figure]:
    """The line of memory bandwidth up to the ridge, and that of arithmetic from there on."""
    lines = []
    ridge = peak_tflops * 1e3 / peak_gbps if peak_tflops and peak_gbps else None
    if peak_gbps:
        end = ridge or right
        ys = [left * peak_gbps / 1e3, end * peak_gbps / 1e3]
        lines.append((f"memory, {number(peak_gbps)} GB/s", [left, end], ys, "attention"))
    if peak_tflops:
        ys = [peak_tflops, peak_tflops]
        name = f"arithmetic, {number(peak_tflops)} TFLOP/s"
        lines.append((name, [ridge or left, right], ys, "compute"))
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
