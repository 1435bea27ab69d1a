"""A program's own process: runs it, and measures or captures its steps as it is told.

Commands are lines; each but `end` is answered by a line with milliseconds a step.

    time STEPS SETTLE       after SETTLE steps, until the device has done the work of the last
    nsys STEPS              in a range of the CUDA profiler
    torch STEPS FILE        by torch.profiler, with its defaults, into FILE
    jax STEPS FILE          by jax.profiler
    end

A program never ends by itself: it calls `mark` after each step, which raises `Finished` at the end.
"""

import ctypes
import gzip
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from validation.framework_programs.parts import SMALL

WARM_UP = 6  # steps before the first command
Steps = Generator[None, None, float]  # a step of the program at each yield; returns ms a step


class Finished(Exception):
    """End of the measurement, raised out of a program."""


@dataclass
class Device:
    """Calls that wait for a framework and capture it; a try on the CPU has no CUDA profiler."""

    wait: Callable[[object], object]  # with the last step's result
    profiler: Callable[[], AbstractContextManager[object]] = nullcontext


def device_of(profiler: str | None) -> Device:
    """The device of the framework with this profiler of its own; CuPy is the one without."""
    on_gpu = not os.environ.get(SMALL)
    if profiler == "jax.profiler":
        import jax

        return Device(jax.block_until_ready, cuda_profiler if on_gpu else nullcontext)
    if profiler is None:
        import cupy
        import cupyx.profiler

        return Device(lambda _: cupy.cuda.Device().synchronize(), cupyx.profiler.profile)
    import torch

    if not on_gpu:
        return Device(lambda _: None)
    return Device(lambda _: torch.cuda.synchronize(), torch.cuda.profiler.profile)


@contextmanager
def cuda_profiler() -> Iterator[None]:
    """Range of the CUDA profiler by the runtime in NVIDIA's packages, which JAX has no call for."""
    folders = [Path(folder) for folder in import_module("nvidia").__path__]
    found = [file for folder in folders for file in folder.glob("*/lib/libcudart.so.*")]
    runtime = ctypes.CDLL(str(found[0]))
    runtime.cudaProfilerStart()
    try:
        yield
    finally:
        runtime.cudaProfilerStop()


class Session:
    """Commands carried out between a program's steps: it calls `mark` after each."""

    def __init__(
        self, device: Device, commands: Iterable[str], answer: Callable[[str], object]
    ) -> None:
        self.device, self.commands, self.answer = device, commands, answer
        self.result: object = None
        self.conducted = self.conduct()
        next(self.conducted)

    def mark(self, result: object = None) -> None:
        """Note that a step was launched. Raises `Finished` after the last command."""
        self.result = result
        if next(self.conducted, self) is self:
            raise Finished

    def conduct(self) -> Iterator[None]:
        """Carry out the commands; the program runs a step at each `yield`."""
        yield from (None for _ in range(WARM_UP))
        self.wait()
        self.answer("ready")
        for line in self.commands:
            task, *words = line.split()
            if task == "end":
                return
            does: dict[str, Callable[..., Steps]] = {
                "time": self.time,
                "nsys": self.nsys,
                "torch": self.torch,
                "jax": self.jax,
            }
            ms = yield from does[task](int(words[0]), *words[1:])
            self.answer(f"{ms:.6f}")

    def wait(self) -> None:
        self.device.wait(self.result)

    def run(self, steps: int) -> Steps:
        """Run the steps until the device has done them, and return their mean time in ms."""
        self.wait()
        start = time.perf_counter()
        yield from (None for _ in range(steps))
        self.wait()
        return 1000 * (time.perf_counter() - start) / steps

    def time(self, steps: int, settle: str) -> Steps:
        yield from (None for _ in range(int(settle)))
        return (yield from self.run(steps))

    def nsys(self, steps: int) -> Steps:
        with self.device.profiler():
            return (yield from self.run(steps))

    def jax(self, steps: int, file: str) -> Steps:
        import jax

        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                ms = yield from self.run(steps)
            (trace,) = Path(folder).rglob("*.trace.json.gz")
            move_whole(trace, file)
        return ms

    def torch(self, steps: int, file: str) -> Steps:
        """Capture the steps after one that the profiler warms up in.

        Their time is without the first, which holds the profiler's start, and is taken in the
        GPU's own queue, so that nothing waits in the capture.
        """
        import torch

        partial = f"{file}.partial.json"
        ends = []
        with torch.profiler.profile(
            schedule=torch.profiler.schedule(wait=0, warmup=1, active=steps, repeat=1),
            on_trace_ready=lambda profiler: profiler.export_chrome_trace(partial),
        ) as profiler:
            yield
            profiler.step()
            for number in range(steps):
                yield
                if number in (0, steps - 1):
                    ends.append(Moment(torch.cuda.is_available()))
                profiler.step()
        move_whole(compressed(Path(partial)), file)
        return ends[0].ms_until(ends[1]) / (steps - 1)


class Moment:
    """A moment in the GPU's queue, or on the host where there is no GPU."""

    def __init__(self, on_gpu: bool) -> None:
        import torch

        self.event = torch.cuda.Event(enable_timing=True) if on_gpu else None
        if self.event:
            self.event.record()
        self.at_s = time.perf_counter()

    def ms_until(self, later: "Moment") -> float:
        if self.event and later.event:
            ms: float = self.event.elapsed_time(later.event)
            return ms
        return 1000 * (later.at_s - self.at_s)


def compressed(trace: Path) -> Path:
    """The trace in a .gz file instead; torch itself takes ten times as long, line by line."""
    made = trace.with_suffix(".gz")
    with open(trace, "rb") as source, gzip.open(made, "wb", compresslevel=6) as target:
        shutil.copyfileobj(source, target, 1 << 20)
    trace.unlink()
    return made


def move_whole(made: Path, file: str) -> None:
    """Give a finished trace its name, under which there is never half of one."""
    beside = f"{file}.moved"
    shutil.move(made, beside)
    os.replace(beside, file)
