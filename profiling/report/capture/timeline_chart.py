"""The timeline of one step as plotly draws it: a trace for each colour, a bar for each event.

Called by profiling.report.capture.document. Rows from above: host ranges by depth, API calls by
thread, the idle gaps of the GPU, its streams.
"""

from collections import Counter
from html import escape
from itertools import compress

import numpy as np

from profiling.analysis.gpu_time.median_step import MedianStep, Slices
from profiling.causes import part_named
from profiling.report import charts
from profiling.report.capture.charts import called
from profiling.report.charts import (
    ABOVE,
    INSIDE,
    MARGIN,
    NAMES,
    ROOM_FOR_TEXT,
    axis,
    colour,
    figure,
)
from profiling.report.document import Figure
from profiling.report.kernel_label import kernel_label
from profiling.units import duration_ns

ROW_PX = 42
FEWEST_ROWS_PX = 260
CALLS = {"call": "CUDA calls", "synchronization": "calls that wait"}  # colour -> legend
Lane = tuple[str, int]  # kind, and which of them: depth, thread or stream
Place = dict[Lane, int]  # y of each row


def timeline_height(step: MedianStep) -> int:
    return max(FEWEST_ROWS_PX, ROW_PX * len(rows_of(step)) + 150)


def timeline(step: MedianStep) -> Figure:
    rows = rows_of(step)
    place = {row: len(rows) - 1 - index for index, row in enumerate(rows)}
    data = [
        *range_bars(step, "ranges", step.ranges, place, "host"),
        *call_bars(step, place),
        *range_bars(step, "projected", step.projected, place, "step"),
        *gap_bars(step, place),
        *operation_bars(step, place),
    ]
    whole_ms = (step.end_ns - step.start_ns) / 1e6
    xaxis = axis(
        "ms since the step began",
        range=[-0.005 * whole_ms, 1.005 * whole_ms],
        showspikes=True,
        spikemode="across",
        spikethickness=1,
        spikecolor=colour("muted"),
    )
    yaxis = NAMES | {
        "tickvals": list(place.values()),
        "ticktext": list(rows.values()),
        "range": [-0.6, len(rows) - 0.4],
        "showgrid": False,
        "zeroline": False,
    }
    return figure(
        data,
        xaxis,
        yaxis,
        barmode="overlay",
        bargap=0.18,
        dragmode="zoom",
        hovermode="closest",
        margin=MARGIN | {"t": 30, "b": 120},
        uniformtext=ROOM_FOR_TEXT,
        # at the bottom of the chart, under the axis
        legend=ABOVE | {"yref": "container", "y": 0, "itemsizing": "constant"},
    )


def rows_of(step: MedianStep) -> dict[Lane, str]:
    """What the axis calls the rows that have something to show, from above."""
    several = len(lanes(step.calls)) > 1
    return {
        **{("ranges", lane): "inside" if lane else "host phase" for lane in lanes(step.ranges)},
        **{
            ("calls", lane): f"CUDA calls, thread {number}" if several else "CUDA calls"
            for number, lane in enumerate(lanes(step.calls), start=1)
        },
        **{("projected", lane): "GPU phase" for lane in lanes(step.projected)},
        **{("gaps", lane): "GPU idle" for lane in lanes(step.gaps)},
        **{("operations", lane): f"stream {lane}" for lane in lanes(step.operations)},
    }


def lanes(slices: Slices) -> list[int]:
    return np.unique(slices.lane).tolist()


def range_bars(
    step: MedianStep, kind: str, ranges: Slices, place: Place, shade: str
) -> list[Figure]:
    """Phases and ranges with their names in them."""
    if not len(ranges.start_ns):
        return []
    bar = bars(step, kind, ranges, place, hover_of(ranges, names_of(step, ranges)), shade)
    text = [escape(step.names[name]) for name in ranges.name.tolist()]
    marker = {"color": colour(shade), "line": {"width": 1, "color": colour("card")}}
    style = {"text": text, "insidetextanchor": "start", "marker": marker, "showlegend": False}
    return [bar | INSIDE | style]


def call_bars(step: MedianStep, place: Place) -> list[Figure]:
    """Calls that wait for the GPU in a colour of their own."""
    shades = np.where(step.waits, "synchronization", "call").tolist()
    hover = hover_of(step.calls, names_of(step, step.calls))
    return coloured_bars(step, "calls", step.calls, place, hover, shades, CALLS)


def gap_bars(step: MedianStep, place: Place) -> list[Figure]:
    causes = {cause: part_named(cause) for cause in step.causes}
    hover = hover_of(step.gaps, [causes[cause].meaning for cause in step.causes])
    legend = {name: called(cause) for name, cause in causes.items()}
    return coloured_bars(step, "gaps", step.gaps, place, hover, step.causes, legend)


def operation_bars(step: MedianStep, place: Place) -> list[Figure]:
    """The family with the most time comes first."""
    took = (step.operations.end_ns - step.operations.start_ns).tolist()
    total = Counter[str]()
    for family, ns in zip(step.families, took, strict=True):
        total[family] += ns
    legend = {family: family for family, _ in total.most_common()}
    launched = [f", launched in {escape(owner)}" if owner else "" for owner in step.owners]
    named = hover_of(step.operations, names_of(step, step.operations))
    told = zip(named, step.families, launched, strict=True)
    hover = [f"{name}<br>{family}{phase}" for name, family, phase in told]
    return coloured_bars(step, "operations", step.operations, place, hover, step.families, legend)


def coloured_bars(
    step: MedianStep,
    kind: str,
    slices: Slices,
    place: Place,
    hover: list[str],
    shades: list[str],
    legend: dict[str, str],
) -> list[Figure]:
    """A trace for each of the shades, in the order of the legend."""
    found = []
    for shade, name in legend.items():
        chosen = np.array([each == shade for each in shades], bool)
        if chosen.any():
            own, said = slices.rows(chosen), list(compress(hover, chosen))
            found.append(bars(step, kind, own, place, said, shade) | {"name": name})
    return found


def bars(
    step: MedianStep, kind: str, slices: Slices, place: Place, hover: list[str], shade: str
) -> Figure:
    """One trace of bars, lying on the row of their lane."""
    return charts.bars(
        [place[kind, lane] for lane in slices.lane.tolist()],
        ((slices.end_ns - slices.start_ns) / 1e6).round(6).tolist(),
        colour(shade),
        base=((slices.start_ns - step.start_ns) / 1e6).round(6).tolist(),
        width=0.86,
        hovertext=hover,
        hovertemplate="%{hovertext}<br>at %{base:.3f} ms<extra></extra>",
        textposition="none",
    )


def names_of(step: MedianStep, slices: Slices) -> list[str]:
    return [kernel_label(step.names[name]) for name in slices.name.tolist()]


def hover_of(slices: Slices, names: list[str]) -> list[str]:
    took = zip(names, (slices.end_ns - slices.start_ns).tolist(), strict=True)
    return [f"<b>{escape(name)}</b><br>{duration_ns(ns)}" for name, ns in took]
