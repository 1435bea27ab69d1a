"""Forward, backward and update as CUDA graphs: one launch each instead of hundreds.

They stay separate graphs so that every phase keeps a beginning and an end on the host, and each
can be ranged and timed. What is captured are the methods of training.step.Step.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from profiling.capture.graph_kernels import kernel_names
from training.optimizer import ClippedAdamW, set_learning_rate
from training.step import Step

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE

CAN_KEEP = hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph")  # PyTorch 2.8 and newer


class GraphedStep:
    """`step` must have been warmed up. x and y are (B, T): the shape of every later batch.

    The first micro-step of an iteration sets the gradients and the loss, the next ones add to
    them: two pairs of graphs, the second only with gradient accumulation.
    """

    def __init__(self, step: Step, x: Tensor, y: Tensor):
        self.step = step
        self.micro_steps = step.micro_steps
        self.x, self.y = x.clone(), y.clone()
        self.pool = torch.cuda.graph_pool_handle()
        materialise_state(step)
        self.micro_graphs = [self.capture_micro_step() for _ in range(min(self.micro_steps, 2))]
        if isinstance(step.optimizer, ClippedAdamW):
            step.optimizer.locate_gradients()
        self.update_graph = captured(step.clip_and_step, self.pool)
        self.done = 0  # micro-steps of this iteration so far

    def capture_micro_step(self) -> tuple[torch.cuda.CUDAGraph, torch.cuda.CUDAGraph]:
        losses: list[Tensor] = []
        forward = captured(lambda: losses.append(self.step.forward(self.x, self.y)), self.pool)
        backward = captured(lambda: self.step.backward(losses.pop()), self.pool)
        return forward, backward

    def kernels(self) -> list[str] | None:
        """Names of the kernels in a micro-step; None where this PyTorch cannot tell."""
        forward, backward = self.micro_graphs[0]
        return kernels_of(forward, backward)

    @property
    def readings(self) -> dict[str, Tensor]:
        return self.step.readings

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        self.x.copy_(x)
        self.y.copy_(y)
        self.micro_graphs[min(self.done, 1)][0].replay()
        return self.step.loss

    def backward(self, loss: Tensor) -> None:
        """Of the forward before it; the graph knows its loss."""
        self.micro_graphs[min(self.done, 1)][1].replay()
        self.done += 1

    def average_gradients(self) -> None:
        self.step.average_gradients()

    def update(self, learning_rate: float) -> None:
        set_learning_rate(self.step.optimizer, learning_rate)
        self.update_graph.replay()
        self.done = 0


def micro_step_kernels(step: Step, x: Tensor, y: Tensor) -> list[str] | None:
    """Names of the kernels that `step` launches for a micro-step, from a capture thrown away."""
    pool = torch.cuda.graph_pool_handle()
    graph = captured(lambda: step.backward(step.forward(x, y)), pool)
    names = kernels_of(graph)
    step.discard()
    return names


def kernels_of(*graphs: torch.cuda.CUDAGraph) -> list[str] | None:
    return [name for graph in graphs for name in kernel_names(graph)] if CAN_KEEP else None


def captured(work: Callable[[], object], pool: "_POOL_HANDLE") -> torch.cuda.CUDAGraph:
    """A graph of what `work` launches, kept so that its kernels can be named."""
    graph = torch.cuda.CUDAGraph(**({"keep_graph": True} if CAN_KEEP else {}))
    with torch.cuda.graph(graph, pool=pool):
        work()
    if CAN_KEEP:
        graph.instantiate()
    return graph


def materialise_state(step: Step) -> None:
    """Makes AdamW create its moments now: created inside a graph they would be reset by it.

    A step at learning rate 0 leaves the weights as they are; the moments it made are cleared.
    """
    optimizer = step.optimizer
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
