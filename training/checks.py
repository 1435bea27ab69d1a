"""What this machine decides about a configuration: refused before anything is made for the run.

`settle` is called by each run first; `check_job` for every job of a sweep, or value of an
experiment, before the first of them trains.
"""

import torch

from configs.schema import Config
from data.prepare import check_source
from training.capture import check_alone
from training.device import check_attention, check_residual, resolve, resolve_device
from training.distributed import from_torchrun, launched
from training.evaluate import evaluation_batch_size
from training.gpt2 import find
from training.memory import check_model_fits
from training.muon import check_muon
from training.own_kernels import check_kernels
from training.parallel import check_reduce_dtype, check_shard_update, shard_count
from training.restart import gone_on
from training.run_folder import locked
from training.tensorboard import check_tensorboard
from training.wandb_mirror import check_wandb


def settle(config: Config, device: torch.device, world_size: int) -> Config:
    """The configuration without an `auto`. Raises ValueError naming the key that cannot be."""
    config = resolve(config, device, world_size)
    check_attention(config, device, config.dtype)
    check_residual(config, config.dtype)
    check_kernels(config, device)
    check_muon(config)
    check_shard_update(config, world_size)
    check_reduce_dtype(config, world_size)
    check_model_fits(config, device, shard_count(config, world_size))
    if config.init_from not in ("scratch", "resume"):
        find(config.init_from, config.weights)
    evaluation_batch_size(config, device)
    check_wandb(config.wandb)
    if config.tensorboard:
        check_tensorboard()
    config.profile.check_machine(device.type, world_size)
    check_alone(config.profile, device.type == "cuda")
    if config.gradient_accumulation_steps % world_size:
        raise ValueError(
            f"gradient_accumulation_steps={config.gradient_accumulation_steps}: not divisible by "
            f"the {world_size} ranks that share them; use {world_size}"
        )
    return config


def check_job(config: Config) -> None:
    """All that can be known before the data; leaves no trace. Raises ValueError naming the key."""
    local_rank, world_size = launched()
    config = gone_on(config)
    settle(config, resolve_device(config.device, local_rank, world_size), world_size)
    if from_torchrun("RANK", 0):
        return
    with locked(config):
        check_source(config)
