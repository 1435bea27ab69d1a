"""The model on each rank, its gradients averaged by DistributedDataParallel.

Buckets of gradients leave as soon as they are complete, while backward computes more. DDP would
wait for them at the end of backward; here that wait comes after it, in a place of its own, so that
it is a phase in a timeline and can be timed.

DDP copies each gradient into its bucket, unless it lies there already. With kernels=fused those of
matrices do: kernels.linear writes them where this module says.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from configs.schema import Config
from kernels.linear import give_place
from training.all_reduce import Collective, Copies
from training.between_graphs import BetweenGraphs
from training.distributed import Ranks
from training.embedding_rows import EmbeddingRows
from training.shared_update import SharedUpdate

# DDP times its own first iterations with events, which no CUDA graph can hold
ITERATIONS_BEFORE_CAPTURE = 11

# none of the model's changes; newer versions of PyTorch warn of the old name
KEYS = signature(DistributedDataParallel).parameters
NEW, OLD = "forward_sync_buffers", "broadcast_buffers"
WITHOUT_BUFFERS = {NEW if NEW in KEYS else OLD: False}


class Replicas:
    """All of `model` on each rank; see training.layout.Layout.

    With CUDA graphs it is made, and must be used until it is captured, in `stream`: where DDP was
    made the gradients are handed to it.
    """

    waits_at_end = True

    def __init__(
        self,
        model: Callable[..., tuple[Tensor, Tensor]],
        config: Config,
        ranks: Ranks,
        rows: EmbeddingRows | None = None,
    ):
        graphs = config.cuda_graphs == "true"
        self.stream = torch.cuda.Stream(ranks.device) if graphs else None
        self.collective, copies = Collective(ranks), config.all_reduce == "copies"
        self.exchange = Copies(ranks, self.collective) if copies else self.collective
        self.rows, self.between = rows, BetweenGraphs()
        self.shared: SharedUpdate | None = None
        if config.shard_update:
            module = cast(nn.Module, model)
            dtype = getattr(torch, config.reduce_dtype)
            self.shared = SharedUpdate(
                module, self.exchange, self.collective, self.between, ranks, dtype
            )
        with self.in_stream():
            make = cast(Callable[..., DistributedDataParallel], DistributedDataParallel)
            self.ddp = make(
                model,
                bucket_cap_mb=config.bucket_mb,
                gradient_as_bucket_view=True,
                **WITHOUT_BUFFERS,
            )
        self.model: Callable[..., tuple[Tensor, Tensor]] = self.ddp
        # DDP makes its buckets anew behind the first backward, in the order of the gradients; of
        # those before NCCL knows no memory to copy
        self.settled = False
        # compiled code has decided where its gradients lie
        self.places_gradients = config.kernels == "fused" and not config.compile
        self.ddp.register_comm_hook(None, self.bucket_complete)

    @contextmanager
    def in_stream(self) -> Iterator[None]:
        """Around what is to be captured, and what comes before it. Waits for the GPU."""
        if self.stream is None:
            yield
            return
        torch.cuda.synchronize(self.stream.device)
        with torch.cuda.stream(self.stream):
            yield
        torch.cuda.synchronize(self.stream.device)

    def begin_micro_step(self, last: bool) -> None:
        self.ddp.require_backward_grad_sync = last
        if not self.settled:
            with self.exchange.memory():
                self.settled = self.ddp.reducer._rebuild_buckets()  # its forward would

    def bucket_complete(self, state: object, bucket: dist.GradBucket) -> Future[Tensor]:
        """DDP's communication hook. The future is done, so that DDP waits for nothing; made
        without a device it has no event either, which would tie captured work to other work."""
        if self.shared and self.settled:
            self.shared.know(bucket)
        self.between(self.average, bucket.buffer())
        if self.places_gradients:  # the next ones; DDP moves its buckets behind the first backward
            products = self.shared.products if self.shared else {}
            for weight, place in zip(bucket.parameters(), bucket.gradients(), strict=True):
                give_place(weight, place, products.get(weight))
        done: Future[Tensor] = Future()
        done.set_result(bucket.buffer())
        return done

    def average(self, bucket: Tensor) -> None:
        """Begins to average it over the ranks, in its place; or this rank's part of it."""
        if self.rows:
            self.rows.sort(self.collective.begin_gather)
        if self.shared and self.shared.has(bucket):
            self.shared.scatter(bucket)
        else:
            (self.exchange if self.settled else self.collective).begin(bucket)

    def wait_for_gradients(self) -> None:
        """Raises DistBackendError where a collective failed."""
        rows = self.rows.gather(self.exchange.begin_gather) if self.rows else None
        self.exchange.wait()
        if self.shared:  # while rows travel
            self.shared.begin_rest()
        if self.rows and rows is not None:
            self.rows.add(rows())
        if self.shared:
            self.shared.end_rest()

    def shares(self, tensors: list[Tensor]) -> list[Tensor]:
        return tensors

    def total_norm(self, norm: Tensor) -> Tensor:
        return norm
