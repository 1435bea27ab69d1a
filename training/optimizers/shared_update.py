"""Shares the update among ranks: each updates a part of the weights (the first stage of ZeRO).

An update reads and writes 34 bytes a parameter, and without sharing every rank does all of it. Here
each bucket of gradients is divided into as many equal parts as there are ranks, regardless of where
its weights begin and end:

    weights in a bucket   |     a     |         b         |     c      |
    parts of the ranks    |    rank 0    |    rank 1    |    rank 2    |

A rank gets the averaged gradients of its part alone, updates the weights there (rank 1: the middle
of b), and sends their 16-bit copies, with which the model computes, to the others. So the averaged
gradients of a bucket need not be sent back to all ranks. Weights that are no matrix of a block are
updated by every rank, because the model reads them in float32.

DDP makes its buckets for float32. With a `reduce_dtype` of 16 bits the gradients that are sent are
in the first half of a bucket's memory: products write them there, and the update reads the ranks'
parts. The numbers in `p.grad` are then read by nobody.

A rank has only the 16-bit copies of weights that others update, until `SharedAdamW.make_whole`
gathers the weights for a checkpoint. ZeRO: Rajbhandari and others,
https://arxiv.org/abs/1910.02054; a shared update in general: Xu and others,
https://arxiv.org/abs/2004.13336.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from configs.sharing import has_equal_parts, stages
from kernels.linear import Linear
from training.optimizers.optimizer import MOMENTS, ClippedAdamW
from training.ranks.all_reduce import Collective, Copies, part_of
from training.ranks.distributed import Ranks
from training.ranks.graph_pieces import BetweenGraphs

if TYPE_CHECKING:
    from kernels.optimizers.adamw_triton import Parts

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part:
    """The elements of a weight that this rank updates; there may be none."""

    first: int  # index of the first element
    size: int  # number of elements
    gradients: Tensor  # (K, size), whose mean over K is the gradient


@dataclass(frozen=True)
class Bucket:
    """A bucket of gradients, divided equally among the ranks."""

    weights: list[Tensor]  # in the order of their gradients
    gradients: Tensor  # of all these weights, one after the other, in the type that is sent
    parts: Tensor  # (K, L), whose mean over K is this rank's part of the averaged gradients
    copies: Tensor  # of the weights, in the same order, in the type of the model's products


class SharedUpdate:
    """Assigns this rank its part of each bucket of gradients, and exchanges gradients and copies.

    Weights that no product reads are kept out of the buckets that DDP makes for `model`. Their
    averaged gradients have to be sent back to all ranks, and would lie among others that need not.
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
        self.ranks, self.dtype = ranks, dtype  # `dtype` is the type in which gradients are sent
        products = {module.weight for module in model.modules() if isinstance(module, Linear)}
        alone = {name: p for name, p in model.named_parameters() if p not in products}
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, [*alone])
        self.tables = [p for p in alone.values() if p.dim() > 1]  # learned positions
        self.vectors = [p for p in alone.values() if p.dim() == 1]  # norms and biases
        self.means = torch.empty(0)  # averaged gradients of `vectors`, one after the other
        self.gradients = torch.empty(0)  # address of this rank's first part in each bucket
        self.square = torch.zeros((), device=ranks.device)  # squared norm of all shared gradients
        self.saw_bucket = False  # whether register_bucket was called
        self.buckets: dict[int, Bucket] = {}  # those that are shared, by address
        self.parts: dict[Tensor, Part] = {}  # by weight, for all weights in `buckets`
        self.products: dict[Tensor, Tensor] = {}  # where a product writes a weight's gradient

    def register_bucket(self, bucket: dist.GradBucket) -> None:
        """Decides whether a complete bucket is shared, the first time that it comes.

        It must be one of DDP's final buckets, which stay at their addresses.
        """
        gradients, weights = bucket.buffer(), bucket.parameters()
        self.saw_bucket = True
        if gradients.data_ptr() in self.buckets or not self.shareable(gradients, weights):
            return
        # DDP may list weights in another order than that of their gradients in the bucket.
        begins = [gradient.data_ptr() for gradient in bucket.gradients()]
        order = sorted(range(len(weights)), key=begins.__getitem__)
        weights = [weights[number] for number in order]
        sent = gradients.view(self.dtype)[: len(gradients)]
        # Only these first gradients are converted here; later ones are written so by products.
        sent.copy_(gradients.to(self.dtype))
        parts = self.exchange.place_of_parts(sent)
        part_size = parts.size(1)
        # `at` is where a weight begins, counted from the beginning of this rank's part; it is
        # negative for a weight that begins before it. Elements `first` to `end` of the weight lie
        # in the part; they are none if all of the weight lies before or after it.
        at = -self.ranks.rank * part_size
        for weight, product in zip(weights, sent.split([*map(torch.numel, weights)]), strict=True):
            self.products[weight] = product.view_as(weight)
            first, end = (min(max(place, 0), weight.numel()) for place in (-at, part_size - at))
            here = parts[:, max(at, 0) : max(at, 0) + end - first]
            self.parts[weight] = Part(first, end - first, here)
            at += weight.numel()
        copies = self.merge_copies(weights)
        self.buckets[gradients.data_ptr()] = Bucket(weights, sent, parts, copies)

    def check(self) -> None:
        """Raises ValueError if buckets came, but none of them can be shared."""
        if self.saw_bucket and not self.buckets:
            raise ValueError(
                "shard_update=true: no bucket of gradients contains only blocks and has the same "
                "length on all ranks; use a smaller bucket_mb, or shard_update=false"
            )

    def shareable(self, gradients: Tensor, weights: list[Tensor]) -> bool:
        """Whether a bucket has only weights of shared layers, no gaps, and equal parts."""
        known = all(weight in self.layers for weight in weights)
        is_full = sum(weight.numel() for weight in weights) == len(gradients)
        return known and is_full and has_equal_parts(len(gradients), self.ranks.world_size)

    def merge_copies(self, weights: list[Tensor]) -> Tensor:
        """Moves the weights' 16-bit copies into one tensor, which it returns, to send them at once.

        The model keeps using the same copies, whose memory is now in that tensor.
        """
        copies = [copy for weight in weights if (copy := self.layers[weight].copy) is not None]
        with self.exchange.memory():
            whole = torch.empty(
                sum(map(torch.numel, copies)), dtype=copies[0].dtype, device=copies[0].device
            )
        torch.cat([copy.flatten() for copy in copies], out=whole)
        for copy, place in zip(copies, whole.split([*map(torch.numel, copies)]), strict=True):
            copy.data = place.view_as(copy)
        return whole

    def is_registered(self, gradients: Tensor) -> bool:
        """Whether the bucket with these gradients is shared."""
        return gradients.data_ptr() in self.buckets

    def scatter(self, gradients: Tensor) -> None:
        """Starts to send each rank its part of a shared bucket."""
        bucket = self.buckets[gradients.data_ptr()]
        self.exchange.scatter(bucket.gradients, bucket.parts)

    def stages(self) -> list[Sequence[Bucket]]:
        """Buckets in stages: the copies of one stage travel while the next one is updated."""
        return stages([*self.buckets.values()])

    def send_copies(self, buckets: Sequence[Bucket]) -> None:
        for bucket in buckets:
            self.exchange.gather(bucket.copies)

    @torch.no_grad()
    def begin_remaining(self) -> None:
        """Starts to average gradients outside the buckets, and to sum `square`; after backward.

        Small vectors are sent as one tensor. `finish_remaining` waits.
        """
        tables = [p.grad for p in self.tables if p.grad is not None]
        vectors = [p.grad for p in self.vectors if p.grad is not None]
        self.means = torch.cat(vectors)
        for gradient in (*tables, self.means):
            self.collective.begin(gradient)
        if self.buckets:
            torch.sum(self.squares(), 0, out=self.square)
            self.collective.add(dist.all_reduce(self.square, async_op=True))

    def squares(self) -> Tensor:
        """Sums of squares of the gradients in this rank's parts, one for each block of a part."""
        from kernels.optimizers.adamw_triton import blocks_of, squares_of

        if len(self.gradients) != len(self.buckets):
            parts = [bucket.parts for bucket in self.buckets.values()]
            device = self.square.device
            self.gradients = torch.tensor([part.data_ptr() for part in parts], device=device)
            self.blocks = blocks_of([part.size(1) for part in parts], device)
            self.strided = self.strided_parts(parts)
        return squares_of(self.gradients, True, self.blocks, self.strided)

    def strided_parts(self, parts: list[Tensor]) -> "Parts":
        """Strides and type by which kernels average parts (K, ...) of weights or buckets over K.

        With K = 1 the only part is the mean already.
        """
        from kernels.optimizers.adamw_triton import Parts

        strides = torch.tensor([part.stride(0) for part in parts], device=self.square.device)
        return Parts(max(map(len, parts)), strides, self.dtype)

    @torch.no_grad()
    def finish_remaining(self) -> None:
        """Waits for what `begin_remaining` started, and copies means to the vectors' gradients."""
        self.collective.wait()
        gradients = [p.grad for p in self.vectors if p.grad is not None]
        torch._foreach_copy_(gradients, self.means.split([g.numel() for g in gradients]))

    def gather(self, bucket: Bucket, tensors: list[Tensor]) -> None:
        """Completes `tensors`, one for each weight of the bucket, from the parts of all ranks."""
        whole = torch.cat([tensor.flatten() for tensor in tensors])
        dist.all_gather_into_tensor(whole, part_of(whole, self.ranks))
        places = whole.split([tensor.numel() for tensor in tensors])
        for tensor, place in zip(tensors, places, strict=True):
            tensor.copy_(place.view_as(tensor))


def shared_layers(model: nn.Module) -> dict[Tensor, Linear]:
    """Layers whose update is shared, by weight.

    The head is none of them: its weight is also the embedding's table, which is read in float32.
    """
    tables = {module.weight for module in model.modules() if isinstance(module, nn.Embedding)}
    layers = [module for module in model.modules() if isinstance(module, Linear)]
    return {layer.weight: layer for layer in layers if layer.weight not in tables}


class SharedAdamW(ClippedAdamW):
    """AdamW for this rank's part of each shared weight, and for all weights that are not shared.

    Moments are allocated in full.
    """

    def __init__(
        self, groups: Iterable[dict[str, object]], copies: Mapping[Tensor, Tensor], max_norm: float,
        lr: Tensor, betas: tuple[float, float], shared: SharedUpdate,
    ):  # fmt: skip
        self.shared, self.located = shared, 0
        super().__init__(groups, copies, max_norm, lr, betas)

    def clip_and_step(self) -> Tensor:
        # The first update is not shared: DDP makes its final buckets only after that backward.
        if not self.shared.parts:
            self.shared.check()
            return super().clip_and_step()
        self.prepare()
        between = self.shared.between
        factors, rates = self.clip(self.squares(self.blocks), self.shared.square)
        for stage, blocks in zip(self.shared.stages(), self.blocks_of_stages, strict=True):
            self.update(blocks, factors, rates, self.strided)
            between(self.shared.send_copies, stage)  # these travel while the rest is updated
        self.update(self.blocks_updated, factors, rates)
        between(self.shared.exchange.wait)
        return factors

    def prepare(self) -> None:
        # Shared buckets have come since the table of addresses was built.
        if self.state and self.located != len(self.shared.parts):
            self.locate()
        super().prepare()

    def locate(self) -> None:
        super().locate()
        self.located = len(self.shared.parts)
        if self.located:
            shared = sum(p.numel() for p in self.shared.parts)
            total = sum(p.numel() for p in self.parameters)
            log.info(
                "shard_update=true: each of %d ranks updates its part of %.1f million weights, "
                "and all ranks update the other %.1f million",
                self.shared.ranks.world_size,
                shared / 1e6,
                (total - shared) / 1e6,
            )

    def make_blocks(self) -> None:
        from kernels.optimizers.adamw_triton import Blocks, blocks_of

        def blocks_with(sizes: dict[Tensor, int]) -> Blocks:
            return blocks_of([sizes.get(p, 0) for p in self.parameters], self.steps.device)

        parts = self.shared.parts
        self.blocks_of_stages = [
            blocks_with({w: parts[w].size for bucket in stage for w in bucket.weights})
            for stage in self.shared.stages()
        ]
        nothing = torch.empty(0, 0, device=self.steps.device)
        gradients = [parts[p].gradients if p in parts else nothing for p in self.parameters]
        self.strided = self.shared.strided_parts(gradients)
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
