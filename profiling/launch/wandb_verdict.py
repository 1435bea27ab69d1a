"""Answers of `compare` and `ab` in W&B: a run for each pair, so that it is a row of W&B's table.

Called by these verbs where --wandb asks for it.
"""

import contextlib
import shlex
from argparse import ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from configs.training import WandbConfig
from profiling.analysis.difference.comparison_records import Comparison, Experiment, StepComparison
from profiling.launch.wandb_client import wandb_run, wandb_table
from profiling.report.comparison import tables
from profiling.report.comparison.document import comparison_document, experiment_document
from profiling.report.document import Value
from profiling.report.renderers.page import page
from profiling.shared.json_records import JsonObject, to_json

if TYPE_CHECKING:  # importing it takes a third of a second
    import wandb
    from wandb import Run

JobType = Literal["compare", "ab"]
HELP = (
    "add the answer to this W&B project, offline if there is no key; without this flag nothing is "
    "sent"
)


def project(word: str) -> str:
    """Parse the value of --wandb. Raises ArgumentTypeError for a bad project name."""
    try:
        return WandbConfig(project=word).project
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def log_comparison(comparison: Comparison, project: str) -> str:
    """Log a comparison and return a line saying where it is. Raises ValueError with W&B's
    message."""
    without_folders = with_file_names(comparison)
    html = page(comparison_document(without_folders), as_json=to_json(without_folders))
    return log_answers([without_folders], html, project, Path(), "compare", None, {})


def log_experiment(experiment: Experiment, project: str, folder: Path) -> str:
    """Log the answer for each value against the first, and return lines saying where they are.

    In W&B the answers share a group, the folder's name. Raises ValueError with W&B's message.
    """
    html = page(experiment_document(experiment), as_json=to_json(experiment))
    config: JsonObject = {
        "key": experiment.factor.key,
        "steps": experiment.steps,
        "processes": len(experiment.runs),
        "git": (experiment.environment or {}).get("git"),
    }
    return log_answers(
        experiment.comparisons, html, project, folder, "ab", folder.resolve().name, config
    )


def log_answers(
    comparisons: Sequence[Comparison],
    html: str,
    project: str,
    folder: Path,
    job_type: JobType,
    group: str | None,
    config: JsonObject,
) -> str:
    offline = is_offline()
    lines = []
    for comparison in comparisons:
        pair = f"{comparison.candidate.name} against {comparison.baseline.name}"
        with (
            wandb_run(
                folder,
                project,
                None,  # WANDB_ENTITY, or one's own
                offline=offline,
                name=pair[:128],
                group=group,
                job_type=job_type,
                config=config | config_of(comparison),
            ) as run
        ):
            add(run, comparison, html)
            sync = shlex.join(["wandb", "sync", str(Path(run.dir).parent)])
            lines.append(f"W&B     {f'offline so far: {sync}' if offline else run.url}")
    return "\n".join(lines)


def with_file_names(comparison: Comparison) -> Comparison:
    """The comparison with its files' names alone: their folders may reveal the user."""
    sides = comparison.baseline, comparison.candidate
    baseline, candidate = (replace(side, file=Path(side.file).name) for side in sides)
    return replace(comparison, baseline=baseline, candidate=candidate)


def is_offline() -> bool:
    """Whether to record offline: there is no key, no server answers, or W&B's variables say so.

    It is asked after the work, so that the result of half an hour is not lost to a server that is
    away. Raises ValueError if W&B is switched off.
    """
    from training.metrics.wandb_settings import (  # here: it needs the trainer
        check_wandb,
        online_key,
    )

    mode = check_wandb(WandbConfig())
    if mode == "disabled":
        raise ValueError("--wandb: WANDB_MODE or WANDB_DISABLED turns W&B off; unset this variable")
    if mode == "online":
        with contextlib.suppress(ValueError):
            online_key()
            return False
    return True


def config_of(comparison: Comparison) -> JsonObject:
    """The configuration of the run in W&B, by which runs are told apart."""
    sides = {"baseline": comparison.baseline, "candidate": comparison.candidate}
    return {
        name: {
            "name": side.name,
            "file": side.file,
            "device": side.device,
            "attention": side.attention_backend,
            "bottleneck": side.bottleneck,
        }
        for name, side in sides.items()
    } | {"equal_within_percent": comparison.equal_within_percent}


def add(run: "Run", comparison: Comparison, html: str) -> None:
    import wandb

    panels: dict[str, object] = {
        "verdict/step_ms": steps(comparison.step_ms),
        "verdict/report": wandb.Html(html, inject=False),
    }
    for table in (tables.buckets(comparison), tables.families(comparison)):
        if table.rows:
            panels[f"verdict/{table.name}"] = wandb_table(table, headings=True)
    run.log(panels)
    values = {f"verdict/{name}": value for name, value in figures(comparison).items()}
    run.summary.update({name: value for name, value in values.items() if value is not None})


def figures(comparison: Comparison) -> dict[str, Value]:
    """Columns of the runs' table in W&B. The ratio is of times: below 1 the candidate is faster."""
    step, unknown = comparison.step_ms, comparison.cannot_tell
    low, high = step.ci95 or (None, None)
    return {
        "answer": comparison.verdict,
        "sentence": comparison.sentence,
        "ratio": step.ratio,
        "ratio_low": low,
        "ratio_high": high,
        "noise_percent": step.noise_percent,
        "baseline": step.baseline,
        "candidate": step.candidate,
        "unit": step.unit,
        "cannot_tell": unknown.reason if unknown else None,
    }


def steps(step: StepComparison) -> "wandb.Table":
    """Table of every step time; of an experiment, the median of every process."""
    import wandb

    sides = {"baseline": step.baseline_values, "candidate": step.candidate_values}
    rows = [[side, i, value] for side, values in sides.items() for i, value in enumerate(values)]
    return wandb.Table(["side", "number", step.unit], data=rows)
