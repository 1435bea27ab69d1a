"""The attention lab as one self-contained page. Called by `profiling attention --html`."""

from typing import Any

from profiling.report import attention_tables as tables
from profiling.report import text
from profiling.report.charts import colour
from profiling.report.document import Figure
from profiling.report.html import laid_out, render
from profiling.report.roofline_chart import logarithmic, reach, roofs

COLOURS = {
    "slow": "bad",
    "math": "reduction",
    "efficient": "norm",
    "flash": "accent",
    "cudnn": "elementwise",
    "flex": "optimizer",
    "compile": "attention",
}
PASSES = {"forward": "forward", "backward": "backward"}
MARGIN = {"l": 70, "r": 20, "t": 34, "b": 48}
LEGEND = {"orientation": "h", "y": 1.02, "yanchor": "bottom"}


def attention_page(document: dict[str, Any]) -> str:
    """The page as text."""
    rows = tables.measured(document)
    passes = [name for name in PASSES if any(row["direction"] == name for row in rows)]
    figures: dict[str, Figure] = {}
    for name in passes:
        part = [row for row in rows if row["direction"] == name]
        figures[f"time-{name}"] = over_seq(part, "median_ms", "ms of a call", 1.0)
        if any(row["peak_memory_bytes"] for row in part):
            figures[f"memory-{name}"] = memory(part)
        figures[f"roofline-{name}"] = roofline(document, part)
    return render(
        "attention.html.j2",
        figures,
        title=tables.title(document),
        notes=tables.notes(document),
        passes=passes,
        ratios=slow_against_fused(rows),
        tables=[laid_out(table) for table in tables.all_tables(document) if table.rows],
    )


def series(rows: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """The rows of each backend that has some, by length."""
    by_backend = [(name, [row for row in rows if row["backend"] == name]) for name in COLOURS]
    return [(name, sorted(own, key=lambda row: row["seq"])) for name, own in by_backend if own]


def over_seq(rows: list[dict[str, Any]], key: str, title: str, unit: float) -> Figure:
    """A line for each backend on logarithmic axes: a power law is straight."""
    lines = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": name,
            "x": [row["seq"] for row in own],
            "y": [row[key] / unit for row in own],
            "line": {"color": colour(COLOURS[name]), "width": 2},
            "marker": {"size": 7},
            "hovertemplate": f"<b>{name}</b>, seq %{{x}}: %{{y:.4g}} {title}<extra></extra>",
        }
        for name, own in series(rows)
    ]
    lengths = sorted({row["seq"] for row in rows})
    layout = {
        "margin": MARGIN,
        "legend": LEGEND,
        "xaxis": {
            "type": "log",
            "title": {"text": "sequence length"},
            "tickvals": lengths,
            "ticktext": [str(length) for length in lengths],
            "fixedrange": True,
        },
        "yaxis": {"type": "log", "title": {"text": title}, "fixedrange": True, "dtick": 1},
    }
    return {"data": lines, "layout": layout}


def memory(rows: list[dict[str, Any]]) -> Figure:
    """Of one sequence, so that T^2 and T show whatever the batch; dashed, what these would be."""
    known = [
        row | {"one": row["peak_memory_bytes"] / row["batch"]}
        for row in rows
        if row["peak_memory_bytes"]
    ]
    figure = over_seq(known, "one", "MB for a sequence", 1e6)
    for power, own in ((2, series(known)[0][1]), (1, series(known)[-1][1])):
        last = own[-1]
        lengths = sorted({row["seq"] for row in known})
        figure["data"].append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "∝ T²" if power == 2 else "∝ T",
                "x": lengths,
                "y": [last["one"] / 1e6 * (seq / last["seq"]) ** power for seq in lengths],
                "line": {"color": colour("muted"), "dash": "dot", "width": 1.5},
                "hoverinfo": "skip",
            }
        )
    return figure


def roofline(document: dict[str, Any], rows: list[dict[str, Any]]) -> Figure:
    """TFLOP/s over FLOP per byte of the function's own traffic; a line goes from short to long."""
    left, right = reach([row["flops_per_byte"] for row in rows], document)
    lines = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": name,
            "x": [row["flops_per_byte"] for row in own],
            "y": [row["tflops"] for row in own],
            "customdata": [[row["seq"], text.percent(row["percent_of_roof"])] for row in own],
            "line": {"color": colour(COLOURS[name]), "width": 2},
            "marker": {"size": 7},
            "hovertemplate": f"<b>{name}</b>, seq %{{customdata[0]}}: %{{y:.3g}} TFLOP/s, "
            "%{customdata[1]} of the roof<extra></extra>",
        }
        for name, own in series(rows)
    ]
    highest = document["peak_tflops"] or max(row["tflops"] for row in rows)
    layout = {
        "margin": MARGIN,
        "legend": LEGEND,
        "xaxis": logarithmic("FLOP per byte at least", left, right),
        "yaxis": logarithmic("TFLOP/s", min(row["tflops"] for row in rows) / 3, highest * 2),
    }
    return {"data": [*roofs(document, left, right), *lines], "layout": layout}


def slow_against_fused(rows: list[dict[str, Any]]) -> list[str]:
    """Sentences: at the longest length that both reached, slow against flash."""
    found = {(row["backend"], row["direction"], row["seq"]): row for row in rows}
    said = []
    for name in PASSES:
        both = [
            seq
            for backend, direction, seq in found
            if (backend, direction) == ("slow", name) and ("flash", name, seq) in found
        ]
        for seq in sorted(both)[-1:]:
            slow, flash = found["slow", name, seq], found["flash", name, seq]
            line = (
                f"{name}, seq {seq:,}: flash {slow['median_ms'] / flash['median_ms']:.1f} × faster"
            )
            if slow["peak_memory_bytes"] and flash["peak_memory_bytes"]:
                ratio = slow["peak_memory_bytes"] / flash["peak_memory_bytes"]
                line += f" than slow, in {ratio:.1f} × less memory"
            said.append(line)
    return said
