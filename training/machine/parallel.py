"""Decides how the ranks of a run share its work, and refuses what a way of sharing cannot do.

    ddp     each rank has the whole model; gradients are averaged while others are still computed
    fsdp    each rank has a share of weights, gradients and moments; weights are gathered to be used
    hsdp    fsdp among `shard_ranks` ranks, and ddp among such groups: (replicas, shards)

`auto` is ddp for every size: it gathers no weights, and a run that does not fit says so. A
bucket_mb above the model's size averages all gradients at once, after the backward pass.
training.step.layout carries out what is decided here.
"""

from importlib.util import find_spec
from typing import NamedTuple

import torch
import torch.distributed as dist

from configs.optimizers import OPTIMIZERS
from configs.schema import Config
from configs.sharing import SHARDED, misfit, needed_in_16_bits
from training.machine.torchrun import ranks_here

AUTO = "auto"


class Decision(NamedTuple):
    """The value of a key, and the reason for it if the key was left at auto."""

    value: str
    reason: str = ""


def decide_parallel(config: Config, world_size: int) -> Decision:
    """The way to share, with its reason for `auto`. Raises ValueError naming a key that cannot be.

    The decision is ddp, fsdp or hsdp.
    """
    mode = config.parallel
    if config.shard_ranks is not None and mode != "hsdp":
        raise ValueError(
            f"shard_ranks={config.shard_ranks}: only works with parallel=hsdp, but this run has "
            f"parallel={mode}"
        )
    if mode in SHARDED:
        check_sharded(config, world_size)
        return Decision(mode)
    if mode != AUTO:
        return Decision(mode)
    if world_size == 1:
        return Decision("ddp", "there is only one rank")
    return Decision(
        "ddp", "gathers no weights; use it if the model fits into the memory of each rank"
    )


def check_sharded(config: Config, world_size: int) -> None:
    """Raises ValueError if the model cannot be sharded, naming `parallel` or the obstacle's key."""
    mode = config.parallel
    if world_size == 1:
        raise ValueError(
            f"parallel={mode}: needs several ranks, but there is one; start several with "
            "torchrun, or use parallel=auto"
        )
    if mode == "hsdp":
        check_shard_ranks(config, world_size)
    if not OPTIMIZERS[config.optimizer].elementwise:
        raise ValueError(
            f"optimizer={config.optimizer}: does not work with parallel={mode}, because an update "
            "needs a whole matrix and a rank has only a share of it; use optimizer=adamw or "
            "parallel=ddp"
        )
    if config.cuda_graphs == "true":
        raise ValueError(
            f"cuda_graphs=true: does not work with parallel={mode}, which gathers weights into "
            "temporary memory; use cuda_graphs=auto"
        )
    if config.compile is not False and config.compile_scope == "model":
        raise ValueError(
            f"compile_scope=model: does not work with parallel={mode}, which gathers block by "
            "block; use compile_scope=block"
        )
    if config.kernels == "fused":
        raise ValueError(
            f"kernels=fused: does not work with parallel={mode}, because each block also "
            "computes the norm of the next block, whose weights are not gathered yet; use "
            "kernels=compiled"
        )


def check_shard_ranks(config: Config, world_size: int) -> None:
    shards = shard_count(config, world_size)
    said = f"shard_ranks={shards}"
    if config.shard_ranks is None:
        said = f"parallel=hsdp: shards among the {shards} ranks of a host, so {said}"
    if world_size % shards:
        raise ValueError(f"{said}: does not divide the {world_size} ranks of this run")
    if shards == world_size:
        raise ValueError(
            f"{said}: this is all ranks of the run, the same as parallel=fsdp; use a smaller number"
        )
    if shards == 1:
        raise ValueError(
            f"{said}: each rank would have the whole model, the same as parallel=ddp; use a "
            "larger number"
        )


def shard_count(config: Config, world_size: int) -> int:
    """Number of ranks that share one copy of the model."""
    if config.parallel == "fsdp":
        return world_size
    if config.parallel != "hsdp":
        return 1
    return config.shard_ranks or ranks_here(world_size) or world_size


def decide_all_reduce(config: Config, device: torch.device, world_size: int) -> Decision:
    """How gradients are averaged: collective or copies.

    Raises ValueError for all_reduce=copies where copies are not possible.
    """
    if config.all_reduce == AUTO:
        return Decision("collective", "runs everywhere, and a report shows each collective")
    obstacle = None if config.all_reduce == "collective" else no_copies(config, device, world_size)
    if obstacle:
        raise ValueError(f"all_reduce=copies: {obstacle}; use all_reduce=auto")
    return Decision(config.all_reduce)


def check_shard_update(config: Config, world_size: int) -> None:
    """Raises ValueError for shard_update=true if the update cannot be split among the ranks.

    `config` must have no `auto` left.
    """
    if not config.shard_update:
        return
    if world_size == 1:
        raise ValueError(
            "shard_update=true: needs several ranks, but there is one; start several with "
            "torchrun, or use shard_update=false"
        )
    if reason := misfit(config):
        raise ValueError(f"shard_update=true: {reason}; use shard_update=false")


def check_reduce_dtype(config: Config, world_size: int) -> None:
    """Raises ValueError for gradients of 16 bits where no product writes them in that type.

    `config` must have passed check_shard_update.
    """
    if config.reduce_dtype == "float32":
        return
    if reason := misfit(config, {"shard_update": True, **needed_in_16_bits(world_size)}):
        raise ValueError(f"reduce_dtype={config.reduce_dtype}: {reason}; use reduce_dtype=float32")


def no_copies(config: Config, device: torch.device, world_size: int) -> str | None:
    """Reason why gradients cannot be averaged by copies, or None if they can."""
    if world_size == 1:
        return "there is only one rank"
    if config.parallel in SHARDED:
        return f"only works with parallel=ddp, but this run has parallel={config.parallel}"
    if device.type != "cuda":
        return f"only GPUs have copy engines, but this run is on {device.type}"
    if (ranks_here(world_size) or world_size) < world_size:
        return "copy engines reach only the GPUs of one host, but this run has several hosts"
    if not has_copies():
        return "needs PyTorch 2.10 or newer, with NCCL 2.28 or newer, and triton"
    return None


def has_copies() -> bool:
    nccl = getattr(dist, "ProcessGroupNCCL", None)
    is_new = hasattr(nccl, "NCCL_CTA_POLICY_ZERO") and torch.cuda.nccl.version() >= (2, 28)
    return is_new and find_spec("triton") is not None


def rows_travel(config: Config, world_size: int, vocab_size: int) -> bool:
    """Whether ranks exchange the embedding's gradient as rows, one for each token.

    Each rank gets the rows of all. That is less than a dense gradient, which is sent twice, as long
    as there are no more tokens than ids. A model compiled as one piece offers no place to take the
    rows from.
    """
    if config.compile and config.compile_scope == "model":
        return False
    tokens = world_size * config.batch_size * config.block_size
    return tokens <= vocab_size and config.gradient_accumulation_steps == world_size
