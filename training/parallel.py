"""Decides how the ranks of a run share its work, and refuses what a way of sharing cannot do.

    ddp     each rank has the whole model; gradients are averaged while others are still computed
    fsdp    each rank has a share of weights, gradients and moments; weights are gathered to be used
    hsdp    fsdp among `shard_ranks` ranks, and ddp among such groups: (replicas, shards)

`auto` is ddp for every size: it gathers no weights, and a run that does not fit says so. A
bucket_mb above the model's size averages all gradients at once, behind the backward pass.
training.layout carries out what is decided here.
"""

from importlib.util import find_spec

import torch
import torch.distributed as dist

from configs.schema import Config
from profiling.shared_update import misfit, needed_in_16_bits
from training.decision import AUTO, Decision
from training.torchrun import ranks_here

SHARDED = ("fsdp", "hsdp")


def decide_parallel(config: Config, world_size: int) -> Decision:
    """Raises ValueError naming the key that cannot be."""
    mode = config.parallel
    if config.shard_ranks is not None and mode != "hsdp":
        raise ValueError(
            f"shard_ranks={config.shard_ranks}: is for parallel=hsdp, this run has parallel={mode}"
        )
    if mode in SHARDED:
        check_sharded(config, world_size)
        return Decision(mode)
    if mode != AUTO:
        return Decision(mode)
    if world_size == 1:
        return Decision("ddp", "one rank, which trains alone")
    return Decision("ddp", "gathers no weights, where the model fits into each rank's memory")


def check_sharded(config: Config, world_size: int) -> None:
    """Raises ValueError naming `parallel`, or the key that does not go with it."""
    mode = config.parallel
    if world_size == 1:
        raise ValueError(
            f"parallel={mode}: one rank has nobody to share with; start several with torchrun, "
            "or use parallel=auto"
        )
    if mode == "hsdp":
        check_shard_ranks(config, world_size)
    if config.optimizer == "muon":
        raise ValueError(
            f"optimizer=muon: not with parallel={mode}: an update is of a whole matrix, and a rank "
            "has a share of it; use optimizer=adamw or parallel=ddp"
        )
    if config.cuda_graphs == "true":
        raise ValueError(
            f"cuda_graphs=true: not with parallel={mode}, which gathers weights into memory of "
            "the moment; use cuda_graphs=auto"
        )
    if config.compile and config.compile_scope == "model":
        raise ValueError(
            f"compile_scope=model: not with parallel={mode}, which gathers block by block; "
            "use compile_scope=block"
        )
    if config.kernels == "fused":
        raise ValueError(
            f"kernels=fused: not with parallel={mode}: a block norms for the next one, whose "
            "weights are not gathered yet; use kernels=compiled"
        )


def check_shard_ranks(config: Config, world_size: int) -> None:
    shards = shard_count(config, world_size)
    said = f"shard_ranks={shards}"
    if config.shard_ranks is None:
        said = f"parallel=hsdp: shards among the {shards} ranks of a host, so {said}"
    if world_size % shards:
        raise ValueError(f"{said}: does not divide the {world_size} ranks of this run")
    if shards == world_size:
        raise ValueError(f"{said}: all ranks of this run, which is parallel=fsdp; lower it")
    if shards == 1:
        raise ValueError(f"{said}: each rank would have all of it, which is parallel=ddp; raise it")


def shard_count(config: Config, world_size: int) -> int:
    """Ranks that share one copy of the model."""
    if config.parallel == "fsdp":
        return world_size
    if config.parallel != "hsdp":
        return 1
    return config.shard_ranks or ranks_here(world_size) or world_size


def decide_all_reduce(config: Config, device: torch.device, world_size: int) -> Decision:
    """Raises ValueError where there are no copies."""
    if config.all_reduce == AUTO:
        return Decision("collective", "runs everywhere, and a report sees each of them")
    obstacle = None if config.all_reduce == "collective" else no_copies(config, device, world_size)
    if obstacle:
        raise ValueError(f"all_reduce=copies: {obstacle}; use all_reduce=auto")
    return Decision(config.all_reduce)


def check_shard_update(config: Config, world_size: int) -> None:
    """Refuses it where an update cannot be made in parts. `config` without an `auto`."""
    if not config.shard_update:
        return
    if world_size == 1:
        raise ValueError(
            "shard_update=true: one rank has nobody to share with; start several with torchrun, "
            "or use shard_update=false"
        )
    if reason := misfit(config):
        raise ValueError(f"shard_update=true: {reason}; use shard_update=false")


def check_reduce_dtype(config: Config, world_size: int) -> None:
    """Refuses 16 bits where no product writes what is sent. `config` has passed the check above."""
    if config.reduce_dtype == "float32":
        return
    if reason := misfit(config, {"shard_update": True, **needed_in_16_bits(world_size)}):
        raise ValueError(f"reduce_dtype={config.reduce_dtype}: {reason}; use reduce_dtype=float32")


def no_copies(config: Config, device: torch.device, world_size: int) -> str | None:
    """Why gradients cannot be averaged by copies."""
    if world_size == 1:
        return "one rank has nobody to average with"
    if config.parallel in SHARDED:
        return f"is for parallel=ddp, this run has parallel={config.parallel}"
    if device.type != "cuda":
        return f"copy engines are a GPU's, this run is on {device.type}"
    if (ranks_here(world_size) or world_size) < world_size:
        return "they reach the GPUs of one host, this run has several"
    if not has_copies():
        return "needs PyTorch 2.10 or newer, with NCCL 2.28 or newer, and triton"
    return None


def has_copies() -> bool:
    nccl = getattr(dist, "ProcessGroupNCCL", None)
    is_new = hasattr(nccl, "NCCL_CTA_POLICY_ZERO") and torch.cuda.nccl.version() >= (2, 28)
    return is_new and find_spec("triton") is not None


def rows_travel(config: Config, world_size: int, vocab_size: int) -> bool:
    """Whether ranks exchange what backward says of the embedding's rows, one for each token.

    They all get all of them, which is less than a dense gradient, sent twice, while tokens are
    fewer than ids. A model compiled as one has no place to take them from.
    """
    if config.compile and config.compile_scope == "model":
        return False
    tokens = world_size * config.batch_size * config.block_size
    return tokens <= vocab_size and config.gradient_accumulation_steps == world_size
