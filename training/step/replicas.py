"""A whole model on each rank, whose gradients DistributedDataParallel averages.

Buckets of gradients are sent as soon as they are complete, while backward computes more. DDP would
wait for them at the end of backward. Here that wait is a step of its own after it, so that it is a
phase in a timeline and can be timed.

DDP copies each gradient into its bucket, unless it lies there already. With kernels=fused those of
matrices do: kernels.linear writes them to the place that this module gives it.
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
from training.optimizers.shared_update import SharedUpdate
from training.ranks.all_reduce import Collective, Copies
from training.ranks.distributed import Ranks
from training.ranks.embedding_rows import EmbeddingRows
from training.ranks.graph_pieces import BetweenGraphs

# DDP times its own first iterations with events, which no CUDA graph can hold
ITERATIONS_BEFORE_CAPTURE = 11

# The model's buffers never change. Newer versions of PyTorch warn of the key's old name.
KEYS = signature(DistributedDataParallel).parameters
NEW, OLD = "forward_sync_buffers", "broadcast_buffers"
WITHOUT_BUFFERS = {NEW if NEW in KEYS else OLD: False}


class Replicas:
    """Keeps all of `model` on each rank; see training.step.layout.Layout.

    With CUDA graphs DDP is made in `stream`, where gradients are handed to it; it must be used in
    that stream until it is captured.
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
        # After the first backward DDP rebuilds its buckets in the order of the gradients. The ones
        # before that are not in memory that NCCL can copy from.
        self.buckets_final = False
        # Compiled code has already decided where its gradients lie.
        self.places_gradients = config.kernels == "fused" and not config.compile
        self.ddp.register_comm_hook(None, self.bucket_complete)

    @contextmanager
    def in_stream(self) -> Iterator[None]:
        """Runs the block in the stream of capture, if there is one; waits for the GPU on each side.

        It must enclose what is captured and what is launched before that.
        """
        if self.stream is None:
            yield
            return
        torch.cuda.synchronize(self.stream.device)
        with torch.cuda.stream(self.stream):
            yield
        torch.cuda.synchronize(self.stream.device)

    def begin_micro_step(self, last: bool) -> None:
        self.ddp.require_backward_grad_sync = last
        if not self.buckets_final:
            with self.exchange.memory():
                # DDP's own forward would do this, but in other memory.
                self.buckets_final = self.ddp.reducer._rebuild_buckets()

    def bucket_complete(self, state: object, bucket: dist.GradBucket) -> Future[Tensor]:
        """Starts to average a complete bucket; this is DDP's communication hook.

        The returned future is done, so that DDP waits for nothing. It is made without a device, so
        that it has no event, which would tie captured work to other work.
        """
        if self.shared and self.buckets_final:
            self.shared.register_bucket(bucket)
        self.between(self.average, bucket.buffer())
        # DDP moves its buckets after the first backward, so tell products each time where their
        # next gradients go.
        if self.places_gradients:
            products = self.shared.products if self.shared else {}
            for weight, place in zip(bucket.parameters(), bucket.gradients(), strict=True):
                give_place(weight, place, products.get(weight))
        done: Future[Tensor] = Future()
        done.set_result(bucket.buffer())
        return done

    def average(self, bucket: Tensor) -> None:
        """Starts to average `bucket` in place over the ranks, or this rank's part of it."""
        if self.rows:
            self.rows.sort(self.collective.begin_gather)
        if self.shared and self.shared.is_registered(bucket):
            self.shared.scatter(bucket)
        else:
            (self.exchange if self.buckets_final else self.collective).begin(bucket)

    def wait_for_gradients(self) -> None:
        """Waits for the averaged gradients. Raises DistBackendError if a collective failed."""
        rows = self.rows.gather(self.exchange.begin_gather) if self.rows else None
        self.exchange.wait()
        if self.shared:  # overlaps with the exchange of rows
            self.shared.begin_remaining()
        if self.rows and rows is not None:
            self.rows.add(rows())
        if self.shared:
            self.shared.finish_remaining()
