"""Each rank updates a part of the weights, and gets the others' parts: the first stage of ZeRO.

An update reads and writes 34 bytes a parameter, on each rank the same. Here a rank averages a part
of each bucket, its own, updates the weights whose gradients lie there, and sends their copies in 16
bits, with which the model computes, to the others. So a bucket's means need not travel back. What
is no matrix of a block is updated by all: the model reads it in float32.

DDP makes its buckets for float32. In 16 bits (`reduce_dtype`) what is sent is in the first half of
a bucket's memory: a product writes it there, and the update reads the ranks' parts. Of `p.grad`
nobody reads the numbers.

Of what others update a rank has copies alone, until `SharedAdamW.make_whole` for a checkpoint.
ZeRO: Rajbhandari and others, https://arxiv.org/abs/1910.02054; for the update as a whole Xu and
others, https://arxiv.org/abs/2004.13336.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from kernels.linear import Linear
from profiling.shared_update import has_equal_parts, stages
from training.all_reduce import Collective, Copies, part_of
from training.between_graphs import BetweenGraphs
from training.distributed import Ranks
from training.optimizer import MOMENTS, ClippedAdamW

if TYPE_CHECKING:
    from kernels.adamw_triton import Parts

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part:
    """This rank's, of a weight; in elements. It may be nothing."""

    first: int
    size: int
    gradients: Tensor  # (K, size): their mean is the gradient of it


@dataclass(frozen=True)
class Bucket:
    """Of gradients, of which each rank has an equal part."""

    weights: list[Tensor]  # in their order in it
    gradients: Tensor  # one behind the other, as they are sent
    parts: Tensor  # (K, L): their mean is this rank's part of these
    copies: Tensor  # of them, as their gradients lie in the bucket


class SharedUpdate:
    """Which part of which weight is this rank's: of each bucket of gradients an equal part.

    DDP, of `model`, is to leave alone what is in no product. In its buckets the means of these
    would have to travel back, between those that need not.
    """

    def __init__(
        self,
        model: nn.Module,
        exchange: Collective | Copies,
        collective: Collective,
        between: BetweenGraphs,
        ranks: Ranks,
        dtype: torch.dtype,
    ):
        self.layers = shared_layers(model)
        self.exchange, self.collective, self.between = exchange, collective, between
        self.ranks, self.dtype = ranks, dtype  # in which gradients are sent
        products = {module.weight for module in model.modules() if isinstance(module, Linear)}
        alone = {name: p for name, p in model.named_parameters() if p not in products}
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, [*alone])
        self.tables = [p for p in alone.values() if p.dim() > 1]  # positions
        self.vectors = [p for p in alone.values() if p.dim() == 1]  # norms, biases
        self.means = torch.empty(0)  # of the vectors' gradients
        self.gradients = torch.empty(0)  # addresses, of one of each bucket
        self.square = torch.zeros((), device=ranks.device)  # of the norm of what the ranks share
        self.asked = False  # whether to share a bucket
        self.buckets: dict[int, Bucket] = {}  # by the address of the gradients
        self.parts: dict[Tensor, Part] = {}  # of all weights in these
        self.products: dict[Tensor, Tensor] = {}  # where in these their gradients are to be written

    def know(self, bucket: dist.GradBucket) -> None:
        """A complete bucket, of those of the whole run. Takes it in when it is new."""
        gradients, weights = bucket.buffer(), bucket.parameters()
        self.asked = True
        if gradients.data_ptr() in self.buckets or not self.shareable(gradients, weights):
            return
        begins = [gradient.data_ptr() for gradient in bucket.gradients()]
        order = sorted(range(len(weights)), key=begins.__getitem__)
        weights = [weights[number] for number in order]
        sent = gradients.view(self.dtype)[: len(gradients)]
        sent.copy_(gradients.to(self.dtype))  # these once; of the next ones products leave it so
        parts = self.exchange.place_of_parts(sent)
        mine = parts.size(1)
        at = -self.ranks.rank * mine  # of a weight, as seen from this rank's part
        for weight, product in zip(weights, sent.split([*map(torch.numel, weights)]), strict=True):
            self.products[weight] = product.view_as(weight)
            first, end = (min(max(place, 0), weight.numel()) for place in (-at, mine - at))
            here = parts[:, max(at, 0) : max(at, 0) + end - first]
            self.parts[weight] = Part(first, end - first, here)
            at += weight.numel()
        copies = self.moved_copies(weights)
        self.buckets[gradients.data_ptr()] = Bucket(weights, sent, parts, copies)

    def check(self) -> None:
        """Raises ValueError where the ranks were to share buckets and none can be."""
        if self.asked and not self.buckets:
            raise ValueError(
                "shard_update=true: no bucket of gradients is of blocks alone and of one length on "
                "all ranks; use a smaller bucket_mb, or shard_update=false"
            )

    def shareable(self, gradients: Tensor, weights: list[Tensor]) -> bool:
        known = all(weight in self.layers for weight in weights)
        is_full = sum(weight.numel() for weight in weights) == len(gradients)
        return known and is_full and has_equal_parts(len(gradients), self.ranks.world_size)

    def moved_copies(self, weights: list[Tensor]) -> Tensor:
        """The weights' copies, in one piece from now on, and each where it was for the model."""
        copies = [copy for weight in weights if (copy := self.layers[weight].copy) is not None]
        with self.exchange.memory():
            whole = torch.empty(
                sum(map(torch.numel, copies)), dtype=copies[0].dtype, device=copies[0].device
            )
        torch.cat([copy.flatten() for copy in copies], out=whole)
        for copy, place in zip(copies, whole.split([*map(torch.numel, copies)]), strict=True):
            copy.data = place.view_as(copy)
        return whole

    def has(self, gradients: Tensor) -> bool:
        return gradients.data_ptr() in self.buckets

    def scatter(self, gradients: Tensor) -> None:
        bucket = self.buckets[gradients.data_ptr()]
        self.exchange.scatter(bucket.gradients, bucket.parts)

    def stages(self) -> list[Sequence[Bucket]]:
        return stages([*self.buckets.values()])

    def send_copies(self, buckets: Sequence[Bucket]) -> None:
        for bucket in buckets:
            self.exchange.gather(bucket.copies)

    @torch.no_grad()
    def begin_rest(self) -> None:
        """Behind backward: what is in no bucket that the ranks share, and `square`."""
        tables = [p.grad for p in self.tables if p.grad is not None]
        vectors = [p.grad for p in self.vectors if p.grad is not None]
        self.means = torch.cat(vectors)
        for gradient in (*tables, self.means):
            self.collective.begin(gradient)
        if self.buckets:
            torch.sum(self.squares(), 0, out=self.square)
            self.collective.add(dist.all_reduce(self.square, async_op=True))

    def squares(self) -> Tensor:
        """Of the gradients in this rank's parts, in blocks."""
        from kernels.adamw_triton import blocks_of, squares_of

        if len(self.gradients) != len(self.buckets):
            parts = [bucket.parts for bucket in self.buckets.values()]
            device = self.square.device
            self.gradients = torch.tensor([part.data_ptr() for part in parts], device=device)
            self.blocks = blocks_of([part.size(1) for part in parts], device)
            self.strided = self.of_ranks(parts)
        return squares_of(self.gradients, True, self.blocks, self.strided)

    def of_ranks(self, parts: list[Tensor]) -> "Parts":
        """Of n (K, ...) each; where K is 1 their only one is the mean."""
        from kernels.adamw_triton import Parts

        strides = torch.tensor([part.stride(0) for part in parts], device=self.square.device)
        return Parts(max(map(len, parts)), strides, self.dtype)

    @torch.no_grad()
    def end_rest(self) -> None:
        self.collective.wait()
        gradients = [p.grad for p in self.vectors if p.grad is not None]
        torch._foreach_copy_(gradients, self.means.split([g.numel() for g in gradients]))

    def gather(self, bucket: Bucket, tensors: list[Tensor]) -> None:
        """All of `tensors`, one for each of its weights, of which each rank has its part."""
        whole = torch.cat([tensor.flatten() for tensor in tensors])
        dist.all_gather_into_tensor(whole, part_of(whole, self.ranks))
        places = whole.split([tensor.numel() for tensor in tensors])
        for tensor, place in zip(tensors, places, strict=True):
            tensor.copy_(place.view_as(tensor))


def shared_layers(model: nn.Module) -> dict[Tensor, Linear]:
    """By their weights. The head's is the embedding's table too, which is read in float32."""
    tables = {module.weight for module in model.modules() if isinstance(module, nn.Embedding)}
    layers = [module for module in model.modules() if isinstance(module, Linear)]
    return {layer.weight: layer for layer in layers if layer.weight not in tables}


class SharedAdamW(ClippedAdamW):
    """Of this rank's parts, and of what is no part of anything. Moments have their whole size."""

    def __init__(
        self, groups: Iterable[dict[str, Any]], copies: Mapping[Tensor, Tensor], max_norm: float,
        lr: Tensor, betas: tuple[float, float], shared: SharedUpdate,
    ):  # fmt: skip
        self.shared, self.located = shared, 0
        super().__init__(groups, copies, max_norm, lr, betas)

    def clip_and_step(self) -> Tensor:
        if not self.shared.parts:  # behind the first backward; then DDP makes its buckets anew
            self.shared.check()
            return super().clip_and_step()
        self.prepare()
        between = self.shared.between
        factors, rates = self.clip(self.squares(self.blocks), self.shared.square)
        for stage, blocks in zip(self.shared.stages(), self.blocks_of_stages, strict=True):
            self.update(blocks, factors, rates, self.strided)
            between(self.shared.send_copies, stage)  # while the rest is updated
        self.update(self.blocks_updated, factors, rates)
        between(self.shared.exchange.wait)
        return factors

    def prepare(self) -> None:
        if self.state and self.located != len(self.shared.parts):
            self.locate()
        super().prepare()

    def locate(self) -> None:
        super().locate()
        self.located = len(self.shared.parts)
        if self.located:
            count = sum(p.numel() for p in self.shared.parts)
            every = sum(p.numel() for p in self.parameters)
            log.info(
                "shard_update=true: each of %d ranks updates a part of %.1f million weights, and "
                "all of %.1f million",
                self.shared.ranks.world_size,
                count / 1e6,
                (every - count) / 1e6,
            )

    def make_blocks(self) -> None:
        from kernels.adamw_triton import Blocks, blocks_of

        def blocks_with(sizes: dict[Tensor, int]) -> Blocks:
            return blocks_of([sizes.get(p, 0) for p in self.parameters], self.steps.device)

        parts = self.shared.parts
        self.blocks_of_stages = [
            blocks_with({w: parts[w].size for bucket in stage for w in bucket.weights})
            for stage in self.shared.stages()
        ]
        nothing = torch.empty(0, 0, device=self.steps.device)
        of_all = [parts[p].gradients if p in parts else nothing for p in self.parameters]
        self.strided = self.shared.of_ranks(of_all)
        rest = {p: p.numel() for p in self.parameters if p not in parts}
        self.blocks = self.blocks_updated = blocks_with(rest)

    def first_of(self, p: Tensor) -> int:
        part = self.shared.parts.get(p)
        return part.first if part else 0

    def gradient_at(self, p: Tensor) -> int:
        part = self.shared.parts.get(p)
        return part.gradients.data_ptr() if part else super().gradient_at(p)

    @torch.no_grad()
    def make_whole(self) -> None:
        for bucket in self.shared.buckets.values():
            self.shared.gather(bucket, bucket.weights)
            for name in MOMENTS:
                self.shared.gather(bucket, [self.state[p][name] for p in bucket.weights])
