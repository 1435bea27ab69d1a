"""The answer of `compare` and `ab` in W&B: a run of its own for each pair, so that it is a row.

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
from profiling.analysis.difference.records import Comparison, Experiment, StepComparison
from profiling.launch.wandb_client import wandb_run, wandb_table
from profiling.records import JsonObject
from profiling.report.comparison import tables
from profiling.report.comparison.document import comparison_document, experiment_document
from profiling.report.document import Value
from profiling.report.renderers.page import page

if TYPE_CHECKING:  # importing it takes a third of a second
    import wandb
    from wandb import Run

JobType = Literal["compare", "ab"]
HELP = "add the answer to this project in W&B, offline without a key; nothing is sent without it"


def project(word: str) -> str:
    """The type of --wandb."""
    try:
        return WandbConfig(project=word).project
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def log_comparison(comparison: Comparison, project: str) -> str:
    """Says where it is. Raises ValueError with what W&B said."""
    bare = with_file_names(comparison)
    html = page(comparison_document(bare))
    return log_answers([bare], html, project, Path(), "compare", None, {})


def log_experiment(experiment: Experiment, project: str, folder: Path) -> str:
    """Each value against the first one; in W&B the answers share a group, the folder's name."""
    html = page(experiment_document(experiment))
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
    said = []
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
            said.append(f"W&B     {f'offline so far: {sync}' if offline else run.url}")
    return "\n".join(said)


def with_file_names(comparison: Comparison) -> Comparison:
    """With the names of its files, without their folders, which say who one is."""
    sides = comparison.baseline, comparison.candidate
    baseline, candidate = (replace(side, file=Path(side.file).name) for side in sides)
    return replace(comparison, baseline=baseline, candidate=candidate)


def is_offline() -> bool:
    """Where there is no key, no server answers, or W&B's variables say so.

    Asked behind the work: what took half an hour is not to be lost to a server that is away.
    Raises ValueError where W&B is switched off.
    """
    from training.wandb_mirror import check_wandb, online_key  # here: it needs the trainer

    mode = check_wandb(WandbConfig())
    if mode == "disabled":
        raise ValueError("--wandb: WANDB_MODE or WANDB_DISABLED switches W&B off; unset it")
    if mode == "online":
        with contextlib.suppress(ValueError):
            online_key()
            return False
    return True


def config_of(comparison: Comparison) -> JsonObject:
    """What runs are told apart by."""
    sides = {"baseline": comparison.baseline, "candidate": comparison.candidate}
    return {
        side: {
            "name": each.name,
            "file": each.file,
            "device": each.device,
            "attention": each.attention_backend,
            "bottleneck": each.bottleneck,
        }
        for side, each in sides.items()
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
    run.summary.update(
        {f"verdict/{name}": each for name, each in figures(comparison).items() if each is not None}
    )


def figures(comparison: Comparison) -> dict[str, Value]:
    """Columns of the runs' table. The ratio is of times: below 1 the candidate is faster."""
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
    """Every step time, of an experiment the median of every process."""
    import wandb

    sides = {"baseline": step.baseline_values, "candidate": step.candidate_values}
    rows = [[side, i, value] for side, values in sides.items() for i, value in enumerate(values)]
    return wandb.Table(["side", "number", step.unit], data=rows)
