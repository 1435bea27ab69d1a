"""The charts of `bench`: ratios with their intervals, loss over time, parts of the whole run."""

from html import escape
from statistics import median

from profiling.analysis.bench.bench_records import Bench, Side, TimedProcess
from profiling.report.charts import ABOVE, axis, bars, colour, figure, fixed, guide, scatter
from profiling.report.document import Figure

SHADES: dict[Side, str] = {"theirs": "muted", "ours": "accent", "exact": "norm"}
WIDEST = 1.5  # times the largest ratio; an interval that extends beyond it is cut
PARTS = {  # part of a whole run -> colour
    "up to iteration 0": "optimizer",
    "iterations and evaluations": "gemm",
    "after the last line": "attention",
}


def names(other: str) -> dict[Side, str]:
    return {"theirs": other, "ours": "ours", "exact": "ours, exact evaluations"}


def ratios(bench: Bench) -> Figure | None:
    """A point for each row that has an interval, the first on top; left of 1 ours is faster."""
    compared = [(row, pair) for row in bench.result for pair in row.against]
    if not compared:
        return None
    labels = [
        escape(row.what + (", exact" if pair.candidate == "exact" else ""))
        for row, pair in compared
    ][::-1]
    pairs = [pair for _, pair in compared][::-1]
    error: Figure = {
        "type": "data",
        "symmetric": False,
        "array": [pair.ci95[1] - pair.ratio for pair in pairs],
        "arrayminus": [pair.ratio - pair.ci95[0] for pair in pairs],
    }
    places = list(range(len(pairs)))
    values = [pair.ratio for pair in pairs]
    marker: Figure = {"color": colour("accent"), "size": 11}
    hover = "%{text}: %{x:.3f}<extra></extra>"
    points = scatter(
        "ours / theirs",
        values,
        places,
        "markers",
        text=labels,
        error_x=error,
        marker=marker,
        hovertemplate=hover,
    )
    one = guide("as fast", [1, 1], [-0.5, len(pairs) - 0.5], "text", width=2, dash="dash")
    ticks: Figure = {"tickvals": places, "ticktext": labels, "automargin": True}
    most = min(max(pair.ci95[1] for pair in pairs), WIDEST * max(values))
    xaxis = fixed("our time divided by theirs", range=[0, 1.08 * max(1.0, most)])
    yaxis = {"fixedrange": True, "range": [-0.5, len(pairs) - 0.5], **ticks}
    return figure([one, points], xaxis, yaxis, showlegend=False)


def losses(bench: Bench, other: str) -> Figure | None:
    """Validation loss over the seconds since the process began, a line for each whole run."""
    runs = [process for process in bench.processes if process.kind == "run"]
    if not runs:
        return None
    in_legend: set[Side] = set()
    data = []
    for run in runs:
        x = [evaluation.at_s for evaluation in run.evaluations]
        y = [evaluation.val_loss for evaluation in run.evaluations]
        style: Figure = {"color": colour(SHADES[run.side]), "width": 2}
        first, name = run.side not in in_legend, escape(names(other)[run.side])
        grouped: Figure = {"legendgroup": run.side, "showlegend": first}
        data.append(scatter(name, x, y, "lines+markers", line=style, **grouped))
        in_legend.add(run.side)
    return figure(data, axis("seconds since the process began"), axis("validation loss"))


def whole_runs(bench: Bench, other: str) -> Figure | None:
    """Median seconds of a whole run before, in and after its iterations, for each side."""
    runs: dict[Side, list[TimedProcess]] = {}
    for process in bench.processes:
        if process.kind == "run":
            runs.setdefault(process.side, []).append(process)
    if not runs:
        return None
    sides = [side for side in SHADES if side in runs][::-1]
    labels = [escape(names(other)[side]) for side in sides]
    medians = [[median(times) for times in zip(*map(split, runs[s]), strict=True)] for s in sides]
    data = [
        bars(labels, [parts[number] for parts in medians], colour(shade), name=part)
        for number, (part, shade) in enumerate(PARTS.items())
    ]
    legend = ABOVE | {"traceorder": "normal"}
    return figure(data, fixed("seconds"), {"type": "category"}, barmode="stack", legend=legend)


def split(process: TimedProcess) -> tuple[float, float, float]:
    """Seconds of each of PARTS, which add up to the process's time."""
    start, end = process.first_iteration_s or 0.0, process.end_s or 0.0
    return start, process.wall_s - start - end, end
