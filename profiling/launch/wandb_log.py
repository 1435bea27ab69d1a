"""A capture's report, added to the W&B run that the training made. Called by profiling.verbs.log.

Everything is read from a scrubbed copy of the capture, so nothing else can be uploaded.
"""

import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cli.errors import one_line
from cli.lock import check_free
from profiling.analysis.capture import open_report
from profiling.analysis.report import Report
from profiling.analysis.runs.folder import METRICS, read_config
from profiling.metric_names import CAPTURE_MEDIA
from profiling.report.capture import tables
from profiling.report.capture.document import report_document, verdict_line
from profiling.report.document import Cell, Value
from profiling.report.renderers.page import page
from profiling.timeline import opening
from profiling.timeline.scrub import scrub

if TYPE_CHECKING:  # importing it takes a third of a second
    from wandb import Run, Settings

SUMMARY, FAMILIES, PAGE = CAPTURE_MEDIA
RUN_FOLDER = re.compile(r"(offline-)?run-\d{8}_\d{6}-(.+)")
INIT_TIMEOUT_S = 30.0
FINISH_TIMEOUT_S = 600.0  # a capture may have a hundred megabytes


@dataclass(frozen=True)
class TrainingRun:
    """The W&B run whose records lie in `out_dir`/wandb: several, when the run was resumed."""

    out_dir: Path
    id: str
    project: str
    offline: bool

    def sync_command(self) -> str:
        """For the records that were not sent yet; W&B marks those that were."""
        folders = [
            folder
            for folder in sorted((self.out_dir / "wandb").glob(f"offline-run-*-{self.id}"))
            if not list(folder.glob("*.wandb.synced"))
        ]
        return shlex.join(["wandb", "sync", *map(str, folders)])


def log_capture(capture: Path, out_dir: Path | None) -> str:
    """Says what was added. `out_dir`: the run's folder, where the capture does not lie in it.

    Raises ValueError with one line where it cannot.
    """
    if capture.is_dir():
        capture = opening.newest(capture)
    if capture.suffix == opening.REPORT:
        raise ValueError(
            f"{capture}: holds the environment and cannot be scrubbed; give its export, "
            f"{capture.with_suffix('.sqlite').name}"
        )
    run = training_run(out_dir or folder_around(capture))
    check_free(run.out_dir, f"{run.out_dir}")  # W&B takes one writer of a run at a time
    with tempfile.TemporaryDirectory(prefix="profiling-") as folder:
        copy = Path(folder) / capture.name
        scrub(capture, copy)
        opened = open_report(copy, beside=capture)
        html = page(report_document(opened.report, opened.median_step))
        upload(run, opened.report, html, copy)
    verdict = verdict_line(opened.report)
    said = f"{capture.name}: {verdict}; added to W&B run {run.id} of {run.project}"
    return said + (f"\noffline so far: {run.sync_command()}" if run.offline else "")


def log_metrics(out_dir: Path) -> str:
    """Sends the rows of metrics.jsonl that the server has not got. Says how many.

    Raises ValueError with one line where it cannot.
    """
    from training.wandb_run import kept_id, rows_of, values_of

    run, rows = training_run(out_dir), rows_of(out_dir / METRICS)
    if kept_id(out_dir / "wandb") != run.id:
        raise ValueError(
            f"{out_dir}: does not say which W&B run is its own: a copy, or of an older trainer"
        )
    with wandb_run(replace(run, offline=False), resume="allow") as resumed:
        first = resumed.starting_step
        missing = {step: row for step, row in rows.items() if step >= first}
        resumed.define_metric("iter")
        resumed.define_metric("*", step_metric="iter")
        for step, row in missing.items():
            resumed.log(values_of(row), step=step, commit=True)
    return f"{len(missing)} of {len(rows)} rows sent; W&B run {run.id} of {run.project} has all now"


def folder_around(capture: Path) -> Path:
    for folder in capture.resolve().parents[:2]:  # OUT_DIR/profile/CAPTURE
        if (folder / "wandb").is_dir():
            return folder
    raise ValueError(f"{capture}: lies in no run with W&B; name the run's folder with --run")


def training_run(out_dir: Path) -> TrainingRun:
    """Raises ValueError where W&B recorded nothing in this folder."""
    from training.wandb_run import kept_id  # here: other verbs work without the trainer

    place = out_dir / "wandb"
    matches = [RUN_FOLDER.fullmatch(path.name) for path in place.glob("*run-*") if path.is_dir()]
    found = sorted(filter(None, matches), key=lambda match: match[0].removeprefix("offline-"))
    if not found:
        raise ValueError(f"{place}: W&B recorded no run there; was it wandb.mode=disabled?")
    wandb = read_config(out_dir).get("wandb")
    project = wandb.get("project") if isinstance(wandb, dict) else None
    if not project:
        raise ValueError(f"{out_dir}/config.yaml: lacks wandb.project; is it a run's folder?")
    run_id = kept_id(place) or found[-1][2]  # W&B numbers folders of the same second
    return TrainingRun(out_dir, run_id, project, found[-1][1] is not None)


def upload(run: TrainingRun, report: Report, html: str, copy: Path) -> None:
    """Raises ValueError with what W&B said."""
    with wandb_run(run, resume="allow" if run.offline else "must") as resumed:
        add(resumed, report, html, copy)


@contextmanager
def wandb_run(run: TrainingRun, resume: Literal["allow", "must"]) -> "Iterator[Run]":
    """The run, gone on with; finished at the end. Raises ValueError with what W&B said."""
    import wandb

    data = run.out_dir.resolve() / "wandb" / "data"
    os.environ.setdefault("WANDB_DATA_DIR", str(data))  # artifacts are staged in the home else
    wandb.setup(wandb.Settings(show_info=False))  # its warnings stay
    try:
        resumed = wandb.init(
            mode="offline" if run.offline else "online",
            dir=run.out_dir,
            project=run.project,
            id=run.id,
            resume=resume,
            settings=settings(run.offline),
        )
        yield resumed
        resumed.finish()
    except (wandb.Error, OSError, TimeoutError) as error:
        raise ValueError(f"W&B: {one_line(error)}") from error


def settings(offline: bool) -> "Settings":
    import wandb

    from training.wandb_mirror import online_key  # here: other verbs work without the trainer

    return wandb.Settings(
        silent=True,
        console="off",
        api_key=None if offline else online_key(),  # given, it is never asked for
        disable_git=True,
        disable_code=True,
        save_code=False,
        init_timeout=INIT_TIMEOUT_S,
        finish_timeout=FINISH_TIMEOUT_S,
        finish_timeout_raises=True,
        x_disable_stats=True,  # of this process, not of the training
    )


def add(run: "Run", report: Report, html: str, copy: Path) -> None:
    import wandb

    figures = summary(report)
    panels: dict[str, object] = {
        SUMMARY: wandb.Table(["what", "value"], data=[[k, str(v)] for k, v in figures]),
        PAGE: wandb.Html(html, inject=False),
    }
    named = {FAMILIES: tables.families(report), "capture/phases": tables.phases(report)}
    for panel, table in named.items():
        if table.rows:
            columns: list[str | int] = [str(column.value) for column in table.columns]  # with units
            rows = [[bare(column.of(row)) for column in table.columns] for row in table.rows]
            panels[panel] = wandb.Table(columns, data=rows)
    if report.window.first_iteration is not None:
        panels["iter"] = report.window.first_iteration
    run.log(panels)
    run.summary.update({f"capture/{name}": value for name, value in figures if value is not None})
    artifact = wandb.Artifact(f"capture-{run.id}", type="capture")
    artifact.add_file(str(copy), name=copy.name)
    run.log_artifact(artifact)


def bare(value: Value) -> Value:
    return value.text if isinstance(value, Cell) else value


def summary(report: Report) -> list[tuple[str, Value]]:
    """What one would compare runs by."""
    breakdown = {} if report.breakdown is None else vars(report.breakdown)
    return [
        ("bottleneck", report.bottleneck.verdict),
        ("attention_backend", report.attention_backend),
        ("steps", report.window.steps),
        ("step_ms", report.window.step_ms.median),
        ("gpu_busy_percent", report.gpu.busy_percent if report.gpu else None),
        *breakdown.items(),
        ("file", report.capture.file),
    ]
