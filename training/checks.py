"""Checks of a configuration against this machine, before anything is made for the run.

Each run calls `resolve_and_check` first. A sweep or an experiment calls `check_job` for every job
or value before the first of them trains.
"""

from dataclasses import replace
from operator import attrgetter

import torch

from cli.keys import keys, spell
from configs.schema import Config
from data.dataset import Dataset
from data.prepare import check_source
from training.disk.gpt2 import find_weights
from training.disk.run_folder import lock_folder
from training.machine.device import (
    check_attention,
    check_residual,
    reasons,
    resolve,
    resolve_device,
)
from training.machine.memory_fit import check_model_fits
from training.machine.parallel import (
    WORKING,
    check_reduce_dtype,
    check_shard_update,
    chosen_averages,
    shard_count,
)
from training.machine.torchrun import from_torchrun, local_rank_and_world_size
from training.metrics.tensorboard import check_tensorboard
from training.metrics.threaded_sink import check_installed
from training.metrics.wandb_settings import check_wandb
from training.optimizers.kinds import check_optimizer
from training.profiler import check_alone
from training.ranks.all_reduce import copies_obstacle
from training.ranks.distributed import Ranks
from training.ranks.restart import apply_go_on
from training.step.evaluate import evaluation_batch_size
from training.step.own_kernels import check_kernels


def check_same_keys(config: Config, ranks: Ranks) -> None:
    """Raises ValueError on all ranks if one was started with other keys than rank 0.

    Such ranks would wait for each other for ever, or average what does not belong together. Paths
    may differ between the hosts.
    """
    names = [name for name, key in keys(Config).items() if not key.path]
    first, *others = ranks.gather_objects({name: spell(attrgetter(name)(config)) for name in names})
    for rank, values in enumerate(others, 1):
        if differ := [name for name in names if values[name] != first[name]]:
            here, there = (", ".join(f"{n}={of[n]}" for n in differ[:3]) for of in (values, first))
            raise ValueError(
                f"{here}: this is rank {rank}, but rank 0 has {there}; start all ranks with the "
                "same keys"
            )


def check_same_text(config: Config, dataset: Dataset, ranks: Ranks) -> None:
    """Raises ValueError on all ranks if one has another text than rank 0 under the same name."""
    first, *others = ranks.gather_objects(dataset.text_sha256)
    for rank, sha256 in enumerate(others, 1):
        if sha256 != first:
            raise ValueError(
                f"dataset={config.dataset}: rank {rank} has a different text in "
                f"{dataset.directory} than rank 0; copy the folder of one rank to all hosts"
            )


def resolve_and_check(config: Config, device: torch.device, world_size: int) -> Config:
    """A copy of the configuration with each `auto` decided, and every key checked.

    Raises ValueError naming the key that is not possible here.
    """
    config = resolve(config, device, world_size)
    check_attention(config, device, config.dtype)
    check_residual(config, config.dtype)
    check_kernels(config, device)
    check_optimizer(config)
    check_shard_update(config, world_size)
    check_reduce_dtype(config, world_size)
    check_model_fits(config, device, shard_count(config, world_size))
    if config.init_from not in ("scratch", "resume"):
        find_weights(config.init_from, config.weights)
    evaluation_batch_size(config, device)
    check_wandb(config.wandb)
    if config.tensorboard:
        check_tensorboard()
    for key in ("trackio", "mlflow"):
        if getattr(config, key):
            check_installed(key)
    config.profile.check_machine(device.type, world_size)
    check_alone(config.profile, device.type == "cuda")
    if config.gradient_accumulation_steps % world_size:
        raise ValueError(
            f"gradient_accumulation_steps={config.gradient_accumulation_steps}: not divisible by "
            f"the {world_size} ranks that share the micro-batches; use {world_size}"
        )
    return config


def agree_on_averages(
    asked: Config, resolved: Config, ranks: Ranks
) -> tuple[Config, dict[str, str]]:
    """Has all ranks average gradients in one way that works, where the keys leave it to each rank.

    Tries copies that all_reduce=auto chose. If they fail, or the ranks chose differently, all use
    collectives. `resolved` is this rank's. Returns it as it is in force, and the reasons for what
    was left at auto. Raises ValueError if gradients in 16 bits need a shared update that falls
    away.
    """
    why = reasons(asked, ranks.device, ranks.world_size)
    choices = ranks.gather_objects(chosen_averages(resolved, why))
    first, obstacle = choices[0], None
    if any(choice != first for choice in choices):
        obstacle = "the ranks chose differently, so their GPUs or drivers differ"
    elif first.get("all_reduce") == "copies":
        obstacle = next(filter(None, ranks.gather_objects(copies_obstacle(ranks))), None)
    if obstacle is None:
        return resolved, why
    asked = replace(asked, **{key: WORKING[key] for key in first})
    resolved = resolve_and_check(asked, ranks.device, ranks.world_size)
    return resolved, why | dict.fromkeys(first, obstacle)


def check_job(config: Config) -> None:
    """Checks one job as far as possible without its data, and leaves no trace.

    Raises ValueError naming the key that is not possible here.
    """
    local_rank, world_size = local_rank_and_world_size()
    config = apply_go_on(config)
    device = resolve_device(config.device, local_rank, world_size)
    resolved = resolve_and_check(config, device, world_size)
    if from_torchrun("RANK", 0):
        return
    with lock_folder(resolved):
        check_source(resolved)
