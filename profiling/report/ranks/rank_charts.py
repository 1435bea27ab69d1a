"""Charts on the page of several ranks. Called by profiling.report.ranks.document.

Each function returns a figure for plotly, or None without data.
"""

from collections.abc import Sequence

from profiling.analysis.ranks.rank_records import RankRow, RanksReport
from profiling.report.charts import ABOVE, NAMES, axis, bars, colour, figure, fixed
from profiling.report.document import Figure
from profiling.shared.causes import PART, part_named

SLOWED = "compute, slowed by collectives"
TICKS = 10
STEPS_SHOWN = 500  # most steps in a heat map; more are thinned out


def steps_by_rank(ranks: Sequence[RankRow]) -> Figure | None:
    """A bar for each rank: its mean step, split into the parts of causes.PART."""
    names = [f"rank {row.rank}" for row in ranks][::-1]
    data = []
    for name in PART:
        part = part_named(name)
        ms = [row.parts_ms.get(name, 0.0) for row in ranks][::-1]
        stacked = [(part.title, part.colours.hatch, ms)]
        if name == "compute":  # what slows it down is no work of the rank
            slowed = [row.communication.slowed_ms for row in ranks][::-1]
            alone = [whole - more for whole, more in zip(ms, slowed, strict=True)]
            stacked = [(part.title, part.colours.hatch, alone), (SLOWED, "x", slowed)]
        for title, hatch, values in stacked:
            if not any(values):
                continue
            hover = f"%{{y}}, {title}<br><b>%{{x:.3f}} ms</b> per step<extra></extra>"
            bar = bars(names, values, colour(name), name=title, hovertemplate=hover)
            marker: Figure = {"color": colour(name)}
            if hatch:
                marker["pattern"] = {"shape": hatch}
            data.append(bar | {"marker": marker})
    legend = ABOVE | {"traceorder": "normal"}
    return figure(data, fixed("ms of the mean step"), NAMES, barmode="stack", legend=legend)


def waits(report: RanksReport) -> Figure | None:
    """A heat map of the ms that each rank loses in each step by waiting."""
    steps = report.steps
    if not steps.wait_ms:
        return None
    every = -(-len(steps.iterations) // STEPS_SHOWN)
    rows, numbers = steps.wait_ms[::every], steps.iterations[::every]
    heat: Figure = {
        "type": "heatmap",
        "x": numbers,
        "y": [f"rank {row.rank}" for row in report.ranks],
        "z": [list(column) for column in zip(*rows, strict=True)],
        "colorscale": [[0, colour("card")], [1, colour("communication")]],
        "zmin": 0,
        "colorbar": {"title": {"text": "ms"}, "thickness": 12},
        "hovertemplate": "%{y}, step %{x}: waits %{z:.3f} ms<extra></extra>",
    }
    yaxis = {"autorange": "reversed", **NAMES}
    between = max(1, len(numbers) // TICKS) * every
    return figure([heat], fixed("step", tickformat="d", dtick=between), yaxis)


def costs(ranks: Sequence[RankRow]) -> Figure | None:
    """A bar for each rank: the ms per step that it costs the others."""
    known = [row for row in ranks if row.costs_ms_per_step is not None]
    if not known:
        return None
    names = [f"rank {row.rank}" for row in known][::-1]
    ms = [row.costs_ms_per_step for row in known][::-1]
    hover = "%{y} costs the others %{x:.3f} ms per step<extra></extra>"
    return figure([bars(names, ms, colour("bad"), hovertemplate=hover)], axis("ms per step"), NAMES)
