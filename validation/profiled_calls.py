"""Many calls of one kind in a row, timed: what `python -m validation profiler_cost` measures.

    python -m validation.profiled_calls FILE COUNT

writes the microseconds of one call of each kind to FILE, as JSON; profiler_cost starts it alone and
under nsys. A profiler that listens to cudaProfilerStart records the calls that are timed.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import torch
from torch.profiler import record_function

from cli.files import write_text
from profiling.shared.json_records import to_json

REPEATS = 5
SLOW = "cudaMalloc and cudaFree"
GRAPHS = {f"CUDA graphs of {nodes} kernels": nodes for nodes in (10, 100)}
OF_A_GPU = ("launches", "launching operators", "copies", "syncs", "NVTX ranges", *GRAPHS, SLOW)
FEWER = 50  # times fewer of graphs and of the slow kind, which may take a millisecond
Calls = Callable[[int], None]


def calls_of(kind: str) -> Calls:
    """A function that makes so many calls of the kind, and nothing else."""
    on_cpu = torch.ones(8)
    on_gpu = torch.ones(8, device="cuda") if torch.cuda.is_available() else on_cpu
    single, nothing = torch.zeros(1), [None]

    def operators(count: int) -> None:
        for _ in range(count):
            torch.add(on_cpu, on_cpu)

    def ranges(count: int) -> None:
        for _ in range(count):
            with record_function("range"):
                pass

    def frames(count: int) -> None:
        for _ in range(count):
            called(nothing)

    def allocations(count: int) -> None:
        for _ in range(count):
            torch.empty(8, device=on_gpu.device)

    def launches(count: int) -> None:
        for _ in range(count):
            torch.cuda._sleep(1)  # no operator, a kernel alone

    def launching_operators(count: int) -> None:
        for _ in range(count):
            on_gpu.add_(1)

    def copies(count: int) -> None:
        for _ in range(count):
            on_gpu[:1].copy_(single, non_blocking=True)

    def syncs(count: int) -> None:
        for _ in range(count):
            torch.cuda.synchronize()

    def device_memory(count: int) -> None:
        for _ in range(count):
            torch.empty(64 << 20, device="cuda")
            torch.cuda.empty_cache()

    def nvtx_ranges(count: int) -> None:
        for _ in range(count):
            torch.cuda.nvtx.range_push("range")
            torch.cuda.nvtx.range_pop()

    made = {
        "operators": operators,
        "ranges": ranges,
        "frames": frames,
        "allocations": allocations,
        "launches": launches,
        "launching operators": launching_operators,
        "copies": copies,
        "syncs": syncs,
        "NVTX ranges": nvtx_ranges,
        SLOW: device_memory,
    }
    return replays(on_gpu, GRAPHS[kind]) if kind in GRAPHS else made[kind]


def replays(on_gpu: torch.Tensor, kernels: int) -> Calls:
    """A function that replays a CUDA graph of so many kernels so many times."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(kernels):
            on_gpu.add_(1)

    def replay(count: int) -> None:
        for _ in range(count):
            graph.replay()

    return replay


def called(nothing: object) -> object:
    return nothing


def kinds() -> list[str]:
    """The kinds of calls that this machine can make."""
    on_cpu = ["operators", "ranges", "frames", "allocations"]
    return [*on_cpu, *OF_A_GPU] if torch.cuda.is_available() else on_cpu


def call_us(kind: str, count: int) -> float:
    """Microseconds of the host for one call, the median of some repeats of `count` calls.

    The GPU has finished before each repeat begins.
    """
    calls, taken = calls_of(kind), []
    count = max(count // FEWER, 1) if kind == SLOW or kind in GRAPHS else count
    calls(count // 10)  # the profiler's buffers, and what is loaded at the first call
    for _ in range(REPEATS):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        start = time.perf_counter()
        calls(count)
        taken.append(time.perf_counter() - start)
    return median(taken) / count * 1e6


@contextmanager
def captured() -> Iterator[None]:
    """Open the range that nsys records, where there is a GPU."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStart()
    yield
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()


if __name__ == "__main__":
    file, times = Path(sys.argv[1]), {}
    with captured():
        for name in kinds():
            times[name] = call_us(name, int(sys.argv[2]))
    write_text(file, to_json(times))
