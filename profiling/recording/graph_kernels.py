"""Names of the kernels inside a captured CUDA graph, found without a profiler.

CUPTI has one subscriber at a time; this asks the driver instead, so it works under nsys as well.
"""

import ctypes
from functools import lru_cache

import torch

KERNEL_NODE = 0  # CU_GRAPH_NODE_TYPE_KERNEL


class KernelNodeParams(ctypes.Structure):
    """The struct CUDA_KERNEL_NODE_PARAMS_v2 of cuda.h."""

    _fields_ = [
        ("func", ctypes.c_void_p),
        ("grid_and_block", ctypes.c_uint * 6),
        ("shared_memory_bytes", ctypes.c_uint),
        ("kernel_params", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kern", ctypes.c_void_p),
        ("ctx", ctypes.c_void_p),
    ]


@lru_cache
def driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def call(function: str, *arguments: object) -> None:
    status = getattr(driver(), function)(*arguments)
    if status != 0:
        raise OSError(f"{function} returned {status}")


def kernel_names(graph: torch.cuda.CUDAGraph) -> list[str]:
    """Mangled names of the kernels of a graph that was made with keep_graph=True.

    Raises OSError or AttributeError if the driver is older than CUDA 12.3.
    """
    raw = ctypes.c_void_p(graph.raw_cuda_graph())
    count = ctypes.c_size_t()
    call("cuGraphGetNodes", raw, None, ctypes.byref(count))
    if count.value == 0:  # the driver refuses to list none
        return []
    nodes = (ctypes.c_void_p * count.value)()
    call("cuGraphGetNodes", raw, nodes, ctypes.byref(count))
    return [kernel_name(ctypes.c_void_p(node)) for node in nodes if node and is_kernel(node)]


def is_kernel(node: int) -> bool:
    kind = ctypes.c_int()
    call("cuGraphNodeGetType", ctypes.c_void_p(node), ctypes.byref(kind))
    return kind.value == KERNEL_NODE


def kernel_name(node: ctypes.c_void_p) -> str:
    params = KernelNodeParams()
    call("cuGraphKernelNodeGetParams_v2", node, ctypes.byref(params))
    name = ctypes.c_char_p()
    if params.func:
        call("cuFuncGetName", ctypes.byref(name), ctypes.c_void_p(params.func))
    else:
        call("cuKernelGetName", ctypes.byref(name), ctypes.c_void_p(params.kern))
    return (name.value or b"").decode()
