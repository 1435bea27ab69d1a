"""What charts share: figures for plotly as plain dicts, drawn by templates/page.js.

A colour is a name that a page knows, so that it follows the theme: var(--gemm) of templates/
style.css, var(--launch) of profiling.causes; what has none is drawn in a neutral one. Plotly reads
markup in texts, so names go through html.escape.
"""

import math
from collections.abc import Sequence

from profiling.report.document import Figure
from profiling.units import number

MARGIN = {"l": 10, "r": 20, "t": 10, "b": 44}
ABOVE = {"orientation": "h", "y": 1.02, "yanchor": "bottom"}  # a legend
NAMES = {"automargin": True, "fixedrange": True, "ticksuffix": " "}  # an axis of bars


def colour(name: str) -> str:
    return f"var(--{name})"


def axis(title: str, **more: object) -> Figure:
    """One that does not zoom."""
    return {"title": {"text": title}, "fixedrange": True, **more}


def logarithmic(title: str, low: float, high: float) -> Figure:
    ends = [math.log10(low), math.log10(high)]
    return axis(title, type="log", range=ends, dtick=1, exponentformat="none")


def bars(
    names: Sequence[str], lengths: Sequence[float | None], shade: str | list[str], **more: object
) -> Figure:
    """Lying ones."""
    marker = {"color": shade}
    return {"type": "bar", "orientation": "h", "y": names, "x": lengths, "marker": marker, **more}


def line(name: str, x: list[float], y: list[float], shade: str, **style: object) -> Figure:
    """Between points that are not shown."""
    found: Figure = {"type": "scatter", "mode": "lines", "name": name, "x": x, "y": y}
    return found | {"line": {"color": colour(shade), **style}, "hoverinfo": "skip"}


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
        x = [left, ridge or right]
        y = [intensity * peak_gbps / 1e3 for intensity in x]
        lines.append(line(f"memory, {number(peak_gbps)} GB/s", x, y, "attention", width=2.5))
    if peak_tflops:
        x, y = [ridge or left, right], [peak_tflops, peak_tflops]
        name = f"arithmetic, {number(peak_tflops)} TFLOP/s"
        lines.append(line(name, x, y, "compute", width=2.5))
    return lines
