"""The tables of `bench`. Called by profiling.report.bench.document."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from profiling.analysis.bench.bench_records import (
    Bench,
    Measure,
    Side,
    SideValues,
    TimedProcess,
    Work,
)
from profiling.analysis.difference.comparison_records import Against
from profiling.report.comparison.tables import outcome
from profiling.report.document import TERMINAL, Column, Places, Table
from profiling.shared.units import ABSENT, milliseconds, number

IN_FULL: Places = ("markdown", "page")  # a terminal has no room for all columns


@dataclass(frozen=True)
class Row:
    """A figure of ours beside theirs: medians, and the range from the lowest to the highest."""

    part: str  # name in --parts
    what: str
    detail: str | None
    unit: str
    theirs: str
    theirs_spread: str
    ours: str
    ours_spread: str
    ratio: str
    answer: str
    remark: str | None


def speed(bench: Bench, name: str, equal_within_percent: float) -> list[Table]:
    """The tables of speed; a terminal shows medians alone.

    `name` is that of the other checkout; without one there are only our figures.
    """
    lines = [row for made in bench.result for row in rows(made, equal_within_percent)]
    whole = [Column("part", full_label, "text", True), Column("unit", "unit", "text", True)]
    brief = [Column("part", "part", "text", True), whole[1]]
    if bench.asked.against:
        whole.append(Column(name, lambda row: row.theirs + row.theirs_spread, "number", True))
        brief.append(Column("theirs", "theirs", "number", True))
    whole.append(Column("ours", lambda row: row.ours + row.ours_spread, "number", True))
    brief.append(Column("ours", "ours", "number", True))
    note, pair = "Medians over the processes, with the lowest and the highest in brackets.", []
    if bench.asked.against:
        pair = [Column("ours / theirs", "ratio", "number", True)]
        pair += [Column("answer", "answer", "text", True)]
        note += (
            " Ratios compare times, even where rates are shown: below 1, ours is faster. Their "
            "95 % intervals are over processes (Welch's t on logarithms), at least two on each "
            "side."
        )
    remark = Column("remark", "remark", "text")
    places: tuple[tuple[Places, list[Column]], ...] = (
        (IN_FULL, [*whole, *pair, remark]),
        (TERMINAL, [*brief, *pair]),
    )
    return [
        Table("speed", "Speed", note, columns, lines, len(lines), len(lines), places=where)
        for where, columns in places
    ]


def full_label(row: Row) -> str:
    return ", ".join(filter(None, [row.what, row.detail]))


def rows(made: Measure, equal_within_percent: float) -> Iterator[Row]:
    """Yield a row for ours, and one for ours with its exact evaluation if that ran."""
    sides: dict[Side, SideValues] = {values.side: values for values in made.sides}
    pairs = {pair.candidate: pair for pair in made.against}
    beside: tuple[tuple[Side, str], ...] = (("ours", ""), ("exact", ", exact"))
    for side, more in beside:
        if side == "ours" or side in sides:
            name = made.what if made.unit == "%" else made.part  # MFU is of the part step
            yield Row(
                f"{name}{more}",
                f"{made.what}{more}",
                made.detail,
                "" if made.unit == "ratio" else made.unit,
                *median_and_range(sides.get("theirs"), made.unit),
                *median_and_range(sides.get(side), made.unit),
                *ratio_and_answer(pairs.get(side), equal_within_percent),
                "exact: ours with its own evaluations" if more else made.remark,
            )


def median_and_range(values: SideValues | None, unit: str) -> tuple[str, str]:
    """(median, range) as text."""
    if values is None:
        return ABSENT, ""
    middle, low, high = (figure(x, unit) for x in (values.median, values.low, values.high))
    return middle, f" ({low} to {high})" if len(values.values) > 1 else ""


def figure(value: float, unit: str) -> str:
    match unit:
        case "ms":
            return milliseconds(value)
        case "tokens/s":
            return number(round(value)) if value >= 100 else f"{value:.1f}"
        case "%":
            return f"{value:.1f}"
        case "s":
            return f"{value:.2f}" if value < 100 else f"{value:.1f}"
    return f"{value:.3f}"


def ratio_and_answer(pair: Against | None, equal_within_percent: float) -> tuple[str, str]:
    """(ratio with its interval, answer) as text."""
    if pair is None:
        return ABSENT, ABSENT
    low, high = pair.ci95
    answer = outcome(pair.verdict, equal_within_percent)
    if pair.verdict in ("faster", "slower"):
        times = 1 / pair.ratio if pair.verdict == "faster" else pair.ratio
        answer = f"{times:.2f}x {pair.verdict}"
    return f"{ratio_text(pair.ratio)} ({ratio_text(low)} to {ratio_text(high)})", answer


def ratio_text(ratio: float) -> str:
    return f"{ratio:.3f}" if ratio < 100 else number(ratio)


def work(facts: list[Work], name: str) -> Table:
    columns = [
        Column("what", "what", "text", True),
        Column("ours", "ours", "text", True),
        Column(name, "theirs", "text", True),
        Column("alike", alike_text, "text", True),
    ]
    note = f"As each program reports it; {ABSENT} where the other program does not."
    return Table("work", "The same work", note, columns, facts, limit=len(facts), places=IN_FULL)


def alike_text(row: Work) -> str:
    return "not known" if row.equal is None else "yes" if row.equal else "NO"


def processes(bench: Bench) -> Table:
    columns = [
        Column("process", lambda p: f"{p.kind}, {p.side}, {p.round + 1}", "text", True),
        Column("wall", lambda p: p.wall_s * 1e9, "ns", True),
        Column("step, from line to line", lambda p: median_ms(p.row_ms), "ms", True),
        Column("step, as printed", lambda p: median_ms(p.printed_ms), "ms", True),
        Column("command", lambda p: " ".join(p.command), "code", True),
    ]
    note = (
        "In the order in which they ran. The first ones fill the caches and write a checkpoint "
        "to sample from. nanoGPT prints the time to launch a step, before it waits for the GPU; "
        "the table above shows the time from line to line for both."
    )
    lines: list[TimedProcess] = bench.processes
    return Table("processes", "Processes", note, columns, lines, folded=True, places=IN_FULL)


def median_ms(values: list[float]) -> float | None:
    return median(values) if values else None
