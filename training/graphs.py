"""Forward, backward and update as CUDA graphs: one launch each instead of hundreds.

They stay separate graphs so that every phase keeps a beginning and an end on the host, and each
can be ranged and timed. What is captured are the methods of training.step.Step.
"""

import gc
import warnings
from collections.abc import Callable
from itertools import zip_longest
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from training.between_graphs import BetweenGraphs, Work
from training.one_graph import CAN_KEEP, capture_graph, empty_graph, forget_streams, kernels_of
from training.optimizer import ClippedAdamW, set_learning_rate
from training.replicas import ITERATIONS_BEFORE_CAPTURE, Replicas
from training.step import Step

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE


class GraphedStep:
    """`step` must have been warmed up. x and y are (B, T): the shape of every later batch.

    The first micro-step of an iteration sets the gradients and the loss, the next ones add to
    them, and of several ranks the last one sends them: as many pairs of graphs, where an iteration
    has so many micro-steps. What is sent is not in the graphs: backward is cut where a bucket of
    gradients is complete. So PyTorch's watchdog and flight recorder see each collective, and the
    wait for them is a phase of its own.
    """

    def __init__(self, step: Step, x: Tensor, y: Tensor):
        self.step = step
        self.micro_steps = step.micro_steps
        self.batch = torch.stack((x, y))
        self.x, self.y = self.batch
        self.pool = torch.cuda.graph_pool_handle()
        self.replicas = step.layout if isinstance(step.layout, Replicas) else None
        if self.replicas:
            for _ in range(ITERATIONS_BEFORE_CAPTURE):
                step.try_micro_step(x, y)
        forget_streams()
        with step.layout.in_stream():
            materialise_state(step)
            last = self.micro_steps - 1
            kinds = {0, min(1, last), last if self.replicas else 0}
            self.micro_graphs = {kind: self.capture_micro_step(kind) for kind in sorted(kinds)}
            if isinstance(step.optimizer, ClippedAdamW):
                step.optimizer.locate_gradients()
            shared = step.layout.shared
            self.update_pieces = Pieces(self.pool, shared.between if shared else None)
            self.update_pieces.capture(step.clip_and_step)
        self.done = 0  # micro-steps of this iteration so far

    def capture_micro_step(self, number: int) -> tuple[torch.cuda.CUDAGraph, "Pieces"]:
        losses: list[Tensor] = []
        self.step.micro_step = number
        forward = self.captured(lambda: losses.append(self.step.forward(self.x, self.y)))
        pieces = Pieces(self.pool, self.replicas.between if self.replicas else None)
        pieces.capture(lambda: self.step.backward(losses.pop()))
        return forward, pieces

    def captured(self, work: Callable[[], object]) -> torch.cuda.CUDAGraph:
        return capture_graph(work, self.pool, self.replicas.stream if self.replicas else None)

    def kernels(self) -> list[str] | None:
        """Names of the kernels in a micro-step; None where this PyTorch cannot tell."""
        forward, backward = self.micro_graphs[0]
        return kernels_of(forward, *backward.graphs)

    @property
    def readings(self) -> dict[str, Tensor]:
        return self.step.readings

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        torch.stack((x, y), out=self.batch)  # one kernel
        self.graphs_of_micro_step()[0].replay()
        return self.step.loss

    def backward(self, loss: Tensor) -> None:
        """Of the forward before it; the graph knows its loss."""
        self.graphs_of_micro_step()[1].replay()
        self.done += 1

    def graphs_of_micro_step(self) -> tuple[torch.cuda.CUDAGraph, "Pieces"]:
        return self.micro_graphs.get(self.done) or self.micro_graphs[1]

    def average_gradients(self) -> None:
        self.step.average_gradients()

    def update(self, learning_rate: float) -> None:
        set_learning_rate(self.step.optimizer, learning_rate)
        self.update_pieces.replay()
        self.done = 0


def micro_step_kernels(step: Step, x: Tensor, y: Tensor) -> list[str] | None:
    """Names of the kernels that `step` launches for a micro-step, from a capture thrown away."""
    forget_streams()
    pool = torch.cuda.graph_pool_handle()
    graph = capture_graph(lambda: step.backward(step.forward(x, y)), pool)
    names = kernels_of(graph)
    step.discard()
    return names


class Pieces:
    """Graphs of a backward pass or of an update, cut where ranks send each other something."""

    def __init__(self, pool: "_POOL_HANDLE", between: BetweenGraphs | None):
        self.pool, self.between = pool, between
        self.graphs: list[torch.cuda.CUDAGraph] = []
        self.sent: list[Work] = []  # each behind the graph of its number

    def capture(self, work: Callable[[], object]) -> None:
        """In the current stream; all of `work` runs in this thread, and none of autograd's."""
        if self.between is None:
            self.graphs = [capture_graph(work, self.pool)]
            return
        torch.cuda.synchronize()
        gc.collect()  # what is freed within a capture would spoil it
        with (
            torch.autograd.set_multithreading_enabled(False),
            warnings.catch_warnings(action="ignore"),  # often nothing is behind the last bucket
            self.between.handed_to(self.cut),
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
        self.end()
        self.sent.append(send)
        self.begin()

    def replay(self) -> None:
        for graph, send in zip_longest(self.graphs, self.sent):
            graph.replay()
            if send is not None:
                send()


def materialise_state(step: Step) -> None:
    """Makes AdamW create its moments now: created inside a graph they would be reset by it.

    A step at learning rate 0 leaves the weights as they are; the moments it made are cleared.
    """
    optimizer = step.optimizer
    if isinstance(optimizer, ClippedAdamW):
        optimizer.rehearse()
        return
    if optimizer.state:
        return
    set_learning_rate(optimizer, 0.0)
    for parameter in step.parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    for state in optimizer.state.values():
        for tensor in state.values():
            tensor.zero_()
