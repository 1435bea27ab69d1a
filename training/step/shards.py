"""A share of the model on each rank, by PyTorch's fully_shard (FSDP2), some blocks at a time.

The weights of a stretch of blocks are gathered before it computes and freed after it. Of its
gradients each rank keeps the share that it updates. With hsdp that happens within groups of ranks,
and the shares are then averaged among the groups. Weights, gradients and moments are DTensors:
their shape is that of the whole tensor, but each rank's memory holds its part alone.
"""

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from configs.schema import Config
from configs.sharing import decide_travel
from model import GPT
from training.machine.parallel import shard_count
from training.ranks.distributed import Ranks


class Shards:
    """Shards `model` in place, so that each rank has a share; see training.step.layout.Layout.

    Ranks wait for each other wherever weights are gathered, so there is no wait at the end.
    """

    waits_at_end, shared = False, None

    def __init__(self, model: GPT, config: Config, ranks: Ranks):
        # The logits are a view, which is harmless because nobody writes to it.
        warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
        mesh, policy = device_mesh(config, ranks), block_policy(config.dtype, ranks.device)
        blocks = list(model.transformer.h)
        sent = sent_bytes(blocks[0], policy)
        travel = decide_travel(len(blocks), sent, smallest_gpu_bytes(ranks))
        *stretches, last = ([blocks[at] for at in stretch] for stretch in travel.stretches)
        for stretch in (*stretches, last):
            # The last stretch keeps its weights: its backward comes right after its forward.
            again = stretch is not last and not travel.kept
            fully_shard(stretch, mesh=mesh, reshard_after_forward=again, mp_policy=policy)
        fully_shard(model, mesh=mesh)  # the rest, in float32: embeddings, the last norm, the head
        self.model: Callable[..., tuple[Tensor, Tensor]] = model
        self.sharded = cast(FSDPModule, model)
        begins = [self.sharded, *(cast(FSDPModule, first) for first, *_ in (*stretches, last))]
        for begin, next_begin in pairwise(begins):
            begin.set_modules_to_forward_prefetch([next_begin])
        self.kept = travel.kept
        self.accumulates = config.gradient_accumulation_steps > ranks.world_size

    def begin_micro_step(self, last: bool) -> None:
        """Prepares a micro-step; gradients are sent in the `last` one of an iteration alone.

        Until then they add up on this rank in full.
        """
        if self.accumulates:
            self.sharded.set_requires_gradient_sync(last)
            self.sharded.set_reshard_after_backward(last or not self.kept)

    def wait_for_gradients(self) -> None:
        """Does nothing: backward has waited for the gradients already."""

    def in_stream(self) -> AbstractContextManager[None]:
        return nullcontext()


def smallest_gpu_bytes(ranks: Ranks) -> int | None:
    """Memory of the ranks' smallest GPU, the same number on each rank; None without GPUs."""
    if ranks.device.type != "cuda":
        return None
    return min(ranks.gather_objects(torch.cuda.get_device_properties(ranks.device).total_memory))


def sent_bytes(block: nn.Module, policy: MixedPrecisionPolicy) -> int:
    return sum(p.numel() * (policy.param_dtype or p.dtype).itemsize for p in block.parameters())


def block_policy(dtype: str, device: torch.device) -> MixedPrecisionPolicy:
    """Types in which blocks are gathered and reduced.

    Weights are sent in `dtype`, to which autocast would round them anyway, and gradients are summed
    in float32. The residual stream, which goes into a block, keeps its type. On a CPU, where
    autocast does not round norms, weights stay float32.
    """
    if dtype == "float32" or device.type == "cpu":
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(
        param_dtype=getattr(torch, dtype), reduce_dtype=torch.float32, cast_forward_inputs=False
    )


def device_mesh(config: Config, ranks: Ranks) -> DeviceMesh:
    """Mesh of ranks: (shards,) for fsdp, (replicas, shards) for hsdp.

    Ranks that share a model are neighbours, and so on one host.
    """
    shards = shard_count(config, ranks.world_size)
    if config.parallel == "fsdp":
        return init_device_mesh(ranks.device.type, (shards,), mesh_dim_names=("shard",))
    shape = ranks.world_size // shards, shards
    return init_device_mesh(ranks.device.type, shape, mesh_dim_names=("replica", "shard"))


def shard_like(value: Tensor, like: Tensor) -> Tensor:
    """`value` as a DTensor with the layout of `like`; unchanged if `like` is no DTensor."""
    if not isinstance(like, DTensor):
        return value
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements)
