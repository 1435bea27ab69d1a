"""Links a run's folder with its W&B run, and rows with their steps in the W&B history.

A resumed run continues the W&B run that it began in, without repeating rows that this has already.
Called by training.metrics.wandb_mirror, and by profiling.launch.wandb_log for rows that the mirror
missed.
"""

import contextlib
import json
import os
from pathlib import Path

from cli.errors import one_line
from profiling.shared.metric_names import VAL_LOSS
from training.metrics.sinks import Row

NAME = "run.json"  # in OUT_DIR/wandb
STEPS = 10  # W&B history steps per iteration; leaves room for rows that are logged afterwards


def history_step(row: Row) -> int:
    """Step of a row in W&B's history; an evaluation comes before the training row of its iteration.

    A resumed run gives a repeated row the same step. As W&B takes a row only after all that it has,
    it then has the row once.
    """
    iteration = row["iter"]
    assert isinstance(iteration, int)
    return first_step(iteration) + (0 if VAL_LOSS.name in row else STEPS // 2)


def first_step(iteration: int) -> int:
    """Least step in W&B's history of any row of `iteration`."""
    return STEPS * iteration


def kept_id(wandb_dir: Path) -> str | None:
    """Id of the folder's W&B run, or None if there was none, or if the folder is a copy.

    A copy is a branch of the run, and two branches in one chart would be neither. A folder that was
    moved keeps the file's inode; one that was copied, or moved from another file system, does not.
    """
    path = wandb_dir / NAME
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["inode"] == path.stat().st_ino and isinstance(kept["id"], str):
            return kept["id"]
    return None


def keep_id(wandb_dir: Path, run_id: str) -> None:
    """Stores the id of the folder's W&B run for `kept_id`. Raises OSError."""
    wandb_dir.mkdir(exist_ok=True)
    with open(wandb_dir / NAME, "w", encoding="utf-8") as file:
        json.dump({"id": run_id, "inode": os.fstat(file.fileno()).st_ino}, file)


def rows_of(metrics: Path) -> dict[int, Row]:
    """Rows of a metrics.jsonl by history step, in order; of several for a step the last one counts.

    Raises ValueError if the file cannot be read.
    """
    rows: dict[int, Row] = {}
    try:
        lines = metrics.read_bytes().splitlines()
    except OSError as error:
        raise ValueError(f"{metrics}: cannot be read: {one_line(error)}") from error
    for line in lines:
        with contextlib.suppress(ValueError, TypeError, KeyError, AssertionError):  # half-written
            row = json.loads(line)
            if "run" not in row:
                row.pop("data", None)
                rows[history_step(row)] = row
    return dict(sorted(rows.items()))


def values_of(row: Row) -> dict[str, object]:
    """The values of a row that W&B gets: those that are not None."""
    return {name: value for name, value in row.items() if value is not None}
