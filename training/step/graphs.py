"""Runs forward, backward and update as CUDA graphs: one launch each instead of hundreds.

They are separate graphs so that every phase has a beginning and an end on the host, and can be
timed and marked with a range. The methods of training.step.step.Step are captured.
"""

import gc
import warnings
from collections.abc import Callable
from itertools import zip_longest
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from training.optimizers.optimizer import set_learning_rate
from training.ranks.graph_pieces import (
    CAN_KEEP,
    BetweenGraphs,
    Work,
    capture_graph,
    empty_graph,
    forget_streams,
    kernels_of,
)
from training.step.replicas import ITERATIONS_BEFORE_CAPTURE, Replicas
from training.step.step import Step

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE


class GraphedStep:
    """Replays a Step's forward, backward and update as CUDA graphs, with the same methods.

    `step` must have been warmed up. x and y (B, T) have the shape of every later batch.

    Micro-steps of an iteration differ: the first one sets the gradients and the loss, the next ones
    add to them, and with several ranks the last one sends them. Each kind that an iteration has is
    captured as a graph of its forward and graphs of its backward pass. Collectives are not in the
    graphs: backward is cut where a bucket of gradients is complete. So PyTorch's watchdog and
    flight recorder see each collective, and the wait for them is a phase of its own.
    """

    def __init__(self, step: Step, x: Tensor, y: Tensor):
        self.step = step
        self.micro_steps = step.micro_steps
        # A graph reads its inputs from fixed addresses, so each batch is copied into this tensor.
        self.batch = torch.stack((x, y))
        self.x, self.y = self.batch
        # The graphs share one memory pool: backward reads what forward has left there, and no two
        # graphs run at the same time.
        self.pool = torch.cuda.graph_pool_handle()
        self.replicas = step.layout if isinstance(step.layout, Replicas) else None
        if self.replicas:
            # DistributedDataParallel times its first iterations with events, which no graph can
            # hold, and rebuilds its buckets after the first backward pass, which moves gradients.
            for _ in range(ITERATIONS_BEFORE_CAPTURE):
                step.try_micro_step(x, y)
        forget_streams()
        with step.layout.in_stream():
            step.optimizer.rehearse()
            last = self.micro_steps - 1
            # Numbers of the micro-steps that stand for a kind: the first, the second for all that
            # only add, and with several ranks the last. In short iterations some of them coincide.
            kinds = {0, min(1, last), last if self.replicas else 0}
            self.micro_graphs = {kind: self.capture_micro_step(kind) for kind in sorted(kinds)}
            # Our own optimizers' kernels read the gradients' addresses from a table. The captures
            # have allocated the gradients, and the next one cannot copy from the host, so the table
            # is filled here.
            step.optimizer.locate_gradients()
            shared = step.layout.shared
            self.update_pieces = Pieces(self.pool, shared.between if shared else None)
            self.update_pieces.capture(step.clip_and_step)
        self.done = 0  # number of micro-steps of this iteration so far

    def capture_micro_step(self, number: int) -> tuple[torch.cuda.CUDAGraph, "Pieces"]:
        """Captures the forward and the backward pass of micro-step `number` of an iteration."""
        losses: list[Tensor] = []
        self.step.micro_step = number
        forward = self.capture_graph(lambda: losses.append(self.step.forward(self.x, self.y)))
        pieces = Pieces(self.pool, self.replicas.between if self.replicas else None)
        pieces.capture(lambda: self.step.backward(losses.pop()))
        return forward, pieces

    def capture_graph(self, work: Callable[[], object]) -> torch.cuda.CUDAGraph:
        return capture_graph(work, self.pool, self.replicas.stream if self.replicas else None)

    def kernels(self) -> list[str] | None:
        """Names of the kernels in a micro-step; None if this PyTorch cannot tell."""
        forward, backward = self.micro_graphs[0]
        return kernels_of(forward, *backward.graphs)

    @property
    def readings(self) -> dict[str, Tensor]:
        return self.step.readings

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        torch.stack((x, y), out=self.batch)  # one kernel copies both
        self.graphs_of_micro_step()[0].replay()
        return self.step.loss

    def backward(self, loss: Tensor) -> None:
        """Replays the backward pass of the last `forward`, whose loss the graph has by itself."""
        self.graphs_of_micro_step()[1].replay()
        self.done += 1

    def graphs_of_micro_step(self) -> tuple[torch.cuda.CUDAGraph, "Pieces"]:
        """The forward and backward graphs of the current micro-step, by its kind."""
        return self.micro_graphs.get(self.done) or self.micro_graphs[1]

    def average_gradients(self) -> None:
        self.step.average_gradients()

    def update(self, learning_rate: float) -> None:
        set_learning_rate(self.step.optimizer, learning_rate)
        self.update_pieces.replay()
        self.done = 0


def micro_step_kernels(step: Step, x: Tensor, y: Tensor) -> list[str] | None:
    """Names of the kernels that `step` launches for a micro-step; None if PyTorch cannot tell.

    They are read from a capture that is thrown away.
    """
    forget_streams()
    pool = torch.cuda.graph_pool_handle()
    graph = capture_graph(lambda: step.backward(step.forward(x, y)), pool)
    names = kernels_of(graph)
    step.discard()
    # The pool is freed with all that lies in it: the graph, and cuBLAS's workspaces of the capture.
    del graph
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    return names


class Pieces:
    """Graphs of a backward pass or an update, cut where the ranks send each other something.

    Without `between` nothing is sent, and there is one graph.
    """

    def __init__(self, pool: "_POOL_HANDLE", between: BetweenGraphs | None):
        self.pool, self.between = pool, between
        self.graphs: list[torch.cuda.CUDAGraph] = []
        self.sends: list[Work] = []  # the one at index i is launched after graph i

    def capture(self, work: Callable[[], object]) -> None:
        """Captures `work` in the current stream, with all of it in this thread.

        Autograd normally runs a backward pass in a thread of its own. But a capture has to end in
        the thread that began it, and `cut`, called within the backward pass, ends and begins one.
        """
        if self.between is None:
            self.graphs = [capture_graph(work, self.pool)]
            return
        torch.cuda.synchronize()
        gc.collect()  # memory that is freed during a capture would spoil it
        with (
            torch.autograd.set_multithreading_enabled(False),
            warnings.catch_warnings(action="ignore"),  # of an empty graph, as after the last bucket
            self.between.hand_to(self.cut),
        ):
            self.begin()
            work()
            self.end()

    def begin(self) -> None:
        self.graphs.append(empty_graph())
        self.graphs[-1].capture_begin(pool=self.pool)

    def end(self) -> None:
        self.graphs[-1].capture_end()
        if CAN_KEEP:
            self.graphs[-1].instantiate()

    def cut(self, send: Work) -> None:
        """Ends the current graph, notes `send` to be launched after it, and begins the next."""
        self.end()
        self.sends.append(send)
        self.begin()

    def replay(self) -> None:
        """Launches the graphs, and what is sent after each of them."""
        for graph, send in zip_longest(self.graphs, self.sends):
            graph.replay()
            if send is not None:
                send()
