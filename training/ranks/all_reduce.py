"""Averages buckets of gradients over the ranks, while backward computes more.

    collective   one collective operation of NCCL, or of gloo. NCCL's kernels hold multiprocessors
                 as long as it lasts: a kernel of one wave takes nearly twice as long beside it
    copies       NCCL moves the parts of a bucket with the GPUs' copy engines to the rank that
                 averages them in a short kernel, and back; they take only memory bandwidth

training.step.replicas hands the buckets over; training.machine.parallel decides which of the two
is used.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from cli.errors import one_line
from training.ranks.distributed import Ranks
from training.ranks.graph_pieces import capture_graph, kernels_of

log = logging.getLogger(__name__)

TRIED = 1 << 20  # elements of the bucket that is exchanged to try the copies
ALIGNED = 4  # elements of float32: each rank's part of a bucket begins at a multiple of 16 bytes


def part_of(whole: Tensor, ranks: Ranks) -> Tensor:
    """This rank's part (L) of `whole` (ranks * L), of which each rank has an equal part."""
    return whole.view(ranks.world_size, -1)[ranks.rank]


class Collective:
    """Averages each bucket by one all-reduce.

    A caller that shares the update uses `scatter`, a reduce-scatter of gradients, and later
    `gather`, an all-gather of other data.
    """

    def __init__(self, ranks: Ranks):
        self.ranks, self.on_cuda = ranks, ranks.device.type == "cuda"
        self.pending: list[dist.Work] = []

    @contextmanager
    def memory(self) -> Iterator[None]:
        """Context manager for the block that allocates the buckets; here it does nothing."""
        yield

    def begin(self, bucket: Tensor) -> None:
        """Begins to average the bucket over the ranks, in place; `wait` waits for it."""
        operation = dist.ReduceOp.AVG
        if not self.on_cuda:  # gloo has no AVG, so divide first and sum
            bucket /= self.ranks.world_size
            operation = dist.ReduceOp.SUM
        self.add(dist.all_reduce(bucket, operation, async_op=True))

    def place_of_parts(self, bucket: Tensor) -> Tensor:
        """Memory (K, L) that `scatter` fills: the mean over K is this rank's part of the bucket.

        Here K is 1, and the memory is the part of the bucket itself.
        """
        return part_of(bucket, self.ranks)[None]

    def scatter(self, bucket: Tensor, parts: Tensor) -> None:
        """Begins to fill `parts`, made by `place_of_parts`; the bucket's contents are undefined."""
        if not self.on_cuda:  # gloo averages the whole bucket, which has this rank's part in it
            self.begin(bucket)
            return
        operation = dist.ReduceOp.AVG
        self.add(dist.reduce_scatter_tensor(parts[0], bucket, operation, async_op=True))

    def gather(self, whole: Tensor) -> None:
        """Begins to send each rank's part of `whole` to all ranks, in place."""
        mine = part_of(whole, self.ranks)
        self.add(dist.all_gather_into_tensor(whole, mine, async_op=True))

    def add(self, work: dist.Work | None) -> None:
        """Has `wait` wait for this operation, too."""
        assert work is not None
        self.pending.append(work)

    def begin_gather(self, mine: Tensor, dtype: torch.dtype) -> Callable[[], Tensor]:
        """Begins to gather `mine` (N, ...) of each rank, converted to `dtype`.

        Returns a function that waits for it and returns the result, (ranks * N, ...).
        """
        mine = mine.to(dtype)
        everything = mine.new_empty(self.ranks.world_size * len(mine), *mine.shape[1:])
        work = dist.all_gather_into_tensor(everything, mine, async_op=True)
        assert work is not None

        def wait() -> Tensor:
            wait_for(work)
            return everything

        return wait

    def wait(self) -> None:
        """Waits for all operations that were begun. Raises DistBackendError if one failed."""
        for work in self.pending:
            wait_for(work)
        self.pending.clear()


def wait_for(work: dist.Work) -> None:
    """Waits for one operation. Raises DistBackendError if it failed.

    PyTorch may raise a plain RuntimeError, which does not say that it was a collective.
    """
    try:
        work.wait()
    except RuntimeError as error:
        raise dist.DistBackendError(str(error)) from error


class Copies:
    """Averages buckets with copy engines: no kernel of NCCL's runs.

    The parts of a bucket are copied to their ranks, each rank averages its own part, and the means
    are copied to all ranks. NCCL can only do this with memory that is registered with it, at the
    same offset on each rank: https://docs.pytorch.org/docs/stable/symmetric_memory.html. Where the
    ranks cannot share a bucket evenly, `rest` averages the few elements that are left over.
    """

    def __init__(self, ranks: Ranks, rest: Collective):
        import torch.distributed._symmetric_memory as symmetric  # PyTorch's name, documented

        from kernels.optimizers.mean_triton import mean_of_parts

        symmetric.set_backend("NCCL")
        nccl: Any = dist.ProcessGroupNCCL  # PyTorch's type stubs lack its newer attributes
        options = nccl.Options()
        options.config.cta_policy = nccl.NCCL_CTA_POLICY_ZERO  # no kernels
        self.group = dist.new_group(pg_options=options)
        # The gather of `begin_gather` is to run beside the last bucket. A group runs its operations
        # one after the other, so it needs a group of its own. It also needs a stream of its own,
        # because NCCL does not use the copy engines in PyTorch's default stream.
        self.gathers = dist.new_group(pg_options=options)
        self.gather_stream = torch.cuda.Stream(ranks.device, priority=-1)
        self.everything: Tensor | None = None  # result of `begin_gather`
        self.pool = symmetric.get_mem_pool(ranks.device)
        self.rendezvous, self.mean = symmetric.rendezvous, mean_of_parts
        self.ranks = ranks
        self.stream = torch.cuda.Stream(ranks.device, priority=-1)
        self.registered: set[int] = set()  # addresses of the tensors that NCCL knows
        self.unchecked: Tensor | None = None  # first registered tensor, until `check_copies`
        # parts of all ranks as they arrive; buckets share it, since they are averaged in turn
        self.received = torch.empty(0, device=ranks.device)
        self.rest = rest

    @contextmanager
    def memory(self) -> Iterator[None]:
        """Allocates tensors made within the block in memory that can be registered with NCCL."""
        with torch.cuda.use_mem_pool(self.pool):
            yield

    def begin(self, bucket: Tensor) -> None:
        whole = self.shareable(bucket)
        self.make_room(bucket)
        self.average(whole)
        if len(whole) < len(bucket):
            self.rest.begin(bucket[len(whole) :])

    def shareable(self, bucket: Tensor) -> Tensor:
        """The beginning of the bucket that all ranks can share in equal, aligned parts."""
        return bucket[: len(bucket) - len(bucket) % (self.ranks.world_size * ALIGNED)]

    def average(self, whole: Tensor) -> None:
        """Begins to average `whole`, which the ranks can share evenly, in place.

        The three stages are queued on one stream, so each begins when the one before it has ended.
        """
        received = self.received[: len(whole)].view(self.ranks.world_size, -1)
        self.scatter(whole, received)
        with torch.cuda.stream(self.stream):
            self.mean(received, part_of(whole, self.ranks))
        self.gather(whole)

    def place_of_parts(self, bucket: Tensor) -> Tensor:
        """Allocates registered memory (ranks, L) for `scatter`: parts that are not averaged yet."""
        return self.allocate_registered(bucket).view(self.ranks.world_size, -1)

    def scatter(self, bucket: Tensor, parts: Tensor) -> None:
        """Begins to copy each rank's part of the bucket into that rank's `parts` (ranks, L).

        Nothing is averaged: whoever reads the parts takes their mean.
        """
        self.register(bucket)
        with self.on_own_stream():
            dist.all_to_all_single(parts, bucket.view_as(parts), group=self.group)

    def gather(self, whole: Tensor) -> None:
        """Begins to copy each rank's part of `whole` to all ranks, in place."""
        self.register(whole)
        with self.on_own_stream():
            dist.all_gather_into_tensor(whole, part_of(whole, self.ranks), group=self.group)

    @contextmanager
    def on_own_stream(self) -> Iterator[None]:
        """Launches what is in the block on the copies' stream, after the work queued so far."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            yield

    def register(self, tensor: Tensor) -> None:
        """Registers a tensor with NCCL, once for each address.

        All ranks must call this together. For a new address it waits for the GPU.
        """
        if tensor.data_ptr() not in self.registered:
            if not self.registered:
                self.unchecked = tensor
            self.rendezvous(tensor, self.group.group_name)
            self.registered.add(tensor.data_ptr())

    def make_room(self, bucket: Tensor) -> None:
        """Makes `received` at least as long as the bucket."""
        if len(bucket) > len(self.received):
            self.received = self.allocate_registered(bucket)

    def allocate_registered(self, like: Tensor) -> Tensor:
        """A new tensor of the shape and dtype of `like`, registered with NCCL."""
        with self.memory():
            tensor = torch.empty_like(like)
        self.rendezvous(tensor, self.group.group_name)
        return tensor

    def begin_gather(self, mine: Tensor, dtype: torch.dtype) -> Callable[[], Tensor]:
        """Begins to gather `mine` (N, ...) of each rank, as Collective.begin_gather does.

        The result lies in memory that the next iteration uses again.
        """
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

        def wait() -> Tensor:
            torch.cuda.current_stream().wait_stream(self.gather_stream)
            return everything

        return wait

    def wait(self) -> None:
        """Has the current stream wait for the copies; checks them once, after the first ones.

        Raises DistBackendError if a collective of the rest failed, ValueError as `check_copies`.
        """
        self.join()
        self.rest.wait()
        # The check comes here, once, because only the first exchange registers a tensor that an
        # exchange can be captured with.
        if self.unchecked is not None:
            self.check_copies(self.unchecked)
            self.unchecked = None

    def join(self) -> None:
        """Has the current stream wait for the copies' stream; the host does not wait."""
        torch.cuda.current_stream().wait_stream(self.stream)

    def check_copies(self, bucket: Tensor) -> None:
        """Raises ValueError if NCCL does not use the copy engines here.

        Where NCCL cannot use them, because of the memory or the links, it falls back to its kernels
        without a word. So an exchange of the bucket is captured as a graph, which never runs, and
        the names of the kernels in it show what NCCL does. Waits for the GPU.
        """
        bucket = bucket.view(torch.float32)  # as `received` is; the copies take any dtype
        whole = self.shareable(bucket)
        self.make_room(bucket)

        def work() -> None:
            self.average(whole)
            self.join()

        torch.cuda.synchronize()
        names = kernels_of(capture_graph(work)) or []
        nccl_kernels = [name for name in names if "nccl" in name.lower()]
        if nccl_kernels:
            raise ValueError(
                f"all_reduce=copies: NCCL copies with kernels here ({', '.join(nccl_kernels)}); "
                "use all_reduce=collective"
            )
        log.info("all_reduce=copies: NCCL runs no kernel (kernels: %s)", ", ".join(names))


def copies_obstacle(ranks: Ranks) -> str | None:
    """Reason why NCCL cannot use the copy engines here, or None. All ranks must call this together.

    Exchanges a bucket of zeros as training would. Raises OutOfMemoryError at once: training would
    have no room either, and the other ranks would wait for the exchange.
    """
    try:
        copies = Copies(ranks, Collective(ranks))
        with copies.memory():
            bucket = torch.zeros(TRIED, device=ranks.device)
        copies.begin(bucket)
        copies.wait()
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ImportError, OSError, ValueError) as error:
        why = one_line(error).removeprefix("all_reduce=copies: ").partition("; use ")[0]
        return f"copies do not work here: {why}"
    return None
