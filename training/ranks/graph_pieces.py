"""Captures a piece of work as a CUDA graph, names its kernels, and runs between two pieces what has
to stay out of graphs, such as the collectives of a backward pass.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import torch

from profiling.recording import dynamo
from profiling.recording.graph_kernels import kernel_names

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE

CAN_KEEP = hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph")  # PyTorch 2.8 and newer


def kernels_of(*graphs: torch.cuda.CUDAGraph) -> list[str] | None:
    """Names of the kernels in `graphs`, or None where PyTorch is too old to tell."""
    return [name for graph in graphs for name in kernel_names(graph)] if CAN_KEEP else None


def forget_streams() -> None:
    """Frees autograd nodes that compiled functions left from the warm-up; call before a capture.

    They lie in reference cycles, and from PyTorch 2.13 on a node that remembers the stream of the
    warm-up spoils the capture.
    """
    if dynamo.compile_counts().graphs:
        gc.collect()


def capture_graph(
    work: Callable[[], object],
    pool: "_POOL_HANDLE | None" = None,
    stream: torch.cuda.Stream | None = None,
) -> torch.cuda.CUDAGraph:
    """A CUDA graph of what `work` launches, kept so that its kernels can be named.

    Without `pool` the graph has a memory pool of its own.
    """
    graph = empty_graph()
    with torch.cuda.graph(graph, pool=pool, stream=stream):
        work()
    if CAN_KEEP:
        graph.instantiate()
    return graph


def empty_graph() -> torch.cuda.CUDAGraph:
    return torch.cuda.CUDAGraph(**({"keep_graph": True} if CAN_KEEP else {}))


Work = Callable[[], object]


class BetweenGraphs:
    """Place in a backward pass or update where a capture is interrupted for other work.

    Code that may be captured writes `between(f, a)`. Normally this calls f(a) at once. While a
    capture is under way, f(a) must be launched at each replay and not become part of a graph: so it
    is handed to the function that captures, which ends one graph before it and begins the next one
    after it.
    """

    def __init__(self) -> None:
        self.run: Callable[[Work], object] = run_now

    def __call__(self, work: Callable[..., object], *arguments: object) -> None:
        self.run(partial(work, *arguments))

    @contextmanager
    def hand_to(self, run: Callable[[Work], object]) -> Iterator[None]:
        """Hands the work to `run` within the block, as a function without arguments."""
        self.run = run
        try:
            yield
        finally:
            self.run = run_now


def run_now(work: Work) -> None:
    work()
