"""The dashboard's tables: configurations side by side, what differs, the runs, their captures.

Called by profiling.report.dashboard.document.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import quote

import numpy as np

from cli.keys import spell
from profiling.analysis.runs.folder import RunFolder
from profiling.analysis.runs.groups import (
    Group,
    Section,
    best_loss,
    energy_per_token,
    losses_of,
    mean_over_runs,
    seconds_to_loss,
    tokens_per_s,
    typical_ms,
)
from profiling.analysis.runs.run_waits import rank_waits
from profiling.report.dashboard.words import span
from profiling.report.document import Cell, Column, Table
from profiling.shared.json_records import JsonObject
from profiling.shared.metric_names import (
    MFU,
    PEAK_BYTES,
    POWER_W,
    STEPS_PER_S,
    TOKENS_PER_S,
    TRAIN_LOSS,
    Metric,
)

MOST_SIDE_BY_SIDE = 8  # configurations that are columns; more are rows
OPTIONAL_METRICS = {  # columns of the table of runs, medians over their rows
    "training loss": TRAIN_LOSS,
    "tokens/s": TOKENS_PER_S,
    "steps/s": STEPS_PER_S,
    "MFU, %": MFU,
    "peak memory, GB": PEAK_BYTES,
    "power, W": POWER_W,
}


def summary_table(part: str, section: Section, loss: float | None) -> Table:
    """The configurations side by side: `part` of a page, `loss` for the column of time to it."""
    columns = [
        Column("configuration", "label", "text"),
        Column("runs", lambda group: len(group.runs), "number"),
        Column("step, ms", typical_ms, "ms"),
        Column("tokens/s", tokens_per_s, "number"),
        Column("steps/s", group_value(STEPS_PER_S), "number"),
        Column("MFU", group_value(MFU, 100), "percent"),
        Column("peak memory", group_value(PEAK_BYTES, reduce=np.max), "bytes"),
        Column("power, W", group_value(POWER_W), "number"),
        Column("energy, µJ per token", energy_uj, "number"),
        Column("best val loss", best_losses, "loss"),
    ]
    if loss is not None:
        seconds = partial(seconds_to_loss, loss=loss)
        columns.append(Column(f"s to val loss {loss:g}", seconds, "number"))
    known = [c for c in columns if any(c.value_of(group) is not None for group in section.groups)]
    note = (
        "Median of the logged rows, then the mean over seeds; start-up rows are left out of step "
        "times and speeds; memory is the peak."
    )
    return Table(f"{part}-summary", "Side by side", note, known, section.groups, limit=24)


def group_value(
    metric: Metric, scale: float = 1, reduce: Callable[[np.ndarray], float] = np.median
) -> Callable[[Group], float | None]:
    """A function that returns a group's value of the metric, times `scale`, or None."""

    def value(group: Group) -> float | None:
        mean = mean_over_runs(group, metric.name, reduce)
        return None if mean is None else mean * scale

    return value


def energy_uj(group: Group) -> float | None:
    energy_j = energy_per_token(group)
    return None if energy_j is None else energy_j * 1e6


def best_losses(group: Group) -> str | None:
    losses = losses_of(group)
    return span(losses) if losses else None


def settings_table(part: str, section: Section) -> Table:
    """The keys that differ, with a column for each group, or a row where there are many groups."""
    title = "Configurations: what differs"
    if len(section.groups) > MOST_SIDE_BY_SIDE:
        columns = [Column("configuration", "label", "text")]
        columns += [Column(key, partial(group_setting, key), "text") for key in section.differs]
        return Table(f"{part}-settings", title, "", columns, section.groups, limit=30)
    columns = [Column("key", str, "code")]
    columns += [Column(g.label, partial(setting, g.settings), "text") for g in section.groups]
    return Table(f"{part}-settings", title, "", columns, section.differs, limit=30)


def group_setting(key: str, group: Group) -> str | None:
    return setting(group.settings, key)


def setting(settings: JsonObject, key: str) -> str | None:
    value = settings.get(key)
    return None if value is None else spell(value)


def runs_table(part: str, section: Section) -> Table:
    """The runs with their results, and the keys by which a page finds and groups them."""
    groups = {run.folder: group for group in section.groups for run in group.runs}

    def key_of_run(key: str, run: RunFolder) -> str | None:
        return group_setting(key, groups[run.folder])

    columns = [
        Column("run", "name", "code"),
        Column("configuration", lambda run: groups[run.folder].label, "text"),
        *(Column(key, partial(key_of_run, key), "text") for key in section.differs),
        Column("seed", lambda run: setting(run.config, "seed"), "text"),
        Column("iterations", lambda run: from_summary(run, "iterations", run.iterations), "number"),
        Column("best val loss", best_loss, "loss"),
        Column("step, ms", step_ms, "ms"),
        Column("wall time, s", lambda run: from_summary(run, "wall_s"), "number"),
        *(
            Column(heading, partial(median_of, metric=metric), "number")
            for heading, metric in OPTIONAL_METRICS.items()
            if any(metric.name in run.columns for run in section.runs)
        ),
        Column("state", lambda run: "ended" if run.summary else "running, or killed", "text"),
    ]
    if "machine" not in section.differs:
        columns.insert(-1, Column("machine", lambda run: setting(run.in_force, "device"), "text"))
    note = "Wall time includes compiling and evaluations. It is known once a run has ended."
    return Table(f"{part}-runs", "Runs", note, columns, section.runs, limit=40)


def optional_columns(section: Section) -> list[str]:
    """Headings of the table of runs that a page shows only when asked to."""
    return [*section.differs, *OPTIONAL_METRICS]


def median_of(run: RunFolder, metric: Metric) -> float | None:
    """Median of the logged rows in the metric's unit, or None without any."""
    series = run.columns.get(metric.name)
    return float(np.median(series.value)) * metric.scale if series else None


def from_summary(run: RunFolder, name: str, before: float | None = None) -> float | None:
    """A value from the run's summary, or `before` while there is none."""
    return (run.summary or {}).get(name, before)


def step_ms(run: RunFolder) -> float | None:
    return float(np.median(run.step_ms)) if len(run.step_ms) else None


def verdicts_table(part: str, section: Section) -> Table:
    """The bottleneck of each run whose summary names one."""
    columns = [Column("run", "name", "code"), Column("verdict", "verdict", "text")]
    known = [run for run in section.runs if run.verdict]
    note = "As each run reported at its end, from its own step times, without a capture."
    return Table(f"{part}-verdicts", "What limited each run", note, columns, known, limit=12)


def ranks_table(part: str, section: Section) -> Table:
    """The waits between ranks, for the runs of several ranks that logged them."""
    columns = [
        Column("run", lambda waits: waits.run.name, "code"),
        Column("ranks", "ranks", "number"),
        Column("wait for the last rank, ms per step", "wait_ms", "ms"),
        Column("the slowest rank", "slowest_words", "text"),
        Column("cost of slower ranks, ms per step", "straggler_ms", "ms"),
        Column("wait of each rank, ms", "waits_words", "text"),
    ]
    known = [waits for run in section.runs if (waits := rank_waits(run))]
    note = (
        "All ranks finish averaging gradients at the same time, so a rank that spends longer "
        "there than the last one to arrive has waited for that rank. Values are means over the "
        "rows, and over the ranks where there is one number for all."
    )
    return Table(f"{part}-ranks", "Ranks", note, columns, known)


def captures_table(part: str, section: Section, links_from: Path | None) -> Table:
    """The captures of the runs, linked from the page's folder if it has one."""

    def files(run: RunFolder) -> Cell:
        if links_from is None:
            return Cell(", ".join(path.name for path in run.captures))
        return Cell("", links=[(path.name, address(path, links_from)) for path in run.captures])

    columns = [Column("run", "name", "code"), Column("captures", files, "code")]
    captured = [run for run in section.runs if run.captures]
    return Table(f"{part}-captures", "Captures", "", columns, captured)


def address(path: Path, links_from: Path) -> str:
    relative = os.path.relpath(path.resolve(), links_from.resolve())
    return quote(relative.replace(os.sep, "/"))
