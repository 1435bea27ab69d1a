"""A CUDA graph of some work, and the kernels in it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from profiling.capture.graph_kernels import kernel_names

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE

CAN_KEEP = hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph")  # PyTorch 2.8 and newer


def kernels_of(*graphs: torch.cuda.CUDAGraph) -> list[str] | None:
    return [name for graph in graphs for name in kernel_names(graph)] if CAN_KEEP else None


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
