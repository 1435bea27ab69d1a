"""The dashboard's charts: figures as plain dicts, with few enough points to draw at once.

A chart of curves names its metric in `layout.meta`. A trace says in `meta` whether it is the mean
or the spread of a group, or one of its runs, and has iterations and seconds, between which the page
switches. The browser follows a run that goes on (templates/dashboard_curves.js): it adds rows to
the lines of runs and computes the means. Colours are names of profiling.report.palette. Called by
profiling.report.dashboard.document.
"""

from dataclasses import dataclass, field
from html import escape
from typing import TypedDict

import numpy as np

from profiling.analysis.runs.folder import RunFolder, Series
from profiling.analysis.runs.groups import Group, Section, Spread, spread_of, time_to_loss
from profiling.report.charts import axis, colour, figure, scatter
from profiling.report.document import Column, Figure, Table
from profiling.report.palette import configuration_colours
from profiling.shared.metric_names import VAL_LOSS, Metric

DASHES = {"solid": "none", "dash": "9 9", "dot": "3 3", "dashdot": "9 3 3 3"}
# the same for all, so that charts align; an axis that needed more would make plotly draw twice
MARGIN = {"l": 64, "r": 14, "t": 8, "b": 50}
POINTS_OF_CHART = 5000  # points that draw in a moment; a chart's curves share them
POINTS_OF_CURVE = (100, 400)  # least, most
POINTS_OF_RUN = (50, 200)  # least, most for one run of a group, whose mean is drawn too
SPIKES = {  # the line at the x under the pointer
    "showspikes": True,
    "spikemode": "across",
    "spikesnap": "data",
    "spikedash": "dot",
    "spikethickness": 1,
    "spikecolor": "var(--muted)",
}
MOST_BOXES = 16
MOST_IN_HOVER = 8  # curves up to which the hover text lists all of them
LOSS_GRID = 80  # losses at which the time to reach them is drawn
EARLY = 0.05  # share of the time of all evaluations; what is reached in it would fill the chart
COMMON = (0.01, 0.99)  # quantiles between which `common` shows all values
WHISKERS = (0.01, 0.25, 0.5, 0.75, 0.99)
MEAN, SPREAD, RUN = "mean", "spread", "run"  # kinds of a trace


@dataclass(frozen=True)
class Axes:
    """The x of each point, on the axis that is shown and on the one to switch to."""

    shown: np.ndarray
    meta: dict[str, np.ndarray] = field(default_factory=dict)  # the other axis, by name


class CurveStyle(TypedDict):
    """Colour and dash of the curves of a configuration."""

    color: str
    dash: str  # plotly's
    dasharray: str  # the same in SVG


def curve_styles(section: Section) -> list[CurveStyle]:
    """A style for each group of the section; groups with the same colour differ in their dash.

    Of groups with the same attention backend the one that differs in nothing else has its colour.
    """
    backends = [group.settings.get("attention") for group in section.groups]
    own = [f"attention={backend}" for backend in backends]
    labels = [group.label for group in section.groups]
    known = [
        backend if label == name or name not in labels else None
        for backend, name, label in zip(backends, own, labels, strict=True)
    ]
    names, dashes = configuration_colours(known), list(DASHES.items())
    earlier = [names[:number].count(name) for number, name in enumerate(names)]
    return [
        CurveStyle(color=colour(name), dash=dash, dasharray=dasharray)
        for name, count in zip(names, earlier, strict=True)
        for dash, dasharray in [dashes[count % len(dashes)]]
    ]


def line_style(style: CurveStyle, number: int) -> Figure:
    """Style of curve `number`. The first curves are wider, to show under later ones on them."""
    width = max(1.4, 3.2 - 0.9 * number)
    return {"color": style["color"], "dash": style["dash"], "width": width}


def curves(
    section: Section, metric: Metric, over_time: bool = False, common: bool = False
) -> Figure | None:
    """A chart of the metric, or None without values.

    It has a line for each group, a thin one for each run of a group of several, and a band where
    these differ. With `common` the y axis spans zero and the usual values; outliers show after a
    double click.
    """
    spreads = [spread_of(group.runs, metric.name) for group in section.groups]
    count = sum(spread is not None for spread in spreads)
    if not count:
        return None
    (least, most), scale = POINTS_OF_CURVE, metric.scale
    points = max(least, min(most, POINTS_OF_CHART // count))
    bands, single, lines, settled = [], [], [], []
    styles = curve_styles(section)
    for number, (group, spread) in enumerate(zip(section.groups, spreads, strict=True)):
        if spread is None:
            continue
        style = styles[number]
        shown = decimate(spread, points)
        axes = axes_of(shown, over_time)
        if (shown.high > shown.low).any():
            low, high = shown.low * scale, shown.high * scale
            bands.append(band(group, number, style, low, high, axes))
        single += run_lines(section, group, number, style, metric, over_time)
        lines.append(line(group, number, style, shown.mean * scale, axes))
        settled.append(shown.mean[len(shown.mean) // 20 :] * scale)
    xaxis = axis(seconds_axis(section) if over_time else "iteration")
    yaxis = axis(metric.unit)
    if common:
        yaxis["range"] = common_range(settled)
    meta = {"metric": metric.name, "scale": scale, "over_time": over_time}
    shown_lines = count + len(single)
    return line_chart(bands + single + lines, xaxis, yaxis, shown_lines, meta=meta)


def axes_of(spread: Spread, over_time: bool) -> Axes:
    iteration = np.round(spread.iteration).astype(int)
    if over_time:
        return Axes(spread.elapsed_s, {"iteration": iteration})
    return Axes(iteration, {"elapsed_s": spread.elapsed_s})


def run_lines(
    section: Section,
    group: Group,
    number: int,
    style: CurveStyle,
    metric: Metric,
    over_time: bool,
) -> list[Figure]:
    """A thin line for each run of a group that has several: the group's mean hides them."""
    if len(group.runs) == 1:
        return []
    (least, most), made = POINTS_OF_RUN, []
    points = max(least, min(most, POINTS_OF_CHART // len(section.runs)))
    for run in group.runs:
        spread = spread_of([run], metric.name)
        if spread is None:
            continue
        shown = decimate(spread, points)
        thin: Figure = {"line": {"color": style["color"], "width": 1}, "opacity": 0.45}
        hover = {"hovertemplate": "%{y:.5g}<extra>%{fullData.name}</extra>"}
        axes, y = axes_of(shown, over_time), shown.mean * metric.scale
        mode = "lines" if len(y) > 1 else "markers"
        made.append(curve(run.name, number, y, axes, RUN, run, mode=mode, **thin, **hover))
    return made


def line_chart(
    data: list[Figure], xaxis: Figure, yaxis: Figure, curves: int, **layout: object
) -> Figure:
    hover = "x unified" if curves <= MOST_IN_HOVER else "closest"
    common = {"margin": MARGIN, "showlegend": False, "hovermode": hover}
    return figure(data, xaxis | SPIKES, yaxis, **common, **layout)


def common_range(settled: list[np.ndarray]) -> list[float]:
    """Range of the y axis, from zero so that lengths compare; the first points may stick out."""
    low = min(float(np.quantile(y, COMMON[0])) for y in settled)
    high = max(float(np.quantile(y, COMMON[1])) for y in settled)
    return [min(0.0, 1.1 * low), max(0.0, 1.1 * high) or 1.0]


def decimate(spread: Spread, points: int) -> Spread:
    """The spread with at most `points`: neighbours become their mean, and the band around all."""
    count = len(spread.mean)
    if count <= points:
        return spread
    starts = np.linspace(0, count, points, endpoint=False).astype(int)
    sizes = np.diff(starts, append=count)
    columns = (spread.iteration, spread.elapsed_s, spread.mean)
    iteration, elapsed_s, mean = (np.add.reduceat(column, starts) / sizes for column in columns)
    low, high = np.minimum.reduceat(spread.low, starts), np.maximum.reduceat(spread.high, starts)
    return Spread(iteration, elapsed_s, mean, low, high)


def round_values(values: np.ndarray) -> list[float]:
    """The values to five significant digits, which is what shows, in a third of the bytes."""
    if np.issubdtype(values.dtype, np.integer):
        whole: list[float] = values.tolist()
        return whole
    return [float(f"{value:.5g}") for value in values.tolist()]


def there_and_back(there: np.ndarray, back: np.ndarray) -> np.ndarray:
    return np.concatenate([there, back[::-1]])


def line(group: Group, number: int, style: CurveStyle, y: np.ndarray, axes: Axes) -> Figure:
    shown = line_style(style, number)
    hover = "%{y:.5g}<extra>%{fullData.name}</extra>"
    mode = "lines" if len(y) > 1 else "markers"
    only = group.runs[0] if len(group.runs) == 1 else None
    return curve(
        group.label, number, y, axes, MEAN, only, mode=mode, line=shown, hovertemplate=hover
    )


def band(
    group: Group,
    number: int,
    style: CurveStyle,
    low: np.ndarray,
    high: np.ndarray,
    axes: Axes,
) -> Figure:
    """A band from the least to the greatest value of a group, as one closed shape."""
    other = {name: there_and_back(x, x) for name, x in axes.meta.items()}
    return curve(
        f"{group.label}, spread",
        number,
        there_and_back(high, low),
        Axes(there_and_back(axes.shown, axes.shown), other),
        SPREAD,
        fill="toself",
        fillcolor=style["color"],
        line={"width": 0, "color": style["color"]},
        opacity=0.2,
        hoverinfo="skip",
    )


def curve(
    name: str,
    number: int,
    y: np.ndarray,
    axes: Axes,
    kind: str,
    run: RunFolder | None = None,
    **style: object,
) -> Figure:
    """A curve with its meta. `run` is given if the line is of one run, whose new rows extend it."""
    trace = scatter(
        escape(name), round_values(axes.shown), round_values(y), legendgroup=str(number)
    )
    meta: Figure = {"kind": kind} | {other: round_values(x) for other, x in axes.meta.items()}
    if run:
        meta["run"] = run.name
    return trace | {"meta": meta} | style


def scatter_of_runs(section: Section, table: Table) -> Figure | None:
    """A point for each run: the first key that differs and has numbers, against the step time.

    The page draws any two columns of the `table` of runs so. None without step times.
    """
    columns = {column.heading: column for column in table.columns}
    numeric = (
        key
        for key in section.differs
        if all(number_in(columns[key], run) is not None for run in section.runs)
    )
    x, y = next(numeric, "iterations"), "step, ms"
    if all(number_in(columns[y], run) is None for run in section.runs):
        return None
    data = [
        scatter(
            escape(group.label),
            [number_in(columns[x], run) for run in group.runs],
            [number_in(columns[y], run) for run in group.runs],
            mode="markers",
            marker={"color": style["color"], "size": 10},
        )
        for group, style in zip(section.groups, curve_styles(section), strict=True)
    ]
    layout: Figure = {"margin": MARGIN, "showlegend": False, "meta": {"points": [x, y]}}
    return figure(data, axis(x), axis(y), **layout)


def number_in(column: Column, run: RunFolder) -> float | None:
    """The number in a run's cell, whether it stands there as a number or as text."""
    try:
        return float(str(column.value_of(run)))
    except ValueError:
        return None


def step_boxes(section: Section) -> list[Figure]:
    """Boxes of step times, one for each run, or one for each group where there are many runs."""
    groups = list(enumerate(section.groups))
    entries = [
        (run.name if group.label in run.name else f"{group.label} · {run.name}", [run], number)
        for number, group in groups
        for run in group.runs
        if len(run.step_ms)
    ]
    if len(entries) > MOST_BOXES:
        entries = [(group.label, group.runs, number) for number, group in groups]
    styles = curve_styles(section)
    return [
        box(name, step_ms, number, styles[number])
        for name, runs, number in entries
        if len(step_ms := np.concatenate([run.step_ms for run in runs]))
    ]


def step_times(boxes: list[Figure]) -> Figure | None:
    if not boxes:
        return None
    yaxis: Figure = {"autorange": "reversed", "type": "category"}
    return figure(boxes, axis("step time, ms"), yaxis, showlegend=False)


def box(name: str, step_ms: np.ndarray, number: int, style: CurveStyle) -> Figure:
    low, q1, median, q3, high = (round(float(q), 5) for q in np.quantile(step_ms, WHISKERS))
    return {
        "type": "box",
        "orientation": "h",
        "name": escape(name),
        "legendgroup": str(number),
        "y": [escape(name)],
        "lowerfence": [low],
        "q1": [q1],
        "median": [median],
        "q3": [q3],
        "upperfence": [high],
        "line": {"color": style["color"], "width": 1.5},
        "fillcolor": "rgba(128,128,128,0.15)",
    }


def time_to_each_loss(section: Section, loss: float | None) -> Figure | None:
    """Seconds until each group first reaches a validation loss, for every loss, or None."""
    columns = [r.columns[VAL_LOSS.name] for r in section.runs if VAL_LOSS.name in r.columns]
    if not columns:
        return None
    worst = max(map(early_value, columns))
    best = min(float(column.value.min()) for column in columns)
    # the grid is finer near the best losses, which take long to reach
    losses = best + (worst - best) * np.linspace(0, 1, LOSS_GRID) ** 2
    data = []
    for number, (group, style) in enumerate(
        zip(section.groups, curve_styles(section), strict=True)
    ):
        seconds = np.stack([time_to_loss(run, losses) for run in group.runs])
        known = np.isfinite(seconds).all(axis=0)
        if not known.any():
            continue
        reached, there = seconds[:, known], losses[known]
        if len(group.runs) > 1:
            low, high = reached.min(axis=0), reached.max(axis=0)
            data.append(band(group, number, style, low, high, Axes(there)))
        data.append(line(group, number, style, reached.mean(axis=0), Axes(there)))
    xaxis = axis("validation loss to reach", autorange="reversed")
    yaxis = axis(seconds_axis(section), rangemode="tozero")
    shapes = [vertical_line(loss)] if loss is not None and best <= loss <= worst else []
    return line_chart(data, xaxis, yaxis, len(section.groups), shapes=shapes)


def early_value(losses: Series) -> float:
    first, last = losses.elapsed_s[[0, -1]]
    return float(np.interp(first + EARLY * (last - first), losses.elapsed_s, losses.value))


def seconds_axis(section: Section) -> str:
    return f"{section.time_axis}, s"


def vertical_line(x: float) -> Figure:
    style = {"color": "var(--muted)", "width": 1.5, "dash": "dot"}
    return {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": style}
