"""Document and CSV of kept baselines over commits. Called by profiling.verbs.history."""

import csv
import io
import shlex
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, fields
from html import escape

from profiling.analysis.difference.baseline import Sitting
from profiling.analysis.difference.command_labels import label
from profiling.analysis.statistics import mean_over_processes
from profiling.report.charts import axis, colour, figure, scatter
from profiling.report.document import Chart, Column, Document, Figure, Section, Table, Verdict
from profiling.shared.units import milliseconds

SHADES = ("gemm", "attention", "optimizer", "norm", "loss", "other")


@dataclass(frozen=True)
class Point:
    """A row of history.csv: one sitting. `low_ms` to `high_ms` is the 95 % interval of its mean
    over its processes alone, without the drift between sittings."""

    time: str  # of the commit, else of the sitting: change-point tools sort by it
    commit: str
    baseline: str
    value: float  # ms per step, geometric mean of the processes' medians
    low_ms: float
    high_ms: float
    processes: int
    noise_percent: float
    measured: str
    dirty: bool
    gpu: str | None
    cpu: str | None
    cores: int | None
    torch: str | None
    cuda: str | None
    command: str

    @property
    def series(self) -> tuple[object, ...]:
        """Fields that points share whose values compare."""
        machine = self.gpu, self.cpu, self.cores, self.torch, self.cuda
        return self.baseline, self.command, *machine


def points_of(sittings: Sequence[Sitting]) -> list[Point]:
    """The points in the order of their times, then of their measurement."""
    points = []
    for each in sittings:
        value, low, high = (round(ms, 6) for ms in mean_over_processes(each.medians_ms))
        time, commit = each.committed or each.when, each.commit or ""
        kept = len(each.five_ms), round(each.noise_percent, 4), each.when, each.dirty
        point = Point(
            *(time, commit, each.baseline, value, low, high, *kept),
            **asdict(each.machine),
            command=each.command,
        )
        points.append(point)
    return sorted(points, key=lambda point: (point.time, point.measured))


def history_csv(points: Sequence[Point]) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([field.name for field in fields(Point)])
    rows.writerows(map(astuple, points))
    return text.getvalue()


def history_document(points: Sequence[Point]) -> Document:
    names = list(dict.fromkeys(point.baseline for point in points))
    chart = Chart(
        "history", "step time of every sitting, in the order of commits", chart_of(points)
    )
    return Document(
        f"History: {', '.join(names)}",
        [],
        [Verdict(headline(points))],
        [Section("history", "Sittings", [chart, table(points)], lead=NOTE)],
    )


NOTE = (
    "A sitting is one call of baseline save. Intervals are over its processes and lack the drift "
    "between sittings; ab --against baseline:NAME has it. Other machines and versions are other "
    "series: their step times do not compare."
)


def headline(points: Sequence[Point]) -> str:
    """A sentence on the newest series: its first and its last step time."""
    last = points[-1]
    same = [point for point in points if point.series == last.series]
    commits = len({point.commit for point in same})
    of = f"{len(same)} sittings of {commits} commit{'s' * (commits > 1)}"
    step = milliseconds(last.value)
    if len(same) == 1:
        return f"{last.baseline}: {step} ms per step, its first sitting on this machine"
    return f"{last.baseline}: {milliseconds(same[0].value)} -> {step} ms per step over {of}"


def table(points: Sequence[Point]) -> Table:
    def interval(point: Point) -> str:
        return f"{milliseconds(point.low_ms)} to {milliseconds(point.high_ms)}"

    columns = [
        Column("baseline", "baseline", "text", True),
        Column("commit", lambda p: (p.commit[:10] or "none") + " *" * p.dirty, "code", True),
        Column("of", lambda p: p.time[:16].replace("T", " "), "text"),
        Column("ms per step", "value", "ms", True),
        Column("95 % interval", interval, "number", True),
        Column("A/A noise", "noise_percent", "percent"),
        Column("processes", "processes", "number"),
        Column("machine", lambda p: p.gpu or f"{p.cpu}, {p.cores} cores", "text"),
        Column("torch", "torch", "text"),
        Column("command", lambda p: label(shlex.split(p.command)), "code"),
    ]
    note = "*: files differed from the commit."
    return Table("sittings", "Sittings over commits", note, columns, points[::-1], most=20)


def chart_of(points: Sequence[Point]) -> Figure | None:
    """Step times with their intervals, a colour for each series; None for a single point."""
    if len(points) < 2:
        return None
    data = []
    kinds = list(dict.fromkeys(point.series for point in points))
    for number, kind in enumerate(kinds):
        places = [place for place, point in enumerate(points, 1) if point.series == kind]
        own = [points[place - 1] for place in places]
        bars: Figure = {
            "type": "data",
            "symmetric": False,
            "array": [point.high_ms - point.value for point in own],
            "arrayminus": [point.value - point.low_ms for point in own],
        }
        style: Figure = {"marker": {"color": colour(SHADES[number % len(SHADES)])}, "error_y": bars}
        name = f"{own[0].baseline}, {own[0].gpu or own[0].cpu}, torch {own[0].torch}"
        y = [point.value for point in own]
        data.append(scatter(escape(name), places, y, "lines+markers", **style))
    every = max(1, len(points) // 8)
    ticks = {"tickvals": [*range(1, len(points) + 1, every)]}
    names = [point.commit[:7] or "none" for point in points[::every]]
    xaxis = axis("sittings, by the time of their commits", ticktext=names, **ticks)
    return figure(data, xaxis, axis("ms per step", rangemode="tozero"))
