"""The dashboard's tables: configurations side by side, what differs, the runs.

Called by profiling.report.dashboard_page.
"""

from typing import Any

import numpy as np

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
from profiling.report.dashboard_words import span
from profiling.report.tables import Column, Table
from profiling.report.text import ABSENT


def summary_table(section: Section, loss: float | None) -> Table:
    columns = [
        Column("configuration", "label", "text", True),
        Column("runs", "runs", "number"),
        Column("step, ms", "step_ms", "ms", True),
        Column("tokens/s", "tokens_per_s", "number", True),
        Column("MFU", "mfu_percent", "percent", True),
        Column("peak memory", "peak_bytes", "bytes", True),
        Column("power, W", "power_w", "number"),
        Column("energy, µJ a token", "energy_uj", "number"),
        Column("best val loss", "loss", "text", True),
    ]
    if loss is not None:
        columns.append(Column(f"s to val loss {loss:g}", "seconds", "number"))
    rows = [summary_row(group, loss) for group in section.groups]
    known = [c for c in columns if any(row[c.key] not in (None, ABSENT) for row in rows)]
    note = (
        "Medians over the logged rows (of step times without the first rows of each start), of the "
        "memory the peak; averaged over the seeds."
    )
    return Table("summary", "Side by side", note, known, rows)


def summary_row(group: Group, loss: float | None) -> dict[str, Any]:
    mfu, energy = over_runs(group, "perf/mfu"), energy_per_token(group)
    losses = losses_of(group)
    return {
        "label": group.label,
        "runs": len(group.runs),
        "step_ms": typical_ms(group),
        "tokens_per_s": over_runs(group, "perf/tokens_per_s"),
        "mfu_percent": None if mfu is None else mfu * 100,
        "peak_bytes": over_runs(group, "memory/peak_bytes", np.max),
        "power_w": over_runs(group, "gpu/power_w"),
        "energy_uj": None if energy is None else energy * 1e6,
        "loss": span(losses) if losses else ABSENT,
        "seconds": None if loss is None else seconds_to(group, loss),
    }


def settings_table(section: Section) -> Table:
    """Keys that differ, a column for each group."""
    columns = [Column("key", "key", "code", True)]
    columns += [Column(g.label, f"group{i}", "text", True) for i, g in enumerate(section.groups)]
    rows = [
        {"key": key}
        | {f"group{i}": shown(g.settings.get(key)) for i, g in enumerate(section.groups)}
        for key in section.differs
    ]
    return Table("settings", "Configurations: what differs", "", columns, rows)


def shown(value: Any) -> str:
    if value is None:
        return ABSENT
    return str(value).lower() if isinstance(value, bool) else str(value)


def runs_table(section: Section) -> Table:
    columns = [
        Column("run", "name", "code", True),
        Column("configuration", "label", "text", True),
        Column("seed", "seed", "text"),
        Column("iterations", "iterations", "number", True),
        Column("best val loss", "loss", "text", True),
        Column("step, ms", "step_ms", "ms", True),
        Column("wall time, s", "wall_s", "number"),
        Column("machine", "device", "text"),
        Column("state", "state", "text"),
    ]
    rows = [run_row(group, run) for group in section.groups for run in group.runs]
    note = "Wall time holds compiling and evaluations; it is known once a run has ended."
    return Table("runs", "Runs", note, columns, rows)


def run_row(group: Group, run: RunFolder) -> dict[str, Any]:
    loss = best_loss(run)
    return {
        "name": run.name,
        "name_full": str(run.folder),
        "label": group.label,
        "seed": shown(run.config.get("seed")),
        "iterations": (run.summary or {}).get("iterations", run.iterations),
        "loss": ABSENT if loss is None else f"{loss:.4f}",
        "step_ms": float(np.median(run.step_ms)) if len(run.step_ms) else None,
        "wall_s": (run.summary or {}).get("wall_s"),
        "device": shown(run.in_force.get("device")),
        "state": "ended" if run.summary else "running, or killed",
    }
