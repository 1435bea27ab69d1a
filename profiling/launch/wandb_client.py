"""A run in W&B, opened by a verb that has something to add. Used by wandb_log and wandb_verdict.

Training has a client of its own (training.metrics.wandb_mirror), which nothing of W&B may hold up.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cli.errors import one_line
from profiling.report.document import Cell, Column, Table, Value
from profiling.shared.json_records import JsonObject

if TYPE_CHECKING:  # importing it takes a third of a second
    import wandb
    from wandb import Run, Settings

INIT_TIMEOUT_S = 30.0
FINISH_TIMEOUT_S = 600.0  # a capture may have a hundred megabytes


@contextmanager
def wandb_run(
    folder: Path,
    project: str,
    entity: str | None,
    *,
    offline: bool,
    run_id: str | None = None,
    resume: Literal["allow", "must"] | None = None,
    name: str | None = None,
    group: str | None = None,
    job_type: str | None = None,
    config: JsonObject | None = None,
) -> "Iterator[Run]":
    """Open a run whose record lies in `folder`/wandb, and finish it at the end of the block.

    Raises ValueError with W&B's message.
    """
    import wandb

    # artifacts are staged in the home folder otherwise
    os.environ.setdefault("WANDB_DATA_DIR", str(folder.resolve() / "wandb" / "data"))
    wandb.setup(wandb.Settings(show_info=False))  # its warnings stay
    try:
        run = wandb.init(
            mode="offline" if offline else "online",
            dir=folder,
            project=project,
            entity=entity,
            id=run_id,
            resume=resume,
            name=name,
            group=group,
            job_type=job_type,
            config=config,
            reinit="create_new",
            settings=settings(offline),
        )
        yield run
        run.finish()
    except (wandb.Error, OSError) as error:
        raise ValueError(f"W&B: {one_line(error)}") from error


def settings(offline: bool) -> "Settings":
    import wandb

    from training.metrics.wandb_settings import (
        online_key,  # here: other verbs work without the trainer
    )

    return wandb.Settings(
        silent=True,
        console="off",
        api_key=None if offline else online_key(),  # given here, so W&B never prompts for it
        disable_git=True,
        disable_code=True,
        save_code=False,
        init_timeout=INIT_TIMEOUT_S,
        finish_timeout=FINISH_TIMEOUT_S,
        finish_timeout_raises=True,
        # these would describe this process, not the training: its load, its command with folders
        x_disable_stats=True,
        x_disable_meta=True,
    )


def wandb_table(table: Table, *, headings: bool = False) -> "wandb.Table":
    """The table for W&B, with numbers as numbers, so that W&B sorts and draws them.

    Columns are called as the records' fields, whose names say the units, or by their headings.
    """
    import wandb

    columns: list[str | int] = [
        column.heading if headings else field_name(column) for column in table.columns
    ]
    rows = [
        [plain_value(column.value_of(row)) for column in table.columns] for row in table.rows or ()
    ]
    return wandb.Table(columns, data=rows)


def field_name(column: Column) -> str:
    """Name of the column's field, else one made of its heading: total_a_step_ns."""
    if isinstance(column.value, str):
        return column.value
    return column.heading.replace(" ", "_") + "_ns" * (column.kind == "ns")


def plain_value(value: Value) -> Value:
    return value.text if isinstance(value, Cell) else value
