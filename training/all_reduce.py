"""Averages buckets of gradients over the ranks, while backward computes more.

    collective   one collective operation of NCCL, or of gloo. NCCL's programs hold multiprocessors
                 as long as it lasts: a kernel of one wave takes nearly twice as long beside it
    copies       NCCL moves the parts of a bucket by the GPUs' copy engines, to the rank that
                 averages them by a short kernel, and back; they take nothing but memory bandwidth

training.replicas hands the buckets over; which of the two is training.parallel's decision.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from training.distributed import Ranks
from training.one_graph import captured, kernels_of

log = logging.getLogger(__name__)

ALIGNED = 4  # elements of float32: a rank's part of a bucket begins at 16 bytes


class Collective:
    """An all-reduce for each bucket."""

    def __init__(self, ranks: Ranks):
        self.world_size, self.on_cuda = ranks.world_size, ranks.device.type == "cuda"
        self.under_way: list[dist.Work] = []

    @contextmanager
    def memory(self) -> Iterator[None]:
        """Around the allocation of the buckets."""
        yield

    def begin(self, bucket: Tensor) -> None:
        """To average it over the ranks, in its place."""
        operation = dist.ReduceOp.AVG
        if not self.on_cuda:  # gloo has no such operation
            bucket /= self.world_size
            operation = dist.ReduceOp.SUM
        work = dist.all_reduce(bucket, operation, async_op=True)
        assert work is not None
        self.under_way.append(work)

    def wait(self) -> None:
        """Raises DistBackendError where a collective failed, which a RuntimeError does not say."""
        for work in self.under_way:
            try:
                work.wait()
            except RuntimeError as error:
                raise dist.DistBackendError(str(error)) from error
        self.under_way.clear()


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
        self.pool = symmetric.get_mem_pool(ranks.device)
        self.rendezvous, self.mean = symmetric.rendezvous, mean_of_parts
        self.rank, self.world_size = ranks.rank, ranks.world_size
        self.stream = torch.cuda.Stream(ranks.device, priority=-1)
        self.known: set[int] = set()  # buckets, by their addresses
        self.unproved: Tensor | None = None  # the first of them, until `prove`
        self.received = torch.empty(0, device=ranks.device)
        self.rest = rest

    @contextmanager
    def memory(self) -> Iterator[None]:
        with torch.cuda.use_mem_pool(self.pool):
            yield

    def begin(self, bucket: Tensor) -> None:
        if bucket.data_ptr() not in self.known:
            self.make_known(bucket)
        whole = self.shareable(bucket)
        self.exchange(whole)
        if len(whole) < len(bucket):
            self.rest.begin(bucket[len(whole) :])

    def shareable(self, bucket: Tensor) -> Tensor:
        return bucket[: len(bucket) - len(bucket) % (self.world_size * ALIGNED)]

    def exchange(self, whole: Tensor) -> None:
        received = self.received[: len(whole)].view(self.world_size, -1)
        mine = whole.view(self.world_size, -1)[self.rank]
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            dist.all_to_all_single(received, whole.view_as(received), group=self.group)
            self.mean(received, mine)
            dist.all_gather_into_tensor(whole, mine, group=self.group)

    def make_known(self, bucket: Tensor) -> None:
        """To NCCL. All ranks come to this together; it waits for the GPU."""
        group = self.group.group_name
        if not self.known:
            self.unproved = bucket
        self.rendezvous(bucket, group)
        self.known.add(bucket.data_ptr())
        if len(bucket) > len(self.received):
            with self.memory():
                self.received = torch.empty_like(bucket)
            self.rendezvous(self.received, group)

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
        whole = self.shareable(bucket)

        def work() -> None:
            self.exchange(whole)
            self.join()

        torch.cuda.synchronize()
        names = kernels_of(captured(work)) or []
        programs = [name for name in names if "nccl" in name.lower()]
        if programs:
            raise ValueError(
                f"all_reduce=copies: NCCL copies by kernels here ({', '.join(programs)}); "
                "use all_reduce=collective"
            )
        log.info("all_reduce=copies: no kernel of NCCL's (kernels: %s)", ", ".join(names))
