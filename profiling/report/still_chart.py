"""Draws a figure as a small SVG without plotly, for a page whose reader lets no script run.

Horizontal bars and lines are drawn. Of another figure a page has the sentence of chart_words alone.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from cli.plain import without_controls
from profiling.report.chart_words import plain
from profiling.report.document import Chart

WIDTH, LETTER, LINE = 640, 7.2, 20  # pixels; of a letter on average
RIGHT, BELOW, TICKS = 60, 42, 5
MOST = 5_000  # characters, so that all charts of a page together take less than 100 kB
DETAILS = ("run", "spread")  # kinds of traces beside a group's mean
Trace = dict[str, Any]  # plotly's, of a shape for each type


@dataclass(frozen=True)
class Axis:
    """Maps the values from `low` to `high` to pixels."""

    low: float
    high: float
    begin: float
    end: float
    is_log: bool = False

    def at(self, value: float) -> float:
        low, high, value = map(math.log10 if self.is_log else float, (self.low, self.high, value))
        return round(self.begin + (value - low) / (high - low) * (self.end - self.begin), 1)

    def ticks(self) -> list[float]:
        if self.is_log:
            exponents = range(math.ceil(math.log10(self.low)), math.ceil(math.log10(self.high)))
            return [10.0**exponent for exponent in exponents]
        rough = (self.high - self.low) / TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * digit for digit in (1, 2, 5, 10) if power * digit >= rough)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [number * step for number in range(first, last + 1)]


def still_chart(chart: Chart) -> Markup | None:
    """The chart as SVG; None for one of another kind, without values or with very many."""
    figure: Any = chart.figure
    layout = figure["layout"]
    data = [trace for trace in figure["data"] if trace.get("meta", {}).get("kind") not in DETAILS]
    top = 10 + LINE * len(legend_rows(data))
    if not data or not all(is_finite(trace) for trace in data):
        return None
    if all(is_bar(trace) for trace in data) and layout.get("barmode") in (None, "group", "stack"):
        parts = list(bars(data, layout, top, chart.height - BELOW))
    elif all(trace["type"] == "scatter" for trace in data):
        parts = list(lines(data, layout, top, chart.height - BELOW))
    else:
        return None
    title = plain(str(layout["xaxis"].get("title", {}).get("text", "")))
    parts += [*legend(data), words(WIDTH / 2, chart.height - 6, title, "middle")]
    whole = Markup('<svg viewBox="0 0 {} {}">{}</svg>')
    made = whole.format(WIDTH, chart.height, Markup("").join(parts))
    return made if len(made) <= MOST else None


def is_bar(trace: Trace) -> bool:
    """Whether it is a horizontal bar, from zero on to what is not negative."""
    return (
        trace["type"] == "bar"
        and trace.get("orientation") == "h"
        and not {"base", "offset"} & set(trace)
        and min(trace["x"]) >= 0 < max(trace["x"])
    )


def is_finite(trace: Trace) -> bool:
    """Whether it has values, and all of them are numbers."""
    values = trace.get("x"), () if trace["type"] == "bar" else trace.get("y")
    known = [value for column in values for value in column or ()]
    return bool(known) and all(isinstance(v, int | float) and math.isfinite(v) for v in known)


def words(x: float, y: float, text: str, anchor: str = "start") -> Markup:
    made = Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>')
    return made.format(x, y, anchor, without_controls(text))


def rectangle(x: float, y: float, width: float, height: float, shade: str) -> Markup:
    box = Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" style="fill:{}"/>')
    return box.format(x, y, width, height, shade)


def shade_of(trace: Trace, place: int = 0) -> str:
    """The colour of a trace, or of its bar at this place, for a style."""
    style = trace.get("line") if trace["type"] == "scatter" else None
    named = (style or trace.get("marker") or {}).get("color", "var(--accent)")
    shade = str(named[place] if isinstance(named, list) else named)
    return f"{shade[:-1]}, var(--other))" if shade.startswith("var(") else shade


def legend_rows(data: Sequence[Trace]) -> list[list[Trace]]:
    """The named traces in rows that fit, if there are several."""
    named = [trace for trace in data if trace.get("name") and trace.get("showlegend") is not False]
    rows: list[list[Trace]] = []
    for trace in named if len(named) > 1 else []:
        if not rows or sum(map(entry_width, [*rows[-1], trace])) > WIDTH:
            rows.append([])
        rows[-1].append(trace)
    return rows


def entry_width(trace: Trace) -> float:
    return LETTER * len(plain(trace["name"])) + 40


def legend(data: Sequence[Trace]) -> Iterator[Markup]:
    for number, row in enumerate(legend_rows(data)):
        x = 10.0
        for trace in row:
            yield rectangle(x, LINE * number + 4, 11, 11, shade_of(trace))
            yield words(x + 16, LINE * number + 14, plain(trace["name"]))
            x += entry_width(trace)


def ticks_of(axis: Axis, bottom: float) -> Iterator[Markup]:
    for value in axis.ticks():
        yield words(axis.at(value), bottom + 16, f"{value:g}", "middle")


def bars(data: Sequence[Trace], layout: Trace, top: float, bottom: float) -> Iterator[Markup]:
    """Bars that stack, or lie side by side; the first name is at the bottom, as in plotly."""
    names = list(dict.fromkeys(str(name) for trace in data for name in trace["y"]))
    sums = dict.fromkeys(names, 0.0)
    stacked = layout.get("barmode") == "stack"
    for trace in data:
        for name, value in zip(map(str, trace["y"]), trace["x"], strict=True):
            sums[name] = sums[name] + value if stacked else max(sums[name], value)
    left = 10 + LETTER * max(len(plain(name)) for name in names)
    axis = Axis(0, max(sums.values()), left + 6, WIDTH - RIGHT)
    pitch = (bottom - top) / len(names)
    upwards = names if layout["yaxis"].get("autorange") == "reversed" else names[::-1]
    height, ends = 0.8 * pitch / (1 if stacked else len(data)), dict.fromkeys(names, 0.0)
    for name in names:
        middle = top + pitch * (upwards.index(name) + 0.5)
        yield words(left, middle + 4, plain(name), "end")
    for number, trace in enumerate(data):
        for place, (name, value) in enumerate(zip(map(str, trace["y"]), trace["x"], strict=True)):
            begin = ends[name] if stacked else 0.0
            ends[name] = begin + value
            slot = 0 if stacked else len(data) - 1 - number
            y = top + pitch * (upwards.index(name) + 0.1) + slot * height
            x, end = axis.at(begin), axis.at(ends[name])
            yield rectangle(x, y, end - x, height, shade_of(trace, place))
            if not stacked and isinstance(trace.get("text"), list):
                yield words(end + 4, y + height / 2 + 4, plain(str(trace["text"][place])))
    yield from ticks_of(axis, bottom)


def lines(data: Sequence[Trace], layout: Trace, top: float, bottom: float) -> Iterator[Markup]:
    x = axis_of(layout["xaxis"], [x for trace in data for x in trace["x"]], 70, WIDTH - RIGHT)
    y = axis_of(layout["yaxis"], [y for trace in data for y in trace["y"]], bottom, top)
    for trace in data:
        places = [(x.at(a), y.at(b)) for a, b in zip(trace["x"], trace["y"], strict=True)]
        path, shade = " ".join(f"{a},{b}" for a, b in places), shade_of(trace)
        if "lines" in trace.get("mode", "lines"):
            line = Markup('<polyline points="{}" fill="none" style="stroke:{}"/>')
            yield line.format(path, shade)
        if "markers" in trace.get("mode", "lines"):
            for a, b in places:
                yield Markup('<circle cx="{}" cy="{}" r="3" style="fill:{}"/>').format(a, b, shade)
    for value in y.ticks():
        yield words(64, y.at(value) + 4, f"{value:g}", "end")
    yield from ticks_of(x, bottom)


def axis_of(layout: Trace, values: Sequence[float], begin: float, end: float) -> Axis:
    is_log = layout.get("type") == "log" and min(values) > 0
    if "range" in layout and (is_log or layout.get("type") != "log"):
        low, high = (10.0**end if is_log else end for end in layout["range"])
    else:
        low, high = min(values), max(values)
        low = min(low, 0.0) if layout.get("rangemode") == "tozero" else low
    if high <= low:
        return Axis(low - 1, high + 1, begin, end)
    return Axis(low, high, begin, end, is_log)
