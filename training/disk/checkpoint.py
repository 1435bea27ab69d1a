"""ckpt.pt, written whole or not at all; a resumed run continues exactly where that one was.

With parallel=fsdp or hsdp the weights and moments that the ranks share lie in files beside it.
training.disk.shard_files writes them; it is imported late, because it imports DTensor, for a
second.
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
from configs.sharing import SHARDED
from data.dataset import Dataset
from model import GPT
from training.disk.checkpoint_file import AGAIN, Checkpoint, check_optimizer, read_checkpoint
from training.disk.run_parts import Progress, Run
from training.disk.same_run import changes, check_same_run
from training.disk.saving import Saving, State, reason
from training.disk.shard_index import remove_unnamed
from training.optimizers.optimizer import AdamW
from training.ranks.distributed import Ranks
from training.step.step import Step

log = logging.getLogger(__name__)


def save(run: Run) -> None:
    """Writes out_dir/ckpt.pt. Every rank calls this; rank 0 writes, in a thread where that helps.

    Each rank writes its part of what the ranks share into files beside it. ckpt.pt is always the
    newest checkpoint; a better one that it replaces is kept as ckpt_best.pt. If the disk refuses
    it, this checkpoint is lost and not the run: the error is logged, and the previous checkpoint is
    still there.
    """
    progress, path = run.progress, run.folder.path / "ckpt.pt"
    finish(progress)
    state = state_of(run)
    if not ensure_folder(run, path):
        return
    is_best = progress.best_iteration == progress.iteration
    keeps_best = not is_best and progress.saved_iteration == progress.best_iteration
    write_state: Callable[[State], None]
    write_state = partial(replace, path, is_best=is_best, keeps_best=keeps_best)
    if run.config.parallel in SHARDED:
        from training.disk import shard_files

        state, tensors = shard_files.split_shared(state)
        group = run.ranks.hosts_beside
        write_state = partial(shard_files.write, path.parent, tensors, group, write_state)
    elif run.ranks.rank != 0:
        return
    progress.saving = Saving(path, progress.iteration, state, write_state)
    if not beside_training(run):
        finish(progress)


def state_of(run: Run) -> State:
    """The content of a checkpoint. Every rank calls this, because it gathers from the ranks."""
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


def ensure_folder(run: Run, path: Path) -> bool:
    """Whether the run's folder exists, the same answer on each rank.

    Rank 0 makes it again if somebody has deleted it since the last row. If it cannot, it logs that
    the checkpoint at `path` is not saved.
    """
    refusal = ""
    try:
        run.folder.make_again()
    except (OSError, ValueError) as error:
        refusal = str(error)
        say_not_saved(path, run.progress, run.progress.iteration, refusal)
    return not run.ranks.any(bool(refusal))


def beside_training(run: Run) -> bool:
    """Whether the run goes on while its checkpoint is written.

    It does not on a CPU, where the thread would slow down the steps, nor in a captured run, whose
    steps would show the writing and not the training, nor at the last iteration.
    """
    config = run.config
    is_last = run.progress.iteration >= config.max_iters
    return run.ranks.device.type == "cuda" and config.profile.kind == "none" and not is_last


def finish(progress: Progress) -> None:
    """Waits for the checkpoint that is being written, if any, and records whether it was saved."""
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
        log.info(
            "%s: saving works again, after %d failed attempts", saving.path, progress.failed_saves
        )
    progress.owes_checkpoint, progress.failed_saves, progress.save_error = False, 0, ""


def say_not_saved(path: Path, progress: Progress, iteration: int, error: str) -> None:
    """Logs that a checkpoint was not saved, each reason once, and counts the failure.

    The count is logged when a save succeeds again, and at the end of the run.
    """
    if error != progress.save_error:
        there = progress.saved_iteration
        holds = (
            "there is no checkpoint yet"
            if there is None
            else (f"the checkpoint there is of iteration {there}")
        )
        log.error(
            "%s: iteration %d not saved (%s); %s; saving is tried again at each evaluation",
            *(path, iteration, error, holds),
        )
    progress.owes_checkpoint, progress.save_error = True, error
    progress.failed_saves += 1


def leave_best(run: Run) -> None:
    """Makes the best checkpoint ckpt.pt at the end of a run, as if there had been no newer one.

    A newer one was written because a timer or a signal asked for it, only to resume from. With
    always_save_checkpoint the newest stays. Every rank calls this; rank 0 renames.
    """
    config, progress = run.config, run.progress
    finish(progress)
    path = run.folder.path / "ckpt.pt"
    best_path = path.with_name("ckpt_best.pt")
    ended = progress.iteration >= config.max_iters and not config.eval_only
    if run.ranks.rank or not ended or config.always_save_checkpoint or not best_path.exists():
        return
    try:
        if read_checkpoint(best_path, at_a_glance=True).iteration != progress.best_iteration:
            return
        os.replace(best_path, path)
        sync_folder(path.parent)
    except (OSError, ValueError) as error:
        log.warning("%s: the best checkpoint stays in this file (%s)", best_path, one_line(error))
        return
    progress.saved_iteration = progress.best_iteration
    remove_unnamed(path.parent)


def replace(path: Path, state: State, is_best: bool, keeps_best: bool) -> None:
    """Writes `state` to `path`; the old checkpoint is kept as ckpt_best.pt if `keeps_best`.

    If `is_best`, the new one is the best, and ckpt_best.pt is removed.
    """
    best_path = path.with_name("ckpt_best.pt")
    if keeps_best and path.exists():
        keep(path, best_path)
    write(path, state)
    if is_best:  # not before ckpt.pt is whole: a kill must not cost the best one
        best_path.unlink(missing_ok=True)
    remove_unnamed(path.parent)


def keep(path: Path, best_path: Path) -> None:
    """Copies ckpt.pt to `best_path`, whole or not at all."""
    temporary = best_path.with_name(best_path.name + ".tmp")
    try:
        shutil.copy2(path, temporary)
        os.replace(temporary, best_path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write(path: Path, state: object) -> None:
    """Writes to a temporary file, syncs and renames it: readers find the old or the new one, whole.

    Raises OSError if it cannot be written.
    """
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
    """Puts everything back where `save` took it from, and logs it.

    Everything is checked before anything is changed. Raises ValueError naming what differs.
    """
    sharded = config.parallel in SHARDED
    saved = read_checkpoint(Path(config.out_dir) / "ckpt.pt", "cpu" if sharded else ranks.device)
    check_same_run(saved, config, dataset)
    check_optimizer(saved, step.optimizer.state_shapes())
    check_random_states(saved, ranks)
    if saved.shards:
        from training.disk import shard_files

        like = shard_files.templates(saved.shards, model, step.optimizer) if sharded else {}
        saved = shard_files.load_shards(saved, like, ranks.device)
    elif sharded:
        saved = keep_own_parts(saved, model, step.optimizer)
    model.load_state_dict(saved.weights)
    groups = step.optimizer.state_dict()["param_groups"]  # the configuration's, not the file's
    lrs = [group["lr"] for group in step.optimizer.param_groups]
    step.optimizer.load_state_dict({"state": saved.optimizer, "param_groups": groups})
    for group, lr in zip(step.optimizer.param_groups, lrs, strict=True):
        group["lr"] = lr
    if (
        step.scaler.is_enabled() and saved.scaler
    ):  # if the file has no scaler state, it starts fresh
        step.scaler.load_state_dict(dict(saved.scaler))
    restore_random_states(saved.random_states or {}, ranks)
    announce(saved, config, ranks)
    done = saved.iteration
    return Progress(done, saved.best_val_loss, saved.best_iteration, saved_iteration=done)


def keep_own_parts(saved: Checkpoint, model: GPT, optimizer: AdamW) -> Checkpoint:
    """A copy of `saved` with only this rank's part of weights and moments. All ranks call this."""
    from training.step.shards import shard_like

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
    changes_text = f"; changed: {', '.join(changed)}" if changed else ""
    log.info("resumed %s at iteration %d (%s)%s", saved.path, saved.iteration, best, changes_text)
    if saved.iteration == config.max_iters and not config.eval_only:
        log.warning(
            "max_iters=%d: the run has already reached this iteration; raise max_iters to train "
            "further",
            config.max_iters,
        )


def check_random_states(saved: Checkpoint, ranks: Ranks) -> None:
    """Raises ValueError if the generators of this rank would refuse their saved states."""
    if saved.random_states is None:
        raise ValueError(f"{saved.path}: has no random_states, which a resume needs; {AGAIN}")
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
    """Restores the states of this rank's generators.

    A rank or a kind of device that has none in the file keeps its fresh seed.
    """
    for kind, generator in random_generators(ranks.device).items():
        of_ranks = states.get(kind, [])
        if ranks.rank < len(of_ranks):
            generator.set_rng_state(of_ranks[ranks.rank].cpu())


def random_generators(device: torch.device) -> dict[str, ModuleType]:
    """Modules that get and set the random states of a run on `device`, by kind of device."""
    return {device.type: torch.get_device_module(device), "cpu": torch}
