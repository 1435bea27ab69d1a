"""Describes a chart in a sentence, for screen readers. Called by profiling.report.renderers.page.

All numbers are in the table that a page opens below the chart.
"""

from collections.abc import Iterator, Sequence
from html import unescape
from typing import Any

from profiling.report.document import Chart
from profiling.shared.units import number

MOST = 12  # values that are listed one by one


def chart_sentence(chart: Chart) -> str:
    """The chart's label, values and axes in a sentence.

    For example 'the typical step by what the GPU did: compute 8.31, idle: kernel launches 2.1; ms
    of the step.'
    """
    if chart.figure is None:
        return chart.label
    data, layout = chart.figure["data"], chart.figure["layout"]
    assert isinstance(data, (list, tuple)) and isinstance(layout, dict)
    values = [words for trace in data for words in trace_words(trace)]
    rest = len(values) - MOST
    if rest > 0:
        values = [*values[:MOST], f"and {rest} more"]
    axes = [layout.get(name, {}).get("title", {}).get("text") for name in ("xaxis", "yaxis")]
    parts = [f"{chart.label}: {', '.join(values)}", *(str(title) for title in axes if title)]
    return plain("; ".join(parts)) + "."


def trace_words(trace: dict[str, Any]) -> Iterator[str]:  # plotly's, of a shape for each type
    """Yield the values of one series of a figure; nothing for a band, which has a line as well."""
    name = trace.get("name", "")
    match trace:
        case {"fill": "toself"}:
            return
        case {"type": "heatmap", "y": places, "z": rows}:
            for place, row in zip(places, rows, strict=True):
                known = [value for value in row if value is not None]
                if known:
                    yield f"{place} on average {number(sum(known) / len(known))}"
                else:
                    yield f"{place} without values"
        case {"type": "box", "median": [middle]}:
            yield f"{name} median {number(middle)}"
        case {"type": "box"}:
            yield extent(name, trace["x"])
        case {"type": "bar", "y": places, "x": lengths} if len(lengths) <= MOST:
            for place, length in zip(places, lengths, strict=True):
                yield f"{name} {place} {number(length)}".strip()
        case {"type": "waterfall"}:
            yield from map("{} {}".format, trace["x"], trace["text"])
        case {"type": "bar", "x": values} | {"y": values}:
            yield extent(name, values)


def extent(name: str, values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return f"{name} without values"
    if len(known) == 1:
        return f"{name} {number(known[0])}"
    return f"{name} from {number(min(known))} to {number(max(known))}, last {number(known[-1])}"


def plain(words: str) -> str:
    """The text without plotly's markup and escapes."""
    return " ".join(unescape(words.replace("<br>", " ").replace("<b>", "")).split())
