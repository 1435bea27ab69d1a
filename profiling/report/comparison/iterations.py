"""The start of an experiment's processes, side by side. Called by report.comparison.document."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from profiling.analysis.difference.comparison_records import (
    MS_PER_STEP,
    Evened,
    Experiment,
    FirstIterations,
)
from profiling.report.document import Bullets, Column, Section, Table
from profiling.shared.units import milliseconds

STARTS = {
    "python_s": "Python, imports",
    "compile_s": "compiling",
    "capture_s": "graphs",
    "rest_s": "other",
    "before_s": "iteration 0",
}


@dataclass(frozen=True)
class Row:
    """A line of a table: its label, and a value for each column."""

    what: str
    cells: list[str | float | None]


def sections(experiment: Experiment) -> Iterator[Section]:
    begun = experiment.first_iterations
    if begun is None:
        return
    iterations, starts = iteration_table(begun, experiment), start_table(begun)
    if experiment.of_commands:  # nothing is known of what came before their steps
        yield Section(iterations.name, iterations.title, [iterations], "First iterations")
        return
    paid = Bullets(None, [sentence(row) for row in begun.evened])
    yield Section(iterations.name, iterations.title, [iterations], "First iterations")
    yield Section(starts.name, starts.title, [starts, paid], "Start")


def iteration_table(begun: FirstIterations, experiment: Experiment) -> Table:
    """ms of each iteration for each value.

    Where the values do the same work, also how many times as fast as with the first value.
    """
    assert (result := experiment.result) is not None
    ratios = result.unit == MS_PER_STEP
    first, *others = begun.values
    count = max(len(value.ms) for value in begun.values)
    columns_ms = [value.ms + [None] * (count - len(value.ms)) for value in begun.values]
    rows = [comparison_row(str(i), [ms[i] for ms in columns_ms], ratios) for i in range(count)]
    rows.append(comparison_row("median", [value.median_ms for value in begun.values], ratios))
    headings = [(value.label, "ms") for value in begun.values]
    if ratios:
        several = len(others) > 1
        names = [f"speed-up, {value.label}" if several else "speed-up" for value in others]
        headings += [(name, "times") for name in names]
    title = "Iteration by iteration"
    return table("iterations", title, note_on(experiment), "iteration", headings, rows)


def note_on(experiment: Experiment) -> str:
    note = "ms, for the first process of each value. The median is over the timed iterations "
    warm_up, steps = experiment.warm_up, experiment.steps
    if experiment.of_commands:
        last = "on" if steps is None else f"to {warm_up + steps - 1}"
        return (
            f"{note}from {warm_up} {last}, over all processes. Iteration 0 begins where the "
            "program's first step ends, because the beginning of the first one is not seen."
        )
    assert steps is not None  # of the trainer
    return (
        f"{note}{warm_up + 1} to {warm_up + steps}, over all processes. Compiling and recording "
        "before the loop are not included. Iteration 0 and every "
        f"{experiment.log_interval}th iteration is logged: the iteration after it starts with an "
        "empty queue."
    )


def comparison_row(what: str, ms: list[float | None], ratios: bool) -> Row:
    first, *others = ms
    times = [first / other if first and other else None for other in others]
    return Row(what, [*ms, *(times if ratios else [])])


def start_table(begun: FirstIterations) -> Table:
    rows = [
        Row(label, [which, *(getattr(start, name) for name in STARTS)])
        for value in begun.values
        for label, which, start in (
            (value.label, "first", value.start),
            (value.label, "later", value.later_start),
        )
    ]
    note = (
        "Seconds, for the first process of each value, and medians of the later processes, whose "
        "compilers reuse the files of the first one. Iteration 0 starts after compiling, "
        "recording CUDA graphs and all other preparation (data, model, first kernels, an "
        "evaluation). The first column, Python, covers the time before that and the end of the "
        "process."
    )
    headings = [("process", "text"), *((name, "seconds") for name in STARTS.values())]
    return table("starts", "Before the first iteration", note, "value", headings, rows)


def table(
    name: str,
    title: str,
    note: str,
    what: str,
    headings: list[tuple[str, str]],
    rows: list[Row],
) -> Table:
    """A table with a column for `what`, and one for each of the (heading, kind)."""
    columns = [Column(what, "what", "text", True)]
    for number, (heading, kind) in enumerate(headings):
        columns.append(Column(heading, partial(cell, number), kind, True))
    return Table(name, title, note, columns, rows, most=len(rows), limit=len(rows))


def cell(number: int, row: Row) -> str | float | None:
    return row.cells[number]


def sentence(row: Evened) -> str:
    """A sentence on the iteration after which the slower start has paid off."""
    late, early = row.candidate, row.baseline
    later_s, gain_ms = row.later_s, row.gain_ms
    if later_s < 0:
        late, early, later_s, gain_ms = early, late, -later_s, -gain_ms
    begins = f"{late} reaches its speed {later_s:.1f} s after {early}"
    if row.processes == "later":
        begins = f"in later processes {begins}"
    if row.iterations is None:
        return f"{begins}, and its step is longer, so it never catches up"
    after_s = f"{milliseconds(gain_ms)} ms shorter"
    return f"{begins}, and its step is {after_s}: even after {row.iterations:,.0f} iterations"
