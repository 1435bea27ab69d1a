"""A capture's report, added to the W&B run that the training made. Called by profiling.verbs.log.

Everything is read from a scrubbed copy of the capture, so nothing else can be uploaded.
"""

import os
import re
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cli.lock import check_free
from profiling.analysis.difference.compared import environment_of
from profiling.analysis.open_report import open_report
from profiling.analysis.records import Report
from profiling.analysis.runs.folder import read_config
from profiling.launch.wandb_client import wandb_run, wandb_table
from profiling.report.document import Value
from profiling.report.renderers.page import page
from profiling.report.single import tables
from profiling.report.single.document import report_document
from profiling.report.single.verdict_line import verdict_line
from profiling.shared.artifact_names import artifact_name
from profiling.shared.json_records import JsonObject, to_json
from profiling.shared.metric_names import CAPTURE_GPU, CAPTURE_HOST, CAPTURE_MEDIA, TRAINING_PHASES
from profiling.shared.run_files import METRICS
from profiling.timeline import opening
from profiling.timeline.scrub import scrub

if TYPE_CHECKING:  # importing it takes a third of a second
    from wandb import Artifact, Run

SUMMARY, FAMILIES, PHASES, PAGE = CAPTURE_MEDIA
RUN_FOLDER = re.compile(r"(offline-)?run-\d{8}_\d{6}-(.+)")


@dataclass(frozen=True)
class TrainingRun:
    """The W&B run of a training; `folder`/wandb holds its records, several if it was resumed."""

    out_dir: Path
    folder: Path  # out_dir, or that of WANDB_DIR
    id: str
    project: str
    entity: str | None  # None leaves the choice to W&B
    offline: bool
    config: JsonObject  # as in config.yaml
    registry: str | None = None  # to which artifacts are linked

    def sync_command(self) -> str:
        """The command that sends the records that were not sent yet; W&B marks those that were."""
        folders = [
            folder
            for folder in sorted((self.folder / "wandb").glob(f"offline-run-*-{self.id}"))
            if not list(folder.glob("*.wandb.synced"))
        ]
        return shlex.join(["wandb", "sync", *map(str, folders)])


def log_capture(capture: Path, out_dir: Path | None) -> str:
    """Add a capture's report to its W&B run, and return a line saying what was added.

    `out_dir` is the run's folder, needed if the capture does not lie in it. Raises ValueError with
    one line if it cannot be added.
    """
    if capture.is_dir():
        capture = opening.newest(capture)
    if capture.suffix == opening.REPORT:
        raise ValueError(
            f"{capture}: contains the environment and cannot be scrubbed; give its export, "
            f"{capture.with_suffix('.sqlite').name}"
        )
    run = training_run(out_dir or folder_around(capture))
    check_free(run.out_dir, f"{run.out_dir}")  # W&B takes one writer of a run at a time
    with tempfile.TemporaryDirectory(prefix="profiling-") as folder:
        copy = Path(folder) / capture.name
        scrub(capture, copy)
        analysed = open_report(copy, beside=capture)
        document = report_document(analysed.report, analysed.step_events)
        html = page(document, as_json=to_json(analysed.report))
        unlinked = upload(run, analysed.report, html, copy)
    verdict = verdict_line(analysed.report)
    line = f"{capture.name}: {verdict}; added to W&B run {run.id} of {run.project}"
    line += f"\n{unlinked}" if unlinked else ""
    return line + (f"\noffline so far: {run.sync_command()}" if run.offline else "")


def log_metrics(out_dir: Path) -> str:
    """Send the rows of metrics.jsonl that the server lacks, and return a line saying how many.

    Raises ValueError with one line if it cannot.
    """
    from training.metrics.wandb_facts import define_metrics
    from training.metrics.wandb_run import kept_id, rows_of, values_of

    run, rows = training_run(out_dir), rows_of(out_dir / METRICS)
    if kept_id(out_dir / "wandb") != run.id:
        raise ValueError(
            f"{out_dir}: the folder does not say which W&B run belongs to it; it is a copy or "
            "from an older trainer"
        )
    with wandb_run(
        run.folder, run.project, run.entity, offline=False, run_id=run.id, resume="allow"
    ) as resumed:
        first = resumed.starting_step
        missing = {step: row for step, row in rows.items() if step >= first}
        define_metrics(resumed)
        for step, row in missing.items():
            resumed.log(values_of(row), step=step, commit=True)
    return (
        f"{len(missing)} of {len(rows)} rows sent; W&B run {run.id} of {run.project} now has all "
        "rows"
    )


def folder_around(capture: Path) -> Path:
    """The run's folder that a capture lies in. Raises ValueError if there is none with W&B."""
    for folder in Path(os.path.realpath(capture)).parents[:2]:  # OUT_DIR/profile/CAPTURE
        if (folder / "wandb").is_dir():
            return folder
    if not capture.exists():
        raise ValueError(f"{capture}: no such file or folder")
    raise ValueError(
        f"{capture}: is not in the folder of a run with W&B; name that folder with --run"
    )


def training_run(out_dir: Path) -> TrainingRun:
    """The W&B run of the training in this folder. Raises ValueError if W&B recorded none there."""
    from training.metrics.wandb_run import kept_id
    from training.metrics.wandb_settings import (
        wandb_folder,  # here: others work without the trainer
    )

    folder, kept = wandb_folder(out_dir), kept_id(out_dir / "wandb")
    place = folder / "wandb"
    matches = [RUN_FOLDER.fullmatch(path.name) for path in place.glob("*run-*") if path.is_dir()]
    folders = sorted(filter(None, matches), key=lambda match: match[0].removeprefix("offline-"))
    if folder != out_dir:  # which has the records of other runs, too
        folders = [match for match in folders if match[2] == kept]
    if not folders:
        raise ValueError(
            f"{place}: W&B recorded no run in this folder; check whether wandb.mode was disabled, "
            "or WANDB_DIR another one"
        )
    config = read_config(out_dir)
    wandb = config.get("wandb")
    keys = wandb if isinstance(wandb, dict) else {}
    project = keys.get("project")
    if not project:
        raise ValueError(f"{out_dir}/config.yaml: has no wandb.project; give the folder of a run")
    run_id = kept or folders[-1][2]  # W&B numbers folders of the same second
    offline = folders[-1][1] is not None
    entity, registry = keys.get("entity"), keys.get("registry")
    return TrainingRun(out_dir, folder, run_id, project, entity, offline, config, registry)


def upload(run: TrainingRun, report: Report, html: str, copy: Path) -> str | None:
    """Add report, page and the scrubbed capture to the run.

    Returns a line that says why the capture is in no registry although it was to be. Raises
    ValueError with W&B's message.
    """
    from training.metrics.wandb_facts import send_artifact  # here: others work without the trainer

    resume: Literal["allow", "must"] = "allow" if run.offline else "must"
    with wandb_run(
        run.folder, run.project, run.entity, offline=run.offline, run_id=run.id, resume=resume
    ) as resumed:
        add(resumed, report, html)
        aliases = [f"run-{run.id}", report.bottleneck.verdict]
        artifact = capture_artifact(run, report, copy)
        return send_artifact(resumed, artifact, aliases, run.registry)


def add(run: "Run", report: Report, html: str) -> None:
    import wandb

    figures = summary(report)
    panels: dict[str, object] = {
        # a column each, so that the table of several runs can be sorted and drawn
        SUMMARY: wandb.Table([name for name, _ in figures], data=[[v for _, v in figures]]),
        PAGE: wandb.Html(html, inject=False),
    }
    for panel, table in ((FAMILIES, tables.families(report)), (PHASES, tables.phases(report))):
        if table.rows:
            panels[panel] = wandb_table(table)
    if report.window.first_iteration is not None:
        panels["iter"] = report.window.first_iteration
    run.log(panels)
    named = {f"capture/{name}": value for name, value in figures} | phases_ms(report)
    run.summary.update({name: value for name, value in named.items() if value is not None})


def capture_artifact(run: TrainingRun, report: Report, copy: Path) -> "Artifact":
    """The capture as an artifact: a version under the name that its configuration's captures share,
    with metadata to choose by."""
    import wandb

    environment = environment_of(report.run.environment if report.run else None, copy.name)
    gpu = report.capture.gpu
    metadata: JsonObject = {
        "verdict": verdict_line(report),
        "bottleneck": report.bottleneck.verdict,
        "step_ms": report.window.step_ms.median,
        "steps": report.window.steps,
        "first_iteration": report.window.first_iteration,
        "gpu": gpu.name if gpu else None,
        "commit": environment.git.commit if environment.git else None,
        "dirty": environment.git.dirty if environment.git else None,
        "seed": run.config.get("seed"),
        "tool": f"{report.capture.kind} {report.capture.tool_version or ''}".strip(),
    }
    name = artifact_name("capture", run.config, report.attention_backend)
    artifact = wandb.Artifact(name, type="capture", metadata=metadata)
    artifact.add_file(str(copy), name=copy.name)
    return artifact


def phases_ms(report: Report) -> dict[str, Value]:
    """Milliseconds a step of each phase of training, by name in the run's summary."""
    values: dict[str, Value] = {}
    for entry in report.ranges:
        if entry.depth == 0 and entry.name in TRAINING_PHASES:
            values[f"{CAPTURE_HOST}/{entry.name}"] = entry.host_ms / report.window.steps
            if entry.gpu_ms is not None:
                values[f"{CAPTURE_GPU}/{entry.name}"] = entry.gpu_ms / report.window.steps
    return values


def summary(report: Report) -> list[tuple[str, Value]]:
    """(name, value) pairs by which runs can be compared."""
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
