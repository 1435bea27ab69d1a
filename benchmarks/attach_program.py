"""Loop that `python -m benchmarks attach` times, bare and hooked; prints microseconds per step.

    python benchmarks/attach_program.py stubs DEVICE [HOOK FOLDER]
    python benchmarks/attach_program.py WIDTH STEPS DEVICE FILE [traceml]

The first prints a mean for each line of stdin, of steps that do nothing. The second writes the
median of a small model's steps to FILE; with `traceml` the steps are instrumented as TraceML's
guide says. A program of others, which imports nothing of this project: HOOK is the folder that
`profiling run -- COMMAND` would put onto PYTHONPATH.
"""

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from statistics import median

import torch
from torch import nn

CHUNK = 1000  # steps of stubs between two looks at the clock
CHUNK_S = 0.1  # of a mean
CHUNK_ON_GPU = 50
Instrument = Callable[[nn.Module], AbstractContextManager[object]]


class Nothing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class StubOptimizer(torch.optim.Optimizer):
    def __init__(self) -> None:
        super().__init__([nn.Parameter(torch.zeros(1))], {})

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        pass


def answer_with_means(device: str, hook: str | None = None, folder: str = "") -> None:
    """Print a mean for each line of stdin; with HOOK, of hooked steps.

    On a GPU the hook also notes the end of some steps in a CUDA event.
    """
    torch.zeros(1, device=device)
    torch.autograd.backward = lambda *tensors: None
    if hook:
        sys.path.insert(0, hook)
        patches = import_module("_profiling_attach.patches")
        settings = import_module("_profiling_attach.settings")
        patches.attach(settings.Settings(folder, ["stubs"], "none", None, 20, None, None))
    model, optimizer, x = Nothing(), StubOptimizer(), torch.zeros(8, 8)
    for _ in sys.stdin:
        print(mean_us(model, optimizer, x), flush=True)


def mean_us(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> float:
    """CPU time in microseconds of a step, over CHUNK_S."""
    begin_s, steps, passed_s = time.thread_time(), 0, 0.0
    while passed_s < CHUNK_S:
        for _ in range(CHUNK):
            model(x)
            torch.autograd.backward(x)
            optimizer.step()
            optimizer.zero_grad()
        steps += CHUNK
        passed_s = time.thread_time() - begin_s
    return passed_s / steps * 1e6


def model_us(width: int, steps: int, device: str, instrument: Instrument) -> float:
    """Median microseconds of a step: of each by itself on a CPU, of CHUNK_ON_GPU on a GPU."""
    torch.manual_seed(0)
    with torch.device(device):  # random weights of gigabytes take seconds on the CPU
        model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        x = torch.randn(32, width)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    wait: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else no_wait
    count = CHUNK_ON_GPU if device == "cuda" else 1
    times = []
    for _ in range(steps // count):
        wait()
        begin = time.perf_counter_ns()
        for _ in range(count):
            with instrument(model):
                (model(x) - x).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        wait()
        times.append((time.perf_counter_ns() - begin) / count / 1e3)
    return median(times[len(times) // 10 :])


def no_wait() -> None:
    pass


def by_traceml() -> Instrument:
    traceml = import_module("traceml_ai")
    traceml.init(mode="auto")
    instrument: Instrument = traceml.trace_step
    return instrument


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "stubs":
        answer_with_means(*sys.argv[2:])
    else:
        width, steps, device, file, *how = sys.argv[1:]
        instrument = by_traceml() if how else lambda model: nullcontext()
        Path(file).write_text(str(model_us(int(width), int(steps), device, instrument)))
