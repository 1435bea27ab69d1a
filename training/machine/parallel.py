"""Decides how the ranks of a run share its work, and refuses what a way of sharing cannot do.

    ddp     each rank has the whole model; gradients are averaged while others are still computed
    fsdp    each rank has a share of weights, gradients and moments; weights are gathered to be used
    hsdp    fsdp among `shard_ranks` ranks, and ddp among such groups: (replicas, shards)

`parallel=auto` is ddp for every size: it gathers no weights, and a run that does not fit says so.
`all_reduce=auto` and `shard_update=null` are copies and a shared update where these gained in
measurements. A bucket_mb above the model's size averages all gradients at once, after backward.
training.step.layout carries out what is decided here.
"""

from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from cli.keys import spell
from configs.optimizers import OPTIMIZERS
from configs.schema import Config
from configs.sharing import SHARDED, has_equal_parts, misfit, needed_in_16_bits
from kernels.gluon import HOPPER
from profiling.recording.nvml import are_linked
from training.machine.torchrun import ranks_here

AUTO = "auto"
# Copies and a shared update were measured on so many GPUs, for blocks of so many weights: those of
# GPT-2 124M. With a shared update a smaller model is slower, because the host starts each exchange.
MEASURED_RANKS, MEASURED_WEIGHTS = (2, 4), 12 * 12 * 768**2
# how ranks average gradients: left open, since it depends on their number, and as it always works
OPEN: dict[str, Any] = {"all_reduce": AUTO, "shard_update": None}
WORKING: dict[str, Any] = {"all_reduce": "collective", "shard_update": False}


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
    """Decide how gradients are averaged: collective or copies.

    training.checks.agree_on_averages tries copies that are decided for `auto`. Raises ValueError
    for all_reduce=copies where copies are not possible.
    """
    if config.all_reduce == "collective":
        return Decision("collective")
    obstacle = no_copies(config, device, world_size)
    if config.all_reduce == AUTO:
        if obstacle := obstacle or no_gain(config, device, world_size):
            return Decision("collective", obstacle)
        return Decision("copies", f"NVLink connects the {world_size} GPUs of this run")
    if obstacle:
        raise ValueError(f"all_reduce=copies: {obstacle}; use all_reduce=auto")
    return Decision("copies")


def decide_shard_update(config: Config, device: torch.device, world_size: int) -> Decision:
    """Whether ranks share the update, as "true" or "false".

    `config` must have no `auto` left besides this key, which is null then.
    """
    if config.shard_update is not None:
        return Decision(spell(config.shard_update))
    if config.all_reduce != "copies":
        return Decision("false", "gains only with all_reduce=copies")
    obstacle = misfit(config) or no_gain(config, device, world_size)
    if obstacle := obstacle or no_bucket_of_blocks(config, world_size):
        return Decision("false", obstacle)
    return Decision("true", f"gains with all_reduce=copies on {world_size} GPUs")


def no_gain(config: Config, device: torch.device, world_size: int) -> str | None:
    """Reason why copies and a shared update are not known to gain, or None if they are."""
    if world_size not in MEASURED_RANKS:
        counts = " and ".join(map(str, MEASURED_RANKS))
        return f"copies were measured on {counts} GPUs, and this run has {world_size}"
    if block_weights(config) < MEASURED_WEIGHTS:
        return "this model is smaller than GPT-2 124M, the smallest that copies were measured with"
    if torch.cuda.get_device_capability(device) != HOPPER:
        return f"copies were not measured on {torch.cuda.get_device_name(device)}"
    if ranks_here(world_size) != world_size:
        return "LOCAL_WORLD_SIZE does not say that all ranks are on this host"
    if torch.cuda.device_count() < world_size:
        return "this rank does not see the GPUs of all ranks"
    gpus = [torch.cuda.get_device_properties(number) for number in range(world_size)]
    if not are_linked([str(gpu.uuid) for gpu in gpus]):
        return "NVML does not say that NVLink connects the GPUs"
    return None


def block_weights(config: Config) -> int:
    """Number of weights in the products of all blocks."""
    return config.n_layer * 12 * config.n_embd**2


def no_bucket_of_blocks(config: Config, world_size: int) -> str | None:
    """Reason why maybe no bucket of gradients can be shared, or None if one certainly can.

    The embedding's gradient may begin a bucket, so the second one must be full of blocks alone.
    """
    square = config.n_embd**2
    if not has_equal_parts(square, world_size):
        return f"weights of n_embd={config.n_embd} cannot be split into equal parts"
    bucket = config.bucket_mb * 2**20 / 4 + 4 * square  # elements, with the weight that closes it
    if block_weights(config) < 2 * bucket:
        return f"bucket_mb={config.bucket_mb:g} may leave no bucket of blocks alone"
    return None


def chosen_averages(config: Config, reasons: dict[str, str]) -> dict[str, str | bool]:
    """Keys that decide how ranks average gradients, with their values, as far as left open.

    `config` is resolved, and `reasons` are those of keys that were left open.
    """
    return {key: getattr(config, key) for key in OPEN if key in reasons}


def averages_line(chosen: dict[str, str | bool], reasons: dict[str, str]) -> str:
    """Line that says how ranks average gradients and why, empty if that was not left open."""
    return "; ".join(f"{key}={spell(value)}: {reasons[key]}" for key, value in chosen.items())


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
