"""Decides how the ranks of a run share its work, and refuses what a way of sharing cannot do.

    ddp     each rank has the whole model; gradients are averaged while others are still computed
    fsdp    each rank has a share of weights, gradients and moments; weights are gathered to be used
    hsdp    fsdp among `shard_ranks` ranks, and ddp among such groups: (replicas, shards)

`auto` is ddp for every size: it gathers no weights, and a run that does not fit says so. A
bucket_mb above the model's size averages all gradients at once, behind the backward pass.
training.layout carries out what is decided here.
"""

import os

from configs.schema import Config
from training.decision import AUTO, Decision

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
    return config.shard_ranks or int(os.environ.get("LOCAL_WORLD_SIZE", world_size))
