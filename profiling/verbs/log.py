"""`python -m profiling log CAPTURE`: its report, added to the W&B run that the training made.

Everything is read from a scrubbed copy of the capture, so nothing else can be uploaded.
"""

import argparse
import os
import re
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from profiling.analysis.capture import open_report
from profiling.analysis.runs.run_folder import read_config
from profiling.metric_names import CAPTURE_MEDIA
from profiling.report import tables, wording
from profiling.timeline import opening
from profiling.timeline.scrub import scrub
from profiling.verbs.report import refuse

if TYPE_CHECKING:  # importing it takes a third of a second
    from wandb import Run, Settings

HELP = """\
Adds the report of a capture to the W&B run of its training, when that has ended.

usage: python -m profiling log CAPTURE [--run OUT_DIR]

  CAPTURE             an nsys export (.sqlite), a torch.profiler trace (.json), either as .gz, or a
                      run's folder: its newest capture
  --run OUT_DIR       the run's folder, where CAPTURE does not lie in it

The run gets tables (capture/summary, capture/families, capture/phases), the page with its charts
(capture/report), and the capture as an artifact. Of the capture a copy is uploaded from which the
environment, user, host and folders were taken (python -m profiling scrub); never a .nsys-rep,
which cannot be scrubbed. A run that was recorded offline gets this offline too, to be sent with the
`wandb sync` command that is printed.

exit code: 0, or 2 for a mistake in the command line, a capture that cannot be read, W&B's refusal
"""

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


def main(argv: list[str]) -> int:
    """Runs it and returns the exit code. Raises ValueError with one line where it cannot."""
    if {"-h", "--help"} & set(argv):
        print(HELP, end="")
        return 0
    capture, out_dir = parse(argv)
    if capture.is_dir():
        capture = opening.newest(capture)
    if capture.suffix == opening.REPORT:
        raise ValueError(
            f"{capture}: holds the environment and cannot be scrubbed; give its export, "
            f"{capture.with_suffix('.sqlite').name}"
        )
    run = training_run(out_dir or folder_around(capture))
    with tempfile.TemporaryDirectory(prefix="profiling-") as folder:
        copy = Path(folder) / capture.name
        scrub(capture, copy)
        report, page = read(capture, copy)
        upload(run, report, page, copy)
    print(f"{capture.name}: {wording.headline(report)}; added to W&B run {run.id} of {run.project}")
    if run.offline:
        print(f"offline so far: {run.sync_command()}")
    return 0


def parse(argv: list[str]) -> tuple[Path, Path | None]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.error = refuse
    parser.add_argument("capture", type=Path)
    parser.add_argument("--run", type=Path)
    flags = parser.parse_args(argv)
    return flags.capture, flags.run


def folder_around(capture: Path) -> Path:
    for folder in capture.resolve().parents[:2]:  # OUT_DIR/profile/CAPTURE
        if (folder / "wandb").is_dir():
            return folder
    raise ValueError(f"{capture}: lies in no run with W&B; name the run's folder with --run")


def training_run(out_dir: Path) -> TrainingRun:
    """Raises ValueError where W&B recorded nothing in this folder."""
    place = out_dir / "wandb"
    matches = [RUN_FOLDER.fullmatch(path.name) for path in place.glob("*run-*") if path.is_dir()]
    found = sorted(filter(None, matches), key=lambda match: match[0].removeprefix("offline-"))
    if not found:
        raise ValueError(f"{place}: W&B recorded no run there; was it wandb.mode=disabled?")
    project = (read_config(out_dir).get("wandb") or {}).get("project")
    if not project:
        raise ValueError(f"{out_dir}/config.yaml: lacks wandb.project; is it a run's folder?")
    return TrainingRun(out_dir, found[-1][2], project, found[-1][1] is not None)


def read(capture: Path, copy: Path) -> tuple[dict[str, Any], str]:
    """The report and its page, of the scrubbed copy; the manifest lies beside the capture."""
    from profiling.report.page import page  # here: plotly takes long to import

    opened = open_report(copy, beside=capture)
    report = msgspec.to_builtins(opened.report)
    return report, page(report, opened.median_step)


def upload(run: TrainingRun, report: dict[str, Any], page: str, copy: Path) -> None:
    """Raises ValueError with what W&B said."""
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
            resume="allow" if run.offline else "must",
            settings=settings(run.offline),
        )
        add(resumed, report, page, copy)
        resumed.finish()
    except (wandb.Error, OSError, TimeoutError) as error:
        raise ValueError(f"W&B: {' '.join(str(error).split())}") from error


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


def add(run: "Run", report: dict[str, Any], page: str, copy: Path) -> None:
    import wandb

    window = report["window"]
    figures = summary(report)
    panels: dict[str, Any] = {
        SUMMARY: wandb.Table(["what", "value"], data=[[k, str(v)] for k, v in figures]),
        PAGE: wandb.Html(page, inject=False),
    }
    named = {FAMILIES: tables.families(report), "capture/phases": tables.phases(report)}
    for panel, table in named.items():
        if table.rows:
            columns = [column.key for column in table.columns]  # with their units
            rows = [[row[key] for key in columns] for row in table.rows]
            panels[panel] = wandb.Table(columns, data=rows)
    if window["first_iteration"] is not None:
        panels["iter"] = window["first_iteration"]
    run.log(panels)
    run.summary.update({f"capture/{name}": value for name, value in figures if value is not None})
    artifact = wandb.Artifact(f"capture-{run.id}", type="capture")
    artifact.add_file(str(copy), name=copy.name)
    run.log_artifact(artifact)


def summary(report: dict[str, Any]) -> list[tuple[str, Any]]:
    """What one would compare runs by."""
    gpu = report["gpu"] or {}
    breakdown = report["breakdown"] or {}
    return [
        ("bottleneck", report["bottleneck"]["verdict"]),
        ("attention_backend", report["attention_backend"]),
        ("steps", report["window"]["steps"]),
        ("step_ms", report["window"]["step_ms"]["median"]),
        ("gpu_busy_percent", gpu.get("busy_percent")),
        *((name, breakdown[name]) for name in breakdown),
        ("file", report["capture"]["file"]),
    ]
