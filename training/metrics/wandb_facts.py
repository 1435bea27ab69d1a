"""Prepares what W&B gets of a run besides its rows: configuration, metrics, artifacts.

Called by training.metrics.wandb_mirror, and by profiling.launch.wandb_log for captures.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from cli.errors import one_line
from profiling.shared.artifact_names import artifact_name
from profiling.shared.json_records import JsonObject
from profiling.shared.metric_names import VAL_LOSS
from profiling.shared.run_files import CHECKPOINTS, SHARDS
from training.metrics.sinks import Row, RunFacts

if TYPE_CHECKING:  # importing it takes a third of a second
    from wandb import Artifact, Run

# keys of environment.json that are sent; the command is not, since it may name anything
REPRODUCES = ("git", "python", "packages", "cuda", "cudnn", "driver", "gpus")


def wandb_config(facts: RunFacts) -> JsonObject:
    """Configuration for W&B, nested: it joins the names of sections and keys by dots itself.

    W&B's own section is left out, as it says nothing about the training. Git's facts are ours:
    W&B itself would send a diff and the remote's address, too.
    """
    keys = {name: value for name, value in facts.config.items() if name != "wandb"}
    return {**keys, "run": facts.in_force, "environment": reproduces(facts.environment)}


def reproduces(environment: JsonObject) -> JsonObject:
    """The entries of `environment` that it takes to repeat the run: commit, packages, driver."""
    return {name: environment[name] for name in REPRODUCES if name in environment}


def define_metrics(run: "Run") -> None:
    """Plots all metrics over the iteration; the table of runs shows the least validation loss."""
    run.define_metric("iter")
    run.define_metric("*", step_metric="iter")
    run.define_metric(VAL_LOSS.name, step_metric="iter", summary="min")


def checkpoint_artifact(out_dir: Path, facts: RunFacts, results: Row) -> "Artifact | None":
    """Artifact with the best weights by validation loss, or None if no checkpoint was written."""
    import wandb

    from training.disk.shard_index import named_folder  # here: other facts need no torch

    files = (out_dir / name for name in reversed(CHECKPOINTS))
    path = next((file for file in files if file.is_file()), None)
    if path is None:
        return None
    names = ("best_val_loss", "best_iteration", "iterations")
    metadata: JsonObject = {name: results.get(name) for name in names}
    metadata |= {"seed": facts.config.get("seed"), "git": facts.environment.get("git")}
    # facts.config has the attention that ran, even where the key was auto.
    name = artifact_name("checkpoint", facts.config, None)
    artifact = wandb.Artifact(name, type="model", metadata=metadata)
    artifact.add_file(str(path), name="ckpt.pt")
    if shards := named_folder(path):
        artifact.add_dir(str(out_dir / SHARDS / shards), name=f"{SHARDS}/{shards}")
    return artifact


def send_artifact(
    run: "Run", artifact: "Artifact", aliases: list[str], registry: str | None
) -> str | None:
    """Adds an artifact to its run, and links it to `registry`, in the collection of its name.

    Returns a line that says why it is not linked, or None.
    """
    collection = artifact.name  # it gets a version once it is logged
    logged = run.log_artifact(artifact, aliases=aliases)
    if registry is None:
        return None
    if run.offline:
        return f"{collection} is not linked to registry {registry}: the run is offline"
    try:
        run.link_artifact(logged, f"wandb-registry-{registry}/{collection}")
    except Exception as error:  # wandb raises its own kinds, of several layers
        return f"{collection} is not linked to registry {registry}: {one_line(error)}"
    return None
