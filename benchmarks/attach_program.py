"""Loop that `python -m benchmarks attach` times, bare and hooked; prints microseconds per step.

    python benchmarks/attach_program.py stubs DEVICE HOOK FOLDER
    python benchmarks/attach_program.py WIDTH STEPS DEVICE FILE [traceml]

The first forks a bare and a hooked process, whose steps do nothing, and prints the mean of one of
them for each line of stdin, `bare` or `hooked`. The second writes the median of a small model's
steps to FILE; with `traceml` the steps are instrumented as TraceML's guide says. A program of
others, which imports nothing of this project: HOOK is the folder that `profiling run -- COMMAND`
would put onto PYTHONPATH.
"""

import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import torch
from torch import nn

CHUNK = 100  # steps of stubs between two looks at the clock
TURN_S = 0.02  # of a mean: what slows the core down lasts longer, and so affects both processes
WARM_UP_S = 1.0  # until the hook times as few steps as in a long run
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


def answer_with_means(device: str, hook: str, folder: str) -> None:
    """Print a mean for each line of stdin, of the process that it names.

    Both are forked from this one, so that their memory is laid out alike.
    """
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # after others CUDA fails in a forked process
    import_module("torch._dynamo")  # each would import it with its first zero_grad()
    asked = {"bare": forked(device, None, folder), "hooked": forked(device, hook, folder)}
    for line in sys.stdin:
        process = asked[line.strip()]
        try:
            process.send(None)
            print(process.recv(), flush=True)
        except (EOFError, OSError):
            sys.exit(1)  # it has ended, and said why


def forked(device: str, hook: str | None, folder: str) -> Connection:
    """Connection to a new process, which answers each message by a mean."""
    ours, theirs = multiprocessing.Pipe()

    def begin() -> None:
        ours.close()  # else it would never see that nobody asks any more
        answer(theirs, device, hook, folder)

    multiprocessing.get_context("fork").Process(target=begin, daemon=True).start()
    theirs.close()
    return ours


def answer(asked: Connection, device: str, hook: str | None, folder: str) -> None:
    """Answer with means of steps, which with `hook` are hooked, until nobody asks any more.

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
    mean_us(model, optimizer, x, WARM_UP_S)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # all on one core
    with suppress(EOFError, OSError):
        while True:
            asked.recv()
            asked.send(mean_us(model, optimizer, x, TURN_S))
    os._exit(0)  # without the hook's last files, whose folder may be gone


def mean_us(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, least_s: float
) -> float:
    """CPU time in microseconds of a step, over so many seconds."""
    begin_s, steps, passed_s = time.thread_time(), 0, 0.0
    while passed_s < least_s:
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
