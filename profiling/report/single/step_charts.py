"""Charts on the page of one capture, except the timeline.

Called by profiling.report.single.document. Each function returns a figure for plotly, or None
without data.
"""

import math
from html import escape

from profiling.analysis.records import Report, Roofline, RooflineRow
from profiling.report import charts
from profiling.report.charts import (
    ABOVE,
    INSIDE,
    MARGIN,
    NAMES,
    ROOM_FOR_TEXT,
    bars,
    colour,
    figure,
    fixed,
    guide,
    scatter,
)
from profiling.report.document import Figure
from profiling.report.single.step_slices import Slice, colours_of
from profiling.shared.units import milliseconds, percent

MOST_MARKERS = 200  # more would hide the line
SMALL_SHARE = 0.08  # share of the step below which a part has no room for its name
BAR_MS = "%{x:.3f} ms"
BEHIND: Figure = {"textposition": "outside", "cliponaxis": False}  # text at the end of a bar
ROOM_BEHIND = MARGIN | {"r": 60}  # margin with room for that text


def breakdown(slices: list[Slice], whole: str = "the typical step") -> Figure | None:
    """The `whole` as one bar of its slices."""
    if not slices:
        return None
    whole_ms = sum(each.ms for each in slices)
    data = []
    for each in slices:
        share, name, ms = each.ms / whole_ms, each.title, each.ms
        text = f"{name}<br>{milliseconds(ms)} ms" if share > SMALL_SHARE else ""
        hover = f"{name}<br><b>{BAR_MS}</b>, {percent(100 * share)} of {whole}<extra></extra>"
        if ms > 0:
            bar = bars([""], [ms], colour(each.colour), name=name, text=[text], hovertemplate=hover)
            marker = {"color": colour(each.colour), "line": {"width": 1, "color": colour("card")}}
            if each.hatch:
                marker["pattern"] = {"shape": each.hatch}
            data.append(bar | INSIDE | {"insidetextanchor": "middle", "marker": marker})
    return figure(
        data,
        fixed(f"ms of {whole}", range=[0, whole_ms]),
        {"showticklabels": False, "fixedrange": True},
        barmode="stack",
        uniformtext=ROOM_FOR_TEXT,
        bargap=0.05,
        legend=ABOVE | {"traceorder": "normal"},
        showlegend=True,
    )


def step_times(report: Report) -> Figure | None:
    """Every step time of the window, with the median, and that of uncaptured steps if known.

    None of a single step.
    """
    step, first = report.window.step_ms, report.window.first_iteration
    if len(step.values) < 2:
        return None
    x = [number + (first or 0) for number in range(len(step.values))]
    steps = scatter(
        "captured steps",
        x,
        step.values,
        "lines+markers" if len(x) <= MOST_MARKERS else "lines",
        line={"color": colour("accent"), "width": 1.5},
        marker={"size": 7},
        hovertemplate="step %{x}: %{y:.3f} ms<extra></extra>",
    )
    medians = [("median captured", step.median, "muted", "dash")]
    if report.health.free_step_ms is not None:
        medians.append(("uncaptured", report.health.free_step_ms, "good", "dot"))
    ends = [x[0], x[-1]]
    lines = [
        guide(f"{name}, {milliseconds(ms)} ms", ends, [ms, ms], shade, dash=dash, width=1.5)
        for name, ms, shade, dash in medians
    ]
    xaxis = fixed("step" if first is None else "iteration", tickformat="d")
    return figure([steps, *lines], xaxis, fixed("ms", rangemode="tozero"))


def phases(report: Report) -> Figure | None:
    """Host time beside GPU time of each phase, in ms per step."""
    rows = [entry for entry in report.ranges if entry.depth == 0][::-1]
    if not rows:
        return None
    names = [escape(entry.name) for entry in rows]
    gpu_ms, host_ms = [entry.gpu_ms for entry in rows], [entry.host_ms for entry in rows]
    data: list[Figure] = []
    host: str | list[str] = colour("host")
    if report.on_cpu:  # as in the bar of the step
        own = colours_of({row.name: row.host_ms for row in report.phases})
        host = [colour(own[entry.name]) for entry in rows]
    for name, shade, in_window in (("GPU", colour("compute"), gpu_ms), ("host", host, host_ms)):
        a_step = [None if ms is None else ms / report.window.steps for ms in in_window]
        text = list(map(milliseconds, a_step))
        hover = f"%{{y}}, {name}: {BAR_MS}<extra></extra>"
        if any(ms is not None for ms in a_step):
            bar = bars(names, a_step, shade, name=name, text=text, hovertemplate=hover)
            data.append(bar | BEHIND)
    legend = ABOVE | {"traceorder": "reversed"}
    return figure(data, fixed("ms per step"), NAMES, margin=ROOM_BEHIND, bargap=0.25, legend=legend)


def families(report: Report) -> Figure | None:
    """Kernel time by family, in ms over the whole capture."""
    rows = sorted(report.families, key=lambda family: family.total_ns)
    if not rows:
        return None
    bar = bars(
        [entry.family for entry in rows],
        [entry.total_ns / 1e6 for entry in rows],
        [colour(entry.family) for entry in rows],
        text=[percent(entry.percent) for entry in rows],
        customdata=[entry.count for entry in rows],
        hovertemplate=f"%{{y}}: {BAR_MS} in %{{customdata:,}} kernels<extra></extra>",
    )
    xaxis = fixed("ms in the whole capture")
    return figure([bar | BEHIND], xaxis, NAMES, margin=ROOM_BEHIND, bargap=0.25, showlegend=False)


def roofline(known: Roofline | None) -> Figure | None:
    """Achieved TFLOP/s over FLOP per byte, under the roofs of bandwidth and arithmetic."""
    rows = [row for row in known.families if row.flops and row.bytes] if known else []
    if not known or not rows:
        return None
    longest_ms = max(row.ms for row in rows)
    sizes = [9 + 24 * math.sqrt(row.ms / longest_ms) for row in rows]
    sides = label_sides(rows, sizes)
    return charts.roofline(
        [point(*each) for each in zip(rows, sizes, sides, strict=True)],
        [(row.flops_per_byte, row.tflops) for row in rows],
        known.peak_tflops,
        known.peak_gbps,
        "of device memory",
        legend={"itemsizing": "constant"},
    )


def point(row: RooflineRow, size: float, side: str) -> Figure:
    """A family's point, as a trace of its own: the legend says how near it is to its roof."""
    of_roof = percent(row.percent_of_bound)
    marker = {
        "color": colour(row.family),
        "size": size,
        "line": {"width": 1, "color": colour("card")},
    }
    hover = (
        f"<b>{row.family}</b>, {milliseconds(row.ms)} ms per step<br>"
        "%{y:.3g} TFLOP/s at %{x:.3g} FLOP/byte<br>"
        f"{of_roof} of the {row.bound} roof<extra></extra>"
    )
    name, x, y = f"{row.family}, {of_roof} of its roof", [row.flops_per_byte], [row.tflops]
    label = {"text": [row.family], "textposition": side, "cliponaxis": False}
    return scatter(name, x, y, "markers+text", marker=marker, hovertemplate=hover, **label)


def label_sides(rows: list[RooflineRow], sizes: list[float]) -> list[str]:
    """The side of each point on which its name stands, chosen to overlap as little as possible.

    Boxes are in pixels of a chart of the usual size: four decades wide, five high.
    """
    at = [(225 * math.log10(row.flops_per_byte), 60 * math.log10(row.tflops)) for row in rows]
    taken = [box(x, y, size, size) for (x, y), size in zip(at, sizes, strict=True)]
    sides = []
    for row, (x, y), size in zip(rows, at, sizes, strict=True):
        width, height = 8.0 * len(row.family), 16.0
        beside, above = (size + width) / 2 + 3, (size + height) / 2
        places = {
            "top center": box(x, y + above, width, height),
            "bottom center": box(x, y - above, width, height),
            "middle right": box(x + beside, y, width, height),
            "middle left": box(x - beside, y, width, height),
        }
        hits = {
            side: sum(overlap(place, other) for other in taken) for side, place in places.items()
        }
        sides.append(min(hits, key=hits.__getitem__))
        taken.append(places[sides[-1]])
    return sides


Box = tuple[float, float, float, float]  # left, bottom, right, top


def box(x: float, y: float, width: float, height: float) -> Box:
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def overlap(one: Box, other: Box) -> float:
    """The area that both boxes cover."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(width, 0.0) * max(height, 0.0)
