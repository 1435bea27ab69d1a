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
    typical_ms,
)
from profiling.analysis.runs.waits import rank_waits
from profiling.metric_names import MFU, PEAK_BYTES, POWER_W, TOKENS_PER_S, Metric
from profiling.records import JsonObject
from profiling.report.dashboard.words import span
from profiling.report.document import Cell, Column, Table


def summary_table(part: str, section: Section, loss: float | None) -> Table:
    """`part`: of the page, which may have several; `loss`: for the time to it."""
    columns = [
        Column("configuration", "label", "text"),
        Column("runs", lambda group: len(group.runs), "number"),
        Column("step, ms", typical_ms, "ms"),
        Column("tokens/s", typical(TOKENS_PER_S), "number"),
        Column("MFU", typical(MFU, 100), "percent"),
        Column("peak memory", typical(PEAK_BYTES, reduce=np.max), "bytes"),
        Column("power, W", typical(POWER_W), "number"),
        Column("energy, µJ a token", energy_uj, "number"),
        Column("best val loss", best_losses, "text"),
    ]
    if loss is not None:
        seconds = partial(seconds_to_loss, loss=loss)
        columns.append(Column(f"s to val loss {loss:g}", seconds, "number"))
    known = [c for c in columns if any(c.of(group) is not None for group in section.groups)]
    note = (
        "Medians over the logged rows (of step times without the first rows of each start), of the "
        "memory the peak; averaged over the seeds."
    )
    return Table(f"{part}-summary", "Side by side", note, known, section.groups, limit=24)


def typical(
    metric: Metric, scale: float = 1, reduce: Callable[[np.ndarray], float] = np.median
) -> Callable[[Group], float | None]:
    """What tells of a group how much it had of the metric."""

    def value(group: Group) -> float | None:
        found = mean_over_runs(group, metric.name, reduce)
        return None if found is None else found * scale

    return value


def energy_uj(group: Group) -> float | None:
    energy_j = energy_per_token(group)
    return None if energy_j is None else energy_j * 1e6


def best_losses(group: Group) -> str | None:
    losses = losses_of(group)
    return span(losses) if losses else None


def settings_table(part: str, section: Section) -> Table:
    """Keys that differ, a column for each group."""
    columns = [Column("key", str, "code")]
    columns += [Column(g.label, partial(setting, g.settings), "text") for g in section.groups]
    title = "Configurations: what differs"
    return Table(f"{part}-settings", title, "", columns, section.differs, limit=30)


def setting(settings: JsonObject, key: str) -> str | None:
    value = settings.get(key)
    return None if value is None else spell(value)


def runs_table(part: str, section: Section) -> Table:
    labels = {run.folder: group.label for group in section.groups for run in group.runs}
    columns = [
        Column("run", lambda run: Cell(run.name, str(run.folder)), "code"),
        Column("configuration", lambda run: labels[run.folder], "text"),
        Column("seed", lambda run: setting(run.config, "seed"), "text"),
        Column("iterations", lambda run: in_the_end(run, "iterations", run.iterations), "number"),
        Column("best val loss", loss_of, "text"),
        Column("step, ms", step_ms, "ms"),
        Column("wall time, s", lambda run: in_the_end(run, "wall_s"), "number"),
        Column("machine", lambda run: setting(run.in_force, "device"), "text"),
        Column("state", lambda run: "ended" if run.summary else "running, or killed", "text"),
    ]
    note = "Wall time holds compiling and evaluations; it is known once a run has ended."
    return Table(f"{part}-runs", "Runs", note, columns, section.runs, limit=40)


def in_the_end(run: RunFolder, name: str, before: float | None = None) -> float | None:
    """From the run's summary; `before` it has one."""
    return (run.summary or {}).get(name, before)


def loss_of(run: RunFolder) -> str | None:
    loss = best_loss(run)
    return None if loss is None else f"{loss:.4f}"


def step_ms(run: RunFolder) -> float | None:
    return float(np.median(run.step_ms)) if len(run.step_ms) else None


def verdicts_table(part: str, section: Section) -> Table:
    """What held each run back, of those whose summary says so."""
    columns = [Column("run", "name", "code"), Column("verdict", "verdict", "text")]
    known = [run for run in section.runs if run.verdict]
    note = "As each run said at its end, from its own times, without a capture."
    return Table(f"{part}-verdicts", "What held each run back", note, columns, known, limit=12)


def ranks_table(part: str, section: Section) -> Table:
    """Who waited for whom, of the runs of several ranks that logged it."""
    columns = [
        Column("run", lambda waits: waits.run.name, "code"),
        Column("ranks", "ranks", "number"),
        Column("wait for the last rank, ms a step", "wait_ms", "ms"),
        Column("the slowest rank", "slowest_words", "text"),
        Column("what slower ranks cost, ms a step", "straggler_ms", "ms"),
        Column("wait of each rank, ms", "waits_words", "text"),
    ]
    known = [waits for run in section.runs if (waits := rank_waits(run))]
    note = (
        "Ranks leave the averaging of gradients together, so a rank that spends longer there than "
        "the last to come has waited for it. Means over the rows, and over the ranks where one "
        "number stands for all."
    )
    return Table(f"{part}-ranks", "Ranks", note, columns, known)


def captures_table(part: str, section: Section, links_from: Path | None) -> Table:
    """With links from the page's folder, where it has one."""

    def files(run: RunFolder) -> Cell:
        if links_from is None:
            return Cell(", ".join(map(str, run.captures)))
        return Cell("", links=[(path.name, address(path, links_from)) for path in run.captures])

    columns = [Column("run", "name", "code"), Column("captures", files, "code")]
    captured = [run for run in section.runs if run.captures]
    return Table(f"{part}-captures", "Captures", "", columns, captured)


def address(path: Path, links_from: Path) -> str:
    relative = os.path.relpath(path.resolve(), links_from.resolve())
    return quote(relative.replace(os.sep, "/"))
