"""A CUDA graph of some work, and the kernels in it."""

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from profiling.capture import dynamo
from profiling.capture.graph_kernels import kernel_names

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE

CAN_KEEP = hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph")  # PyTorch 2.8 and newer


def kernels_of(*graphs: torch.cuda.CUDAGraph) -> list[str] | None:
    return [name for graph in graphs for name in kernel_names(graph)] if CAN_KEEP else None


def forget_streams() -> None:
    """Frees what compiled functions left of the warm-up, before the first capture behind it.

    They leave autograd's nodes in cycles, and from PyTorch 2.13 on a node that remembers the
    stream of the warm-up spoils the capture.
    """
    if dynamo.compile_counts().graphs:
        gc.collect()


def captured(
    work: Callable[[], object],
    pool: "_POOL_HANDLE | None" = None,
    stream: torch.cuda.Stream | None = None,
) -> torch.cuda.CUDAGraph:
    """A graph of what `work` launches, kept so that its kernels can be named. `pool` None: one of
    its own."""
    graph = empty_graph()
    with torch.cuda.graph(graph, pool=pool, stream=stream):
        work()
    if CAN_KEEP:
        graph.instantiate()
    return graph


def empty_graph() -> torch.cuda.CUDAGraph:
    return torch.cuda.CUDAGraph(**({"keep_graph": True} if CAN_KEEP else {}))
