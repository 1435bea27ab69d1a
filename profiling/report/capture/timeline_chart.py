"""The timeline of one step as plotly draws it: a trace for each colour, a bar for each event.

Called by profiling.report.capture.document. Rows from above: host ranges by depth, API calls by
thread, the idle gaps of the GPU, its streams.
"""

from html import escape

import numpy as np

from profiling.analysis.gpu_time.median_step import MedianStep, Slices
from profiling.causes import part_named
from profiling.report.capture.charts import called
from profiling.report.charts import colour
from profiling.report.document import Figure
from profiling.report.kernel_label import kernel_label
from profiling.units import duration_ns

ROW_PX = 42
FEWEST_ROWS_PX = 260


def timeline_height(step: MedianStep) -> int:
    return max(FEWEST_ROWS_PX, ROW_PX * len(rows_of(step)) + 150)


def timeline(step: MedianStep) -> Figure:
    rows = rows_of(step)
    place = {row: len(rows) - 1 - index for index, row in enumerate(rows)}
    data = [
        *range_bars(step, "ranges", "host", step.ranges, place),
        *call_bars(step, place),
        *range_bars(step, "projected", "step", step.projected, place),
    ]
    data += [*gap_bars(step, place), *operation_bars(step, place)]
    whole_ms = (step.end_ns - step.start_ns) / 1e6
    layout = {
        "barmode": "overlay",
        "bargap": 0.18,
        "dragmode": "zoom",
        "hovermode": "closest",
        "margin": {"l": 10, "r": 20, "t": 30, "b": 120},
        "uniformtext": {"mode": "hide", "minsize": 11},
        "xaxis": {
            "title": {"text": "ms since the step began"},
            "range": [-0.005 * whole_ms, 1.005 * whole_ms],
            "showspikes": True,
            "spikemode": "across",
            "spikethickness": 1,
            "spikecolor": colour("muted"),
        },
        "yaxis": {
            "tickvals": list(place.values()),
            "ticktext": [f"{escape(label)} " for _, _, label in rows],
            "range": [-0.6, len(rows) - 0.4],
            "automargin": True,
            "fixedrange": True,
            "showgrid": False,
            "zeroline": False,
        },
        "legend": {
            "orientation": "h",
            "yref": "container",  # at the bottom of the chart, under the axis
            "y": 0,
            "yanchor": "bottom",
            "itemsizing": "constant",
        },
    }
    return {"data": data, "layout": layout}


Lane = tuple[str, int, str]  # kind, lane, what the axis calls it


def rows_of(step: MedianStep) -> list[Lane]:
    """The rows that have something to show, from above."""
    depths = [
        ("ranges", int(lane), ("host phase", "inside")[min(lane, 1)]) for lane in lanes(step.ranges)
    ]
    threads = lanes(step.calls)
    calls = [
        (
            "calls",
            int(lane),
            "CUDA calls" if len(threads) == 1 else f"CUDA calls, thread {index + 1}",
        )
        for index, lane in enumerate(threads)
    ]
    gaps = [("gaps", 0, "GPU idle")] if len(step.gaps.start_ns) else []
    streams = [("operations", int(lane), f"stream {lane}") for lane in lanes(step.operations)]
    projected = [("projected", 0, "GPU phase")] if len(step.projected.start_ns) else []
    return [*depths, *calls, *projected, *gaps, *streams]


def lanes(slices: Slices) -> np.ndarray:
    return np.unique(slices.lane)


def bars(
    step: MedianStep,
    kind: str,
    slices: Slices,
    place: dict[Lane, int],
    hover: list[str],
    **style: object,
) -> Figure:
    """One trace of bars, lying on the row of their lane."""
    row = {lane: at for (of, lane, _), at in place.items() if of == kind}
    begin_ms = (slices.start_ns - step.start_ns) / 1e6
    return {
        "type": "bar",
        "orientation": "h",
        "base": begin_ms.round(6).tolist(),
        "x": ((slices.end_ns - slices.start_ns) / 1e6).round(6).tolist(),
        "y": [row[lane] for lane in slices.lane.tolist()],
        "width": 0.86,
        "hovertext": hover,
        "hovertemplate": "%{hovertext}<br>at %{base:.3f} ms<extra></extra>",
        "textposition": "none",
        **style,
    }


def marker(shade: str) -> Figure:
    return {"color": colour(shade), "line": {"width": 0}}


def hover_of(step: MedianStep, slices: Slices) -> list[str]:
    took = (slices.end_ns - slices.start_ns).tolist()
    names = [escape(kernel_label(step.names[name])) for name in slices.name.tolist()]
    return [f"<b>{name}</b><br>{duration_ns(ns)}" for name, ns in zip(names, took, strict=True)]


def range_bars(
    step: MedianStep, kind: str, shade: str, ranges: Slices, place: dict[Lane, int]
) -> list[Figure]:
    """Phases and ranges with their names in them."""
    if not len(ranges.start_ns):
        return []
    names = [escape(step.names[name]) for name in ranges.name.tolist()]
    style = {
        "showlegend": False,
        "marker": {"color": colour(shade), "line": {"width": 1, "color": colour("card")}},
        "text": names,
        "textposition": "inside",
        "insidetextanchor": "start",
        "insidetextfont": {"color": "#fff"},
        "textangle": 0,
    }
    return [bars(step, kind, ranges, place, hover_of(step, ranges), **style)]


def call_bars(step: MedianStep, place: dict[Lane, int]) -> list[Figure]:
    """Calls that wait for the GPU in a colour of their own."""
    found = []
    for name, shade, chosen in (
        ("CUDA calls", "call", ~step.waits),
        ("calls that wait", "synchronization", step.waits),
    ):
        if chosen.any():
            calls = step.calls.rows(chosen)
            style = {"name": name, "marker": marker(shade)}
            found.append(bars(step, "calls", calls, place, hover_of(step, calls), **style))
    return found


def gap_bars(step: MedianStep, place: dict[Lane, int]) -> list[Figure]:
    found = []
    for cause in dict.fromkeys(step.causes):
        gaps = step.gaps.rows(np.array([each == cause for each in step.causes]))
        took = (gaps.end_ns - gaps.start_ns).tolist()
        hover = [f"<b>{part_named(cause).meaning}</b><br>{duration_ns(ns)}" for ns in took]
        style = {"name": called(part_named(cause)), "marker": marker(cause)}
        found.append(bars(step, "gaps", gaps, place, hover, **style))
    return found


def operation_bars(step: MedianStep, place: dict[Lane, int]) -> list[Figure]:
    """A trace for each family, the one with the most time first."""
    took = step.operations.end_ns - step.operations.start_ns
    families = np.array(step.families, dtype=object)
    total = {family: took[families == family].sum() for family in dict.fromkeys(step.families)}
    found = []
    for family in sorted(total, key=total.__getitem__, reverse=True):
        chosen = families == family
        operations = step.operations.rows(chosen)
        hover = [
            f"{told}<br>{family}{f', launched in {escape(owner)}' if owner else ''}"
            for told, owner in zip(
                hover_of(step, operations),
                (step.owners[row] for row in np.flatnonzero(chosen)),
                strict=True,
            )
        ]
        style = {"name": family, "marker": marker(family)}
        found.append(bars(step, "operations", operations, place, hover, **style))
    return found
