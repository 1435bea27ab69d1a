"""Figures for plotly as plain dicts, drawn by templates/charts.js: the parts that charts share.

A colour is a name that a page knows, so that it follows the theme: var(--gemm) of
profiling.report.palette, var(--launch) of profiling.shared.causes; an unknown name is drawn in a
neutral colour. Plotly reads markup in texts, so names go through html.escape.
"""

import math
from collections.abc import Sequence

from profiling.report.document import Figure
from profiling.shared.units import number

MARGIN = {"l": 10, "r": 20, "t": 10, "b": 10}  # plotly widens it by what axes and legend need
ABOVE: Figure = {"orientation": "h", "y": 1.02, "yanchor": "bottom"}  # a legend above the chart
NAMES: Figure = {"fixedrange": True, "ticksuffix": " "}  # an axis with a name for each bar
INSIDE: Figure = {  # text inside a bar
    "textposition": "inside",
    "insidetextfont": {},  # colours.js makes it black or white, whichever is read better
    "textangle": 0,
}
ROOM_FOR_TEXT: Figure = {"mode": "hide", "minsize": 11}  # text that would be smaller is left out


def figure(data: Sequence[Figure], xaxis: Figure, yaxis: Figure, **layout: object) -> Figure:
    """A figure with the usual layout. `layout` overrides or adds to that."""
    common = {"margin": MARGIN, "legend": ABOVE, "xaxis": xaxis, "yaxis": yaxis}
    return {"data": data, "layout": common | layout}


def colour(name: str) -> str:
    return f"var(--{name})"


def axis(title: str, **more: object) -> Figure:
    return {"title": {"text": title}, **more}


def fixed(title: str, **more: object) -> Figure:
    """An axis that does not zoom."""
    return axis(title, fixedrange=True, **more)


def logarithmic(title: str, low: float, high: float) -> Figure:
    ends = [math.log10(low), math.log10(high)]
    return fixed(title, type="log", range=ends, **log_ticks(low, high))


def log_ticks(low: float, high: float) -> Figure:
    """Ticks at powers of ten, with 2 and 5 times them where the powers are few.

    The outermost ticks may lie beyond the ends.
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    digits = (1, 2, 5) if len(powers) <= 4 else (1,)
    values = [digit * 10.0**power for power in powers for digit in digits]
    return {"tickvals": values, "ticktext": list(map(number, values))}


def bars(
    places: Sequence[str | int],
    lengths: Sequence[float | None],
    shade: str | list[str],
    **more: object,
) -> Figure:
    """Horizontal bars at `places`, which are names or numbers."""
    marker = {"color": shade}
    return {"type": "bar", "orientation": "h", "y": places, "x": lengths, "marker": marker, **more}


def scatter(
    name: str,
    x: Sequence[float | None],
    y: Sequence[float | None],
    mode: str = "lines",
    **more: object,
) -> Figure:
    """A series of points, or of lines between them."""
    return {"type": "scatter", "mode": mode, "name": name, "x": x, "y": y, **more}


def guide(name: str, x: Sequence[float], y: Sequence[float], shade: str, **style: object) -> Figure:
    """A line for reference, which nothing measured: without hover text."""
    return scatter(name, x, y, line={"color": colour(shade), **style}, hoverinfo="skip")


def roofline(
    data: Sequence[Figure],
    points: Sequence[tuple[float, float]],
    peak_tflops: float | None,
    peak_gbps: float | None,
    traffic: str,
    **layout: object,
) -> Figure:
    """TFLOP/s over FLOP per byte of `traffic`, with roofs that span all the points.

    The roof of memory bandwidth rises to the ridge, and that of arithmetic goes on from there.
    """
    ridge = [peak_tflops * 1e3 / peak_gbps] if peak_tflops and peak_gbps else []
    flops_per_byte, tflops = zip(*points, strict=True)
    left, right = min([*flops_per_byte, *ridge]) / 4, max([*flops_per_byte, *ridge]) * 6
    roofs = []
    if peak_gbps:
        x = [left, *(ridge or [right])]
        y = [intensity * peak_gbps / 1e3 for intensity in x]
        roofs.append(guide(f"memory, {number(peak_gbps)} GB/s", x, y, "text", width=2))
    if peak_tflops:
        x, y = [*(ridge or [left]), right], [peak_tflops, peak_tflops]
        name = f"arithmetic, {number(peak_tflops)} TFLOP/s"
        roofs.append(guide(name, x, y, "text", width=2, dash="dash"))
    xaxis = logarithmic(f"FLOP per byte {traffic}", left, right)
    yaxis = logarithmic("TFLOP/s", min(tflops) / 3, (peak_tflops or max(tflops)) * 2)
    return figure([*roofs, *data], xaxis, yaxis, **layout)
