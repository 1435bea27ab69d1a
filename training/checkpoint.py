"""ckpt.pt: written whole or not at all, and a run that goes on from it exactly where it was.

What ranks share with parallel=fsdp or hsdp lies beside it: training.shard_files, which imports
DTensor, for a second.
"""

import dataclasses
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import ModuleType

import torch

from cli.errors import one_line
from cli.files import sync_folder
from cli.keys import spell
from configs.schema import Config
from data.dataset import Dataset
from model import GPT
from training.checkpoint_file import AGAIN, Checkpoint, check_optimizer, opened
from training.distributed import Ranks
from training.optimizer import AdamW
from training.parallel import SHARDED
from training.run import Progress, Run
from training.same_run import changes, check_same_run
from training.saving import Saving, State, reason
from training.shard_index import remove_unnamed
from training.step import Step

log = logging.getLogger(__name__)


def save(run: Run) -> None:
    """Writes out_dir/ckpt.pt: every rank calls this, rank 0 writes, by a thread where that helps.
    What the ranks share is written by each of them, beside it.

    ckpt.pt is always the newest; a better one that it replaces is kept as ckpt_best.pt. A disk that
    refuses it costs this checkpoint, not the run: it is said, and the one before is still there.
    """
    progress, path = run.progress, run.folder.path / "ckpt.pt"
    finish(progress)
    state = state_of(run)
    if not folder_is_there(run, path):
        return
    is_best = progress.best_iteration == progress.iteration
    keeps_best = not is_best and progress.saved_iteration == progress.best_iteration
    write_state: Callable[[State], None]
    write_state = partial(replace, path, is_best=is_best, keeps_best=keeps_best)
    if run.config.parallel in SHARDED:
        from training import shard_files

        state, tensors = shard_files.split_shared(state)
        group = run.ranks.hosts_beside
        write_state = partial(shard_files.write, path.parent, tensors, group, write_state)
    elif run.ranks.rank != 0:
        return
    progress.saving = Saving(path, progress.iteration, state, write_state)
    if not beside_training(run):
        finish(progress)


def state_of(run: Run) -> State:
    """What a checkpoint holds; every rank calls this."""
    run.step.optimizer.make_whole()
    generators = random_generators(run.ranks.device).items()
    sharded = run.config.parallel in SHARDED
    return {
        "model": run.model.state_dict(keep_vars=sharded),  # two names of a weight are one tensor
        "optimizer": run.step.optimizer.state_dict()["state"],
        "scaler": run.step.scaler.state_dict(),
        "iter_num": run.progress.iteration,
        "best_val_loss": run.progress.best_val_loss,
        "best_iteration": run.progress.best_iteration,
        "random_states": {kind: run.ranks.gather(g.get_rng_state()) for kind, g in generators},
        "config": asdict(run.config),
        "tokenizer": run.dataset.tokenizer.to_record(),
        "text": {"source": run.dataset.source, "sha256": run.dataset.text_sha256},
    }


def folder_is_there(run: Run, path: Path) -> bool:
    """On each rank alike, made again where somebody has deleted it since the last row; else said.

    Rank 0 knows.
    """
    refused = ""
    try:
        run.folder.make_again()
    except (OSError, ValueError) as error:
        refused = str(error)
        say_not_saved(path, run.progress, run.progress.iteration, refused)
    return not run.ranks.any(bool(refused))


def beside_training(run: Run) -> bool:
    """Whether the run goes on while its checkpoint is written.

    On a CPU the thread would slow the steps, and in a captured one it would stand for the training.
    """
    config = run.config
    is_last = run.progress.iteration >= config.max_iters
    return run.ranks.device.type == "cuda" and config.profile.kind == "none" and not is_last


def finish(progress: Progress) -> None:
    """Waits for the checkpoint that is being written, if one is, and says what came of it."""
    saving, progress.saving = progress.saving, None
    if saving is None:
        return
    try:
        saving.wait()
    except (OSError, ValueError) as error:
        say_not_saved(saving.path, progress, saving.iteration, str(error))
        return
    progress.saved_iteration = saving.iteration
    if progress.failed_saves:
        log.info("%s: saved again, after %d in vain", saving.path, progress.failed_saves)
    progress.owes_checkpoint, progress.failed_saves, progress.save_error = False, 0, ""


def say_not_saved(path: Path, progress: Progress, iteration: int, error: str) -> None:
    """Each reason once; how often is told when a save succeeds, and at the end of the run."""
    if error != progress.save_error:
        there = progress.saved_iteration
        holds = "there is none yet" if there is None else f"it holds iteration {there}"
        log.error(
            "%s: iteration %d not saved (%s); %s; each evaluation tries again",
            *(path, iteration, error, holds),
        )
    progress.owes_checkpoint, progress.save_error = True, error
    progress.failed_saves += 1


def leave_best(run: Run) -> None:
    """Leaves the best checkpoint as ckpt.pt at the end of a run, as if there had been no newer one.

    A newer one was asked for by the clock or a signal, and was there to go on from; with
    always_save_checkpoint the newest stays. Every rank calls this, rank 0 renames.
    """
    config, progress = run.config, run.progress
    finish(progress)
    path = run.folder.path / "ckpt.pt"
    best_path = path.with_name("ckpt_best.pt")
    ended = progress.iteration >= config.max_iters and not config.eval_only
    if run.ranks.rank or not ended or config.always_save_checkpoint or not best_path.exists():
        return
    try:
        if opened(best_path, at_a_glance=True).iteration != progress.best_iteration:
            return
        os.replace(best_path, path)
        sync_folder(path.parent)
    except (OSError, ValueError) as error:
        log.warning("%s: the best checkpoint stays there (%s)", best_path, one_line(error))
        return
    progress.saved_iteration = progress.best_iteration
    remove_unnamed(path.parent)


def replace(path: Path, state: State, is_best: bool, keeps_best: bool) -> None:
    """The new checkpoint in the place of the old one, which is kept aside while it is the best."""
    best_path = path.with_name("ckpt_best.pt")
    if keeps_best and path.exists():
        keep(path, best_path)
    write(path, state)
    if is_best:  # not before ckpt.pt is whole: a kill must not cost the best one
        best_path.unlink(missing_ok=True)
    remove_unnamed(path.parent)


def keep(path: Path, best_path: Path) -> None:
    """A copy, whole or not at all."""
    temporary = best_path.with_name(best_path.name + ".tmp")
    try:
        shutil.copy2(path, temporary)
        os.replace(temporary, best_path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write(path: Path, state: object) -> None:
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
        raise OSError(one_line(str(reason(error)))) from error
    sync_folder(path.parent)


def resume(model: GPT, step: Step, config: Config, dataset: Dataset, ranks: Ranks) -> Progress:
    """Puts everything back where `save` took it from, and says so.

    All is looked at before anything is changed. Raises ValueError naming what differs.
    """
    sharded = config.parallel in SHARDED
    saved = opened(Path(config.out_dir) / "ckpt.pt", "cpu" if sharded else ranks.device)
    check_same_run(saved, config, dataset)
    check_optimizer(saved, step.optimizer.state_shapes())
    check_random_states(saved, ranks)
    if saved.shards:
        from training import shard_files

        like = shard_files.templates(saved.shards, model, step.optimizer) if sharded else {}
        saved = shard_files.load_shards(saved, like, ranks.device)
    elif sharded:
        saved = shared(saved, model, step.optimizer)
    model.load_state_dict(saved.weights)
    groups = step.optimizer.state_dict()["param_groups"]  # the configuration's, not the file's
    lrs = [group["lr"] for group in step.optimizer.param_groups]
    step.optimizer.load_state_dict({"state": saved.optimizer, "param_groups": groups})
    for group, lr in zip(step.optimizer.param_groups, lrs, strict=True):
        group["lr"] = lr
    if step.scaler.is_enabled() and saved.scaler:  # without one in the file it begins anew
        step.scaler.load_state_dict(dict(saved.scaler))
    restore_random_states(saved.random_states or {}, ranks)
    announce(saved, config, ranks)
    done = saved.iteration
    return Progress(done, saved.best_val_loss, saved.best_iteration, saved_iteration=done)


def shared(saved: Checkpoint, model: GPT, optimizer: AdamW) -> Checkpoint:
    """With this rank's part of weights and moments; all ranks call this."""
    from training.shards import shard_like

    own, parameters = model.state_dict(), optimizer.all_parameters()
    moments = {
        number: {
            name: shard_like(value, parameters[number]) if value.dim() else value
            for name, value in state.items()
        }
        for number, state in (saved.optimizer or {}).items()
    }
    weights = {name: shard_like(value, own[name]) for name, value in saved.weights.items()}
    return dataclasses.replace(saved, weights=weights, optimizer=moments)


def announce(saved: Checkpoint, config: Config, ranks: Ranks) -> None:
    best = "not evaluated yet"
    if saved.best_iteration is not None:
        best = f"best validation loss {saved.best_val_loss:.4f} at iteration {saved.best_iteration}"
    changed = [f"{key} {spell(was)} -> {spell(now)}" for key, was, now in changes(saved, config)]
    of_ranks = len((saved.random_states or {}).get("cpu", []))
    if of_ranks != ranks.world_size:
        changed.append(f"ranks {of_ranks} -> {ranks.world_size}")
    said = f"; changed: {', '.join(changed)}" if changed else ""
    log.info("resumed %s at iteration %d (%s)%s", saved.path, saved.iteration, best, said)
    if saved.iteration == config.max_iters and not config.eval_only:
        log.warning("max_iters=%d: that far it is; raise it to train on", config.max_iters)


def check_random_states(saved: Checkpoint, ranks: Ranks) -> None:
    """Raises ValueError where the generators of this rank would not take theirs."""
    if saved.random_states is None:
        raise ValueError(
            f"{saved.path}: lacks random_states, without which no run resumes; {AGAIN}"
        )
    for kind in random_generators(ranks.device):
        try:
            of_ranks = saved.random_states.get(kind, [])
            if ranks.rank < len(of_ranks):
                torch.Generator(kind).set_state(of_ranks[ranks.rank].cpu())
        except (RuntimeError, TypeError, AttributeError, KeyError) as error:
            raise ValueError(
                f"{saved.path}: its random state of {kind} does not fit ({one_line(error)[:80]}); "
                f"{AGAIN}"
            ) from error


def restore_random_states(states: dict[str, list[torch.Tensor]], ranks: Ranks) -> None:
    """Each rank takes its own; on another kind of device or more ranks it keeps its fresh seed."""
    for kind, generator in random_generators(ranks.device).items():
        of_ranks = states.get(kind, [])
        if ranks.rank < len(of_ranks):
            generator.set_rng_state(of_ranks[ranks.rank].cpu())


def random_generators(device: torch.device) -> dict[str, ModuleType]:
    """What gets and sets the random states of a run on `device`, by the kind of device."""
    return {device.type: torch.get_device_module(device), "cpu": torch}
