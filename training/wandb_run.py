"""Which W&B run belongs to a run's folder, and where in its history a row stands.

A resumed run goes on in the W&B run that it began in; rows that this has already are not doubled.
Called by training.wandb_mirror, and by profiling.launch.wandb_log for rows that it did not get.
"""

import contextlib
import json
import os
from pathlib import Path

from cli.errors import one_line
from profiling.metric_names import VAL_LOSS
from training.sinks import Row

NAME = "run.json"  # in OUT_DIR/wandb
STEPS = 10  # of W&B's history in an iteration: room between its rows for what is logged afterwards


def history_step(row: Row) -> int:
    """The same for the same row of every life of a run; an evaluation is before its iteration.

    W&B takes a row only behind all that it has. What it has of a resumed run, it so has once.
    """
    iteration = row["iter"]
    assert isinstance(iteration, int)
    return first_step(iteration) + (0 if VAL_LOSS.name in row else STEPS // 2)


def first_step(iteration: int) -> int:
    return STEPS * iteration


def kept_id(wandb_dir: Path) -> str | None:
    """The id of the folder's W&B run; None where there was none, or of a copy of the folder.

    A copy is a branch, and two runs in one chart would be neither. What was moved has the same
    inode; what was copied, or came from another file system, has not.
    """
    path = wandb_dir / NAME
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["inode"] == path.stat().st_ino and isinstance(kept["id"], str):
            return kept["id"]
    return None


def keep_id(wandb_dir: Path, run_id: str) -> None:
    """Raises OSError."""
    wandb_dir.mkdir(exist_ok=True)
    with open(wandb_dir / NAME, "w", encoding="utf-8") as file:
        json.dump({"id": run_id, "inode": os.fstat(file.fileno()).st_ino}, file)


def rows_of(metrics: Path) -> dict[int, Row]:
    """The rows of a metrics.jsonl in the order of their steps; the last word on each counts.

    Raises ValueError where there is no such file.
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
    """What W&B is given of a row."""
    return {name: value for name, value in row.items() if value is not None}
