"""Run folders with chosen rows; validation.made_runs makes whole ones up."""

import json
from pathlib import Path
from typing import Any

from profiling.analysis.runs.folder import SETTLING_ROWS
from validation.made_runs import STEP_MS, TOKENS, write_run

__all__ = ["STEP_MS", "TOKENS", "append", "rows_of_start", "step_row", "with_rows", "write_run"]


def with_rows(folder: Path, *rows: dict[str, Any]) -> Path:
    """Write a run whose metrics.jsonl has these rows after the opening one."""
    write_run(folder, rows=1)
    (folder / "metrics.jsonl").write_text("")
    append(folder, {"run": {}, "iter": 0}, *rows)
    return folder


def append(folder: Path, *rows: dict[str, Any]) -> None:
    with open(folder / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def step_row(iteration: int, ms: float, **more: Any) -> dict[str, Any]:
    """Training row whose iterations took `ms` each."""
    row = {"iter": iteration, "time/step_ms": ms, "perf/tokens_per_s": TOKENS / ms * 1e3}
    return row | more


def rows_of_start(ms: float, count: int = 20, first: int = 0) -> list[dict[str, Any]]:
    """Rows of a start at iteration `first`: slow ones that settle, then `count` of about `ms`."""
    cold = [step_row(first + i * 10, 100.0) for i in range(SETTLING_ROWS)]
    first += 10 * SETTLING_ROWS
    return cold + [step_row(first + i * 10, ms + 0.01 * (i % 3)) for i in range(count)]
