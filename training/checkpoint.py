"""ckpt.pt: written whole or not at all, and loaded as data, never as code."""

import logging
import os
import shutil
import zipfile
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from cli.errors import one_line
from configs.schema import Config
from data.dataset import Dataset
from model import GPT
from training.distributed import Ranks
from training.run import Progress, Run
from training.step import Step

log = logging.getLogger(__name__)

# a checkpoint continues only under the same values of these
MODEL_KEYS = ("n_layer", "n_head", "n_embd", "block_size", "bias")


def save(run: Run) -> None:
    """Writes out_dir/ckpt.pt: every rank calls this, rank 0 writes.

    ckpt.pt is always the newest; a better one that it replaces is kept as ckpt_best.pt. A disk that
    refuses it costs this checkpoint, not the run: it is said, and the one before is still there.
    """
    progress, dataset = run.progress, run.dataset
    generators = random_generators(run.ranks.device).items()
    random_states = {kind: run.ranks.gather(each.get_rng_state()) for kind, each in generators}
    if run.ranks.rank != 0:
        return
    state = {
        "model": run.model.state_dict(),
        "optimizer": run.step.optimizer.state_dict()["state"],
        "scaler": run.step.scaler.state_dict(),
        "iter_num": progress.iteration,
        "best_val_loss": progress.best_val_loss,
        "best_iteration": progress.best_iteration,
        "random_states": random_states,
        "config": asdict(run.config),
        "tokenizer": dataset.tokenizer.to_record(),
        "text": {"source": dataset.source, "sha256": dataset.text_sha256},
    }
    path = run.folder.path / "ckpt.pt"
    try:
        run.folder.make_again()  # where somebody has deleted it since the last row
        replace(path, state, progress)
    except (OSError, ValueError) as error:
        say_not_saved(path, progress, str(error))
        return
    if progress.failed_saves:
        log.info("%s: saved again, after %d in vain", path, progress.failed_saves)
    progress.owes_checkpoint, progress.failed_saves, progress.save_error = False, 0, ""


def say_not_saved(path: Path, progress: Progress, error: str) -> None:
    """Each reason once; how often is told when a save succeeds, and at the end of the run."""
    if error != progress.save_error:
        done, there = progress.iteration, progress.saved_iteration
        holds = "there is none yet" if there is None else f"it holds iteration {there}"
        log.error(
            "%s: iteration %d not saved (%s); %s; each evaluation tries again",
            *(path, done, error, holds),
        )
    progress.owes_checkpoint, progress.save_error = True, error
    progress.failed_saves += 1


def replace(path: Path, state: dict[str, Any], progress: Progress) -> None:
    """The new checkpoint in the place of the old one, which is kept aside while it is the best."""
    best_path = path.with_name("ckpt_best.pt")
    is_best = progress.best_iteration == progress.iteration
    if not is_best and progress.saved_iteration == progress.best_iteration and path.exists():
        keep(path, best_path)
    write(path, state)
    progress.saved_iteration = progress.iteration
    if is_best:  # not before ckpt.pt is whole: a kill must not cost the best one
        best_path.unlink(missing_ok=True)


def keep(path: Path, best_path: Path) -> None:
    """A copy, whole or not at all."""
    temporary = best_path.with_name(best_path.name + ".tmp")
    try:
        shutil.copy2(path, temporary)
        os.replace(temporary, best_path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write(path: Path, state: dict[str, Any]) -> None:
    """To a temporary file, synced, renamed: a reader finds the old one or the new one whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:  # a full disk is a RuntimeError to PyTorch's writer
        temporary.unlink(missing_ok=True)
        raise OSError(one_line(error)) from error
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def load(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """What `save` wrote. Raises ValueError naming the file when it is missing or damaged."""
    if not path.is_file():
        raise ValueError(f"{path}: no checkpoint there; train first, with init_from=scratch")
    try:
        with zipfile.ZipFile(path) as archive:
            if broken := archive.testzip():  # torch.load does not look at the checksums
                raise zipfile.BadZipFile(f"wrong checksum of {broken}")
        state = torch.load(path, map_location=device, weights_only=True)
        missing = {"model", "config", "tokenizer", "iter_num"} - set(state)
    except Exception as error:  # PyTorch's unpickler meets broken bytes with a dozen kinds
        reason = one_line(error)[:120] or type(error).__name__
        raise ValueError(
            f"{path}: damaged or no checkpoint ({reason}); remove it and use init_from=scratch"
        ) from error
    if missing:
        raise ValueError(f"{path}: no checkpoint of this program: it has no {sorted(missing)}")
    return state


def resume(model: GPT, step: Step, config: Config, dataset: Dataset, ranks: Ranks) -> Progress:
    """Puts everything back where `save` took it from. Raises ValueError naming what differs."""
    state = load(Path(config.out_dir) / "ckpt.pt", ranks.device)
    for key in MODEL_KEYS:
        if state["config"][key] != getattr(config, key):
            raise ValueError(
                f"{key}={getattr(config, key)}: the checkpoint has {state['config'][key]}; "
                "resume with the configuration that the run began with: "
                f"python train.py {config.out_dir}/config.yaml init_from=resume"
            )
    if state["text"]["sha256"] != dataset.text_sha256:
        raise ValueError(
            f"dataset={config.dataset}: the checkpoint was trained on another text "
            f"({state['text']['source']}, not {dataset.source}); use init_from=scratch"
        )
    if state["tokenizer"] != dataset.tokenizer.to_record():
        raise ValueError(
            f"dataset={config.dataset}: the checkpoint's tokens are others, those of "
            f"dataset={state['config']['dataset']}; resume with its dataset, tokenizer and "
            "bpe_vocab_size, or use init_from=scratch"
        )
    model.load_state_dict(state["model"])
    groups = step.optimizer.state_dict()["param_groups"]  # the configuration's, not the file's
    lrs = [group["lr"] for group in step.optimizer.param_groups]
    step.optimizer.load_state_dict({"state": state["optimizer"], "param_groups": groups})
    for group, lr in zip(step.optimizer.param_groups, lrs, strict=True):
        group["lr"] = lr
    if step.scaler.is_enabled():
        step.scaler.load_state_dict(state["scaler"])
    restore_random_states(state["random_states"], ranks)
    done = state["iter_num"]
    return Progress(done, state["best_val_loss"], state["best_iteration"], saved_iteration=done)


def restore_random_states(states: dict[str, list[torch.Tensor]], ranks: Ranks) -> None:
    """Each rank takes its own; on another kind of device or more ranks it keeps its fresh seed."""
    for kind, generator in random_generators(ranks.device).items():
        of_ranks = states.get(kind, [])
        if ranks.rank < len(of_ranks):
            generator.set_rng_state(of_ranks[ranks.rank].cpu())


def random_generators(device: torch.device) -> dict[str, ModuleType]:
    """What gets and sets the random states of a run on `device`, by the kind of device."""
    return {device.type: torch.get_device_module(device), "cpu": torch}
