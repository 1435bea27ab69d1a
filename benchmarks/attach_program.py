"""Loop that `python -m benchmarks attach` times, bare and hooked; prints microseconds per step.

    python benchmarks/attach_program.py stubs HOOK FOLDER    both, in one process: bare, then hooked
    python benchmarks/attach_program.py WIDTH STEPS          the median of a small model's steps

A program of others, which imports nothing of this project: HOOK is the folder that
`profiling run -- COMMAND` would put onto PYTHONPATH.
"""

import sys
import time
from collections.abc import Callable
from importlib import import_module
from statistics import median

import torch
from torch import nn

CHUNK, CHUNKS = 1000, 60  # steps of stubs between two readings of the clock, and readings


class Nothing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class StubOptimizer(torch.optim.Optimizer):
    def __init__(self) -> None:
        super().__init__([nn.Parameter(torch.zeros(1))], {})

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        pass


def stubs_us() -> float:
    """Microseconds of a step that does nothing; the least of CHUNKS means over CHUNK steps.

    The least, because what the machine's other work adds is none of the hook's.
    """
    model, optimizer, x = Nothing(), StubOptimizer(), torch.zeros(8, 8)
    readings = []
    for _ in range(CHUNKS):
        begin = time.perf_counter_ns()
        for _ in range(CHUNK):
            model(x)
            torch.autograd.backward(x)
            optimizer.step()
            optimizer.zero_grad()
        readings.append((time.perf_counter_ns() - begin) / CHUNK / 1e3)
    return min(readings)


def bare_and_hooked_stubs(hook: str, folder: str) -> None:
    torch.autograd.backward = lambda *tensors: None
    bare = stubs_us()
    sys.path.insert(0, hook)
    patches = import_module("_profiling_attach.patches")
    settings = import_module("_profiling_attach.settings")
    patches.attach(settings.Settings(folder, ["stubs"], "none", None, 20, None, None))
    print(bare, stubs_us())


def model_us(width: int, steps: int) -> float:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
    optimizer, x = torch.optim.SGD(model.parameters(), lr=1e-4), torch.randn(32, width)
    times = []
    for _ in range(steps):
        begin = time.perf_counter_ns()
        (model(x) - x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append((time.perf_counter_ns() - begin) / 1e3)
    return median(times[steps // 10 :])


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "stubs":
        bare_and_hooked_stubs(*sys.argv[2:])
    else:
        print(model_us(*map(int, sys.argv[1:])))
