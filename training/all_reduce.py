"""Averages buckets of gradients over the ranks, while backward computes more.

    collective   one collective operation of NCCL, or of gloo. NCCL's programs hold multiprocessors
                 as long as it lasts: a kernel of one wave takes nearly twice as long beside it
    copies       NCCL moves the parts of a bucket by the GPUs' copy engines, to the rank that
                 averages them by a short kernel, and back; they take nothing but memory bandwidth

training.replicas hands the buckets over; which of the two is training.parallel's decision.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from training.distributed import Ranks
from training.one_graph import capture_graph, kernels_of

log = logging.getLogger(__name__)

ALIGNED = 4  # elements of float32: a rank's part of a bucket begins at 16 bytes


def part_of(whole: Tensor, ranks: Ranks) -> Tensor:
    """This rank's, (L), of as many equal ones, (ranks * L) in all."""
    return whole.view(ranks.world_size, -1)[ranks.rank]


class Collective:
    """An all-reduce for each bucket; or a reduce-scatter, and later an all-gather of other data."""

    def __init__(self, ranks: Ranks):
        self.ranks, self.on_cuda = ranks, ranks.device.type == "cuda"
        self.under_way: list[dist.Work] = []

    @contextmanager
    def memory(self) -> Iterator[None]:
        """Around the allocation of the buckets."""
        yield

    def begin(self, bucket: Tensor) -> None:
        """To average it over the ranks, in its place."""
        operation = dist.ReduceOp.AVG
        if not self.on_cuda:  # gloo has no such operation
            bucket /= self.ranks.world_size
            operation = dist.ReduceOp.SUM
        self.add(dist.all_reduce(bucket, operation, async_op=True))

    def place_of_parts(self, bucket: Tensor) -> Tensor:
        """(K, L), whose mean over K is this rank's part of it behind `scatter`; always there."""
        return part_of(bucket, self.ranks)[None]

    def scatter(self, bucket: Tensor, parts: Tensor) -> None:
        """To the place of its parts. What is in the bucket becomes anything."""
        if not self.on_cuda:
            self.begin(bucket)
            return
        operation = dist.ReduceOp.AVG
        self.add(dist.reduce_scatter_tensor(parts[0], bucket, operation, async_op=True))

    def gather(self, whole: Tensor) -> None:
        """Each rank's part of it, to all."""
        mine = part_of(whole, self.ranks)
        self.add(dist.all_gather_into_tensor(whole, mine, async_op=True))

    def add(self, work: dist.Work | None) -> None:
        assert work is not None
        self.under_way.append(work)

    def begin_gather(self, mine: Tensor, dtype: torch.dtype) -> Callable[[], Tensor]:
        """Of (N, ...) of each rank, as `dtype`; what it returns waits for all, (ranks * N, ...)."""
        mine = mine.to(dtype)
        everything = mine.new_empty(self.ranks.world_size * len(mine), *mine.shape[1:])
        work = dist.all_gather_into_tensor(everything, mine, async_op=True)
        assert work is not None

        def all_of_them() -> Tensor:
            end(work)
            return everything

        return all_of_them

    def wait(self) -> None:
        """Raises DistBackendError where a collective failed."""
        for work in self.under_way:
            end(work)
        self.under_way.clear()


def end(work: dist.Work) -> None:
    """Raises DistBackendError where it failed, which a RuntimeError does not say."""
    try:
        work.wait()
    except RuntimeError as error:
        raise dist.DistBackendError(str(error)) from error


class Copies:
    """Parts to their ranks, their means, and these to all, without a program of NCCL's.

    For that NCCL has to know the memory of buckets and parts, on each rank at the same place of it:
    https://docs.pytorch.org/docs/stable/symmetric_memory.html. Of a length that the ranks cannot
    share evenly a few elements are the `rest`.
    """

    def __init__(self, ranks: Ranks, rest: Collective):
        import torch.distributed._symmetric_memory as symmetric  # PyTorch's name, documented

        from kernels.mean_triton import mean_of_parts

        symmetric.set_backend("NCCL")
        nccl: Any = dist.ProcessGroupNCCL  # of newer versions than the stubs
        options = nccl.Options()
        options.config.cta_policy = nccl.NCCL_CTA_POLICY_ZERO  # no programs
        self.group = dist.new_group(pg_options=options)
        # beside the last bucket; a group does one thing after the other, and never copies in
        # PyTorch's first stream
        self.gathers = dist.new_group(pg_options=options)
        self.gather_stream = torch.cuda.Stream(ranks.device, priority=-1)
        self.everything: Tensor | None = None  # what was gathered last
        self.pool = symmetric.get_mem_pool(ranks.device)
        self.rendezvous, self.mean = symmetric.rendezvous, mean_of_parts
        self.ranks = ranks
        self.stream = torch.cuda.Stream(ranks.device, priority=-1)
        self.known: set[int] = set()  # what is sent, by its address
        self.unproved: Tensor | None = None  # the first of them, until `prove`
        self.received = torch.empty(0, device=ranks.device)
        self.rest = rest

    @contextmanager
    def memory(self) -> Iterator[None]:
        with torch.cuda.use_mem_pool(self.pool):
            yield

    def begin(self, bucket: Tensor) -> None:
        whole = self.shareable(bucket)
        self.make_room(bucket)
        self.average(whole)
        if len(whole) < len(bucket):
            self.rest.begin(bucket[len(whole) :])

    def shareable(self, bucket: Tensor) -> Tensor:
        return bucket[: len(bucket) - len(bucket) % (self.ranks.world_size * ALIGNED)]

    def average(self, whole: Tensor) -> None:
        received = self.received[: len(whole)].view(self.ranks.world_size, -1)
        self.scatter(whole, received)
        with torch.cuda.stream(self.stream):
            self.mean(received, part_of(whole, self.ranks))
        self.gather(whole)

    def place_of_parts(self, bucket: Tensor) -> Tensor:
        """As Collective's: those of all ranks, as they come."""
        return self.made_known(bucket).view(self.ranks.world_size, -1)

    def scatter(self, bucket: Tensor, parts: Tensor) -> None:
        """As Collective does."""
        self.make_known(bucket)
        with self.beside():
            dist.all_to_all_single(parts, bucket.view_as(parts), group=self.group)

    def gather(self, whole: Tensor) -> None:
        self.make_known(whole)
        with self.beside():
            dist.all_gather_into_tensor(whole, part_of(whole, self.ranks), group=self.group)

    @contextmanager
    def beside(self) -> Iterator[None]:
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            yield

    def make_known(self, tensor: Tensor) -> None:
        """To NCCL. All ranks come to this together; the first time it waits for the GPU."""
        if tensor.data_ptr() not in self.known:
            if not self.known:
                self.unproved = tensor
            self.rendezvous(tensor, self.group.group_name)
            self.known.add(tensor.data_ptr())

    def make_room(self, bucket: Tensor) -> None:
        if len(bucket) > len(self.received):
            self.received = self.made_known(bucket)

    def made_known(self, like: Tensor) -> Tensor:
        with self.memory():
            made = torch.empty_like(like)
        self.rendezvous(made, self.group.group_name)
        return made

    def begin_gather(self, mine: Tensor, dtype: torch.dtype) -> Callable[[], Tensor]:
        """As Collective does, to memory that is used again in the next iteration."""
        shape = (self.ranks.world_size * len(mine), *mine.shape[1:])
        if self.everything is None or self.everything.shape != shape:
            with self.memory():
                self.everything = mine.new_empty(shape, dtype=dtype)
            self.rendezvous(self.everything, self.gathers.group_name)
        everything, part = self.everything, part_of(self.everything, self.ranks)
        part.copy_(mine.flatten())
        self.gather_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.gather_stream):
            dist.all_gather_into_tensor(everything.flatten(), part, group=self.gathers)

        def all_of_them() -> Tensor:
            torch.cuda.current_stream().wait_stream(self.gather_stream)
            return everything

        return all_of_them

    def wait(self) -> None:
        self.join()
        self.rest.wait()
        if self.unproved is not None:
            self.prove(self.unproved)
            self.unproved = None

    def join(self) -> None:
        torch.cuda.current_stream().wait_stream(self.stream)

    def prove(self, bucket: Tensor) -> None:
        """By the kernels of a graph of its exchange, which never runs. Raises ValueError: where
        memory or links do not do for NCCL, it takes its programs, and says nothing."""
        bucket = bucket.view(torch.float32)  # as `received` is; copies are of any type
        whole = self.shareable(bucket)
        self.make_room(bucket)

        def work() -> None:
            self.average(whole)
            self.join()

        torch.cuda.synchronize()
        names = kernels_of(capture_graph(work)) or []
        programs = [name for name in names if "nccl" in name.lower()]
        if programs:
            raise ValueError(
                f"all_reduce=copies: NCCL copies by kernels here ({', '.join(programs)}); "
                "use all_reduce=collective"
            )
        log.info("all_reduce=copies: no kernel of NCCL's (kernels: %s)", ", ".join(names))
