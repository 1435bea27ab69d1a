"""A share of the model on each rank: PyTorch's fully_shard (FSDP2), some blocks at a time.

The weights of a stretch of blocks are gathered before it computes and given up behind it; of its
gradients each rank keeps the share that it updates. With hsdp that is done within groups of ranks,
whose shares are then averaged among the groups. Weights, gradients and moments are DTensors: whole
to who looks at their shape, a part in each rank's memory.
"""

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from configs.schema import Config
from model import GPT
from profiling.travel import decide_travel
from training.distributed import Ranks
from training.parallel import shard_count


class Shards:
    """A share of `model` on each rank, which is changed in place; see training.layout.Layout.

    Ranks wait for each other wherever something is gathered, so not at the end.
    """

    waits_at_end, shared = False, None

    def __init__(self, model: GPT, config: Config, ranks: Ranks):
        # of logits that are a view, which nobody writes to
        warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
        mesh, policy = device_mesh(config, ranks), block_policy(config.dtype, ranks.device)
        blocks = list(model.transformer.h)
        travel = decide_travel(len(blocks), sent_bytes(blocks[0], policy))
        *stretches, last = ([blocks[at] for at in stretch] for stretch in travel.stretches)
        for stretch in (*stretches, last):
            # the last one's backward comes at once
            again = stretch is not last and not travel.kept
            fully_shard(stretch, mesh=mesh, reshard_after_forward=again, mp_policy=policy)
        fully_shard(model, mesh=mesh)  # embeddings, the last norm and the head: in float32
        self.model: Callable[..., tuple[Tensor, Tensor]] = model
        self.sharded = cast(FSDPModule, model)
        begins = [self.sharded, *(cast(FSDPModule, first) for first, *_ in (*stretches, last))]
        for begin, next_begin in pairwise(begins):
            begin.set_modules_to_forward_prefetch([next_begin])
        self.kept, self.share_group = travel.kept, mesh.get_group("shard")
        self.accumulates = config.gradient_accumulation_steps > ranks.world_size

    def begin_micro_step(self, last: bool) -> None:
        """Gradients of the others stay on this rank, whole, and leave with those of the last."""
        if self.accumulates:
            self.sharded.set_requires_gradient_sync(last)
            self.sharded.set_reshard_after_backward(last or not self.kept)

    def wait_for_gradients(self) -> None:
        """Backward has done so."""

    def in_stream(self) -> AbstractContextManager[None]:
        return nullcontext()

    @torch.no_grad()
    def shares(self, tensors: list[Tensor]) -> list[Tensor]:
        return [cast(DTensor, tensor).to_local() for tensor in tensors]

    def total_norm(self, norm: Tensor) -> Tensor:
        square = norm.square()
        dist.all_reduce(square, group=self.share_group)
        return square.sqrt()


def sent_bytes(block: nn.Module, policy: MixedPrecisionPolicy) -> int:
    return sum(p.numel() * (policy.param_dtype or p.dtype).itemsize for p in block.parameters())


def block_policy(dtype: str, device: torch.device) -> MixedPrecisionPolicy:
    """Weights travel in `dtype`, which autocast would round them to, gradients are added in
    float32; what goes into a block, the residual stream, stays as it is. On a CPU, whose autocast
    leaves norms alone, weights are float32."""
    if dtype == "float32" or device.type == "cpu":
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(
        param_dtype=getattr(torch, dtype), reduce_dtype=torch.float32, cast_forward_inputs=False
    )


def device_mesh(config: Config, ranks: Ranks) -> DeviceMesh:
    """(shards,), or (replicas, shards) whose shards are neighbours: ranks of a host."""
    shards = shard_count(config, ranks.world_size)
    if config.parallel == "fsdp":
        return init_device_mesh(ranks.device.type, (shards,), mesh_dim_names=("shard",))
    shape = ranks.world_size // shards, shards
    return init_device_mesh(ranks.device.type, shape, mesh_dim_names=("replica", "shard"))


def whole(value: Tensor) -> Tensor:
    """All of it on each rank, which all call this."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def placed(value: Tensor, like: Tensor) -> Tensor:
    """This rank's part of it, which lies as `like` does."""
    if not isinstance(like, DTensor):
        return value
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements)
