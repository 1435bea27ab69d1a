"""The dashboard's tables: configurations side by side, what differs, the runs, their captures.

Called by profiling.report.dashboard.document.
"""

import os
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
    over_runs,
    seconds_to,
    typical_ms,
)
from profiling.metric_names import MFU, PEAK_BYTES, POWER_W, TOKENS_PER_S
from profiling.report.dashboard.words import span
from profiling.report.document import Cell, Column, Row, Table


def summary_table(part: str, section: Section, loss: float | None) -> Table:
    """`part`: of the page, which may have several; `loss`: for the time to it."""
    columns = [
        Column("configuration", "label", "text"),
        Column("runs", "runs", "number"),
        Column("step, ms", "step_ms", "ms"),
        Column("tokens/s", "tokens_per_s", "number"),
        Column("MFU", "mfu_percent", "percent"),
        Column("peak memory", "peak_bytes", "bytes"),
        Column("power, W", "power_w", "number"),
        Column("energy, µJ a token", "energy_uj", "number"),
        Column("best val loss", "loss", "text"),
        Column(f"s to val loss {loss or 0:g}", "seconds", "number"),
    ]
    rows = [summary_row(group, loss) for group in section.groups]
    known = [column for column in columns if any(row[column.key] is not None for row in rows)]
    note = (
        "Medians over the logged rows (of step times without the first rows of each start), of the "
        "memory the peak; averaged over the seeds."
    )
    return Table(f"{part}-summary", "Side by side", note, known, rows, limit=24)


def summary_row(group: Group, loss: float | None) -> Row:
    mfu, energy = over_runs(group, MFU.name), energy_per_token(group)
    losses = losses_of(group)
    return {
        "label": group.label,
        "runs": len(group.runs),
        "step_ms": typical_ms(group),
        "tokens_per_s": over_runs(group, TOKENS_PER_S.name),
        "mfu_percent": None if mfu is None else mfu * 100,
        "peak_bytes": over_runs(group, PEAK_BYTES.name, np.max),
        "power_w": over_runs(group, POWER_W.name),
        "energy_uj": None if energy is None else energy * 1e6,
        "loss": span(losses) if losses else None,
        "seconds": None if loss is None else seconds_to(group, loss),
    }


def settings_table(part: str, section: Section) -> Table:
    """Keys that differ, a column for each group."""
    columns = [Column("key", "key", "code")]
    columns += [Column(g.label, f"group{i}", "text") for i, g in enumerate(section.groups)]
    rows: list[Row] = [
        {
            "key": key,
            **{f"group{i}": shown(g.settings.get(key)) for i, g in enumerate(section.groups)},
        }
        for key in section.differs
    ]
    title = "Configurations: what differs"
    return Table(f"{part}-settings", title, "", columns, rows, limit=30)


def shown(value: object) -> str | None:
    return None if value is None else spell(value)


def runs_table(part: str, section: Section) -> Table:
    columns = [
        Column("run", "name", "code"),
        Column("configuration", "label", "text"),
        Column("seed", "seed", "text"),
        Column("iterations", "iterations", "number"),
        Column("best val loss", "loss", "text"),
        Column("step, ms", "step_ms", "ms"),
        Column("wall time, s", "wall_s", "number"),
        Column("machine", "device", "text"),
        Column("state", "state", "text"),
    ]
    rows = [run_row(group, run) for group in section.groups for run in group.runs]
    note = "Wall time holds compiling and evaluations; it is known once a run has ended."
    return Table(f"{part}-runs", "Runs", note, columns, rows, limit=40)


def run_row(group: Group, run: RunFolder) -> Row:
    loss, summary = best_loss(run), run.summary or {}
    return {
        "name": Cell(run.name, str(run.folder)),
        "label": group.label,
        "seed": shown(run.config.get("seed")),
        "iterations": summary.get("iterations", run.iterations),
        "loss": None if loss is None else f"{loss:.4f}",
        "step_ms": float(np.median(run.step_ms)) if len(run.step_ms) else None,
        "wall_s": summary.get("wall_s"),
        "device": shown(run.in_force.get("device")),
        "state": "ended" if run.summary else "running, or killed",
    }


def captures_table(part: str, section: Section, links_from: Path | None) -> Table:
    """With links from the page's folder, where it has one."""
    columns = [Column("run", "name", "code"), Column("captures", "files", "code")]
    rows: list[Row] = [
        {"name": run.name, "files": files_of(run, links_from)}
        for run in section.runs
        if run.captures
    ]
    return Table(f"{part}-captures", "Captures", "", columns, rows)


def files_of(run: RunFolder, links_from: Path | None) -> Cell:
    if links_from is None:
        return Cell(", ".join(map(str, run.captures)))
    return Cell("", links=[(path.name, address(path, links_from)) for path in run.captures])


def address(path: Path, links_from: Path) -> str:
    relative = os.path.relpath(path.resolve(), links_from.resolve())
    return quote(relative.replace(os.sep, "/"))
