"""Samples the GPUs from a thread beside the training, as long as `with GpuSampler(...)` lasts.

Called by training.gpu_metrics. The readings of a GPU are defined in profiling.recording.nvml. The
thread holds the interpreter for some ten microseconds a sample: NVML's calls release it. Metrics of
the process itself are counters (profiling.recording.process_meter), with GPUs or without.
"""

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import pynvml

from profiling.recording.nvml import ENERGY, Gpu
from profiling.recording.process_meter import ProcessMeter
from profiling.shared.metric_names import gpu_metric_name

log = logging.getLogger(__name__)

JOIN_S = 2.0  # longest wait for the thread: a driver may hang


@dataclass
class NoSampler(AbstractContextManager["NoSampler"]):
    """Stands in for a GpuSampler in a run whose GPUs are not sampled; `reason` says why."""

    reason: str
    process: ProcessMeter = field(default_factory=ProcessMeter)

    def __enter__(self) -> "NoSampler":
        self.process.start()
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def pause(self, phase: str) -> AbstractContextManager[None]:
        return self.process.pause(phase)

    def read(self, tokens_per_s: float | None) -> dict[str, float | None]:
        return self.process.read()

    def summary(self, tokens_per_s: float | None) -> dict[str, float | None]:
        return self.process.summary()


@dataclass
class Means:
    """Means of values by name, as sums and counts."""

    sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, value: float) -> None:
        self.sums[name] += value
        self.counts[name] += 1

    def mean(self, name: str) -> float | None:
        return self.sums[name] / self.counts[name] if name in self.counts else None


class Count(NamedTuple):
    """Reading of a GPU's energy counter at a time, and the energy and time of iterations so far."""

    joules: float
    at_s: float
    trained_j: float = 0.0
    trained_s: float = 0.0

    def advance(self, joules: float, at_s: float, trained: bool) -> "Count":
        """The next reading; what lies in between counts as iterations if `trained`."""
        trained_j, trained_s = trained * (joules - self.joules), trained * (at_s - self.at_s)
        return Count(joules, at_s, self.trained_j + trained_j, self.trained_s + trained_s)


@dataclass
class Meter:
    """A GPU's energy counter at the first sample, at the last row, and now."""

    first: Count
    row: Count
    now: Count


@dataclass
class GpuSampler:
    """Samples GPUs in a thread, and gives means over the time between two rows and over the run.

    `gpus` are the run's on this machine, the process's own first; its metrics are called
    `gpu/power_w`, those of the others `gpu1/power_w`, `gpu2/power_w`, ... `complete` says that the
    run has no others elsewhere: only then is its energy known.
    """

    gpus: list[Gpu]
    interval_ms: int
    complete: bool = True
    process: ProcessMeter = field(default_factory=ProcessMeter)
    breaks: int = 0  # starts and ends of pauses so far: odd while the training is paused
    # number of the GPU -> `breaks` at its last three samples
    last_breaks: dict[int, tuple[int, ...]] = field(default_factory=dict)
    names: dict[str, None] = field(default_factory=dict)  # metrics ever read, in order
    row_means: Means = field(default_factory=Means)  # since the last row
    run_means: Means = field(default_factory=Means)
    meters: dict[int, Meter] = field(default_factory=dict)  # by the number of the GPU
    lock: threading.Lock = field(default_factory=threading.Lock)
    stopping: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.reason = f"sampled every {self.interval_ms} ms"
        self.thread = threading.Thread(target=self.work, name="gpu-metrics", daemon=True)

    def __enter__(self) -> "GpuSampler":
        self.thread.start()
        self.process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.thread.join(JOIN_S)
        if not self.thread.is_alive():  # else it is inside NVML
            for gpu in self.gpus:
                gpu.close()
            pynvml.nvmlShutdown()

    @contextmanager
    def pause(self, phase: str) -> Iterator[None]:
        """Mark the block as no training iteration: its samples count only for the energy."""
        self.breaks += 1
        with self.process.pause(phase):
            yield
        self.breaks += 1

    def work(self) -> None:
        try:
            self.sample()
            while not self.stopping.wait(self.interval_ms / 1e3):
                self.sample()
            self.sample()  # the energy up to the end
        except Exception as error:  # training must not die of it
            log.warning("gpu_metrics: %s: %s; sampling ends here", type(error).__name__, error)

    def sample(self) -> None:
        for number, gpu in enumerate(self.gpus):
            breaks = self.breaks
            values = gpu.sample()
            at_s = time.monotonic()
            with self.lock:
                self.add(number, values, at_s, self.in_training(number, breaks))

    def in_training(self, number: int, breaks: int) -> bool:
        """Whether this sample of GPU `number` covers training alone; `breaks` is as it began.

        A sample covers the time since the one before, and the driver's counters are a sample
        behind: so two samples before it must belong to the same stretch of training.
        """
        last = self.last_breaks[number] = (*self.last_breaks.get(number, ()), breaks)[-3:]
        return breaks % 2 == 0 and last == 3 * (self.breaks,)

    def add(self, number: int, values: dict[str, float], at_s: float, trained: bool) -> None:
        joules = values.pop(ENERGY, None)
        if joules is not None:
            count = Count(joules, at_s)
            meter = self.meters.setdefault(number, Meter(count, count, count))
            meter.now = meter.now.advance(joules, at_s, trained)
        for key, value in values.items():
            name = gpu_metric_name(number, key)
            self.names[name] = None
            if trained:
                self.row_means.add(name, value)
                self.run_means.add(name, value)

    def read(self, tokens_per_s: float | None) -> dict[str, float | None]:
        """Metrics of a row: means of the samples since the last row, None where there were none.

        Energy is all that the counter added since the last row that had a new value. The driver
        renews it every 100 ms, so the energy of a row may be off by as much time, but the sum over
        rows is right. Energy per token is the power of the iterations, by that counter, over their
        speed.
        """
        with self.lock:
            means, self.row_means = self.row_means, Means()
            row = {name: means.mean(name) for name in self.names}
            power_w = self.power_w([(meter.row, meter.now) for meter in self.meters.values()])
            for number, meter in self.meters.items():
                counted_j = meter.now.joules - meter.row.joules
                row[gpu_metric_name(number, ENERGY)] = counted_j or None
                if counted_j:
                    meter.row = meter.now
        energy_per_token_j = ratio(power_w, tokens_per_s)
        return {**self.process.read(), **row, "perf/energy_per_token_j": energy_per_token_j}

    def summary(self, tokens_per_s: float | None) -> dict[str, float | None]:
        """Metrics of the run: means over its iterations; all its energy, evaluations included."""
        with self.lock:
            means = {name: self.run_means.mean(name) for name in self.names}
            spans = [(meter.first, meter.now) for meter in self.meters.values()]
        energy_j = sum(b.joules - a.joules for a, b in spans) if self.has_all_energy() else None
        return {
            **self.process.summary(),
            **means,
            "perf/energy_j": energy_j,
            "perf/energy_per_token_j": ratio(self.power_w(spans), tokens_per_s),
        }

    def has_all_energy(self) -> bool:
        """Whether the energy counters of all the run's GPUs were read, to the end."""
        counted = len(self.meters) == len(self.gpus) and not any(gpu.lost for gpu in self.gpus)
        return self.complete and counted

    def power_w(self, spans: list[tuple[Count, Count]]) -> float | None:
        """Power of all GPUs together while iterations ran, or None if it is not known of each."""
        unknown = any(a.trained_s == b.trained_s or a.joules == b.joules for a, b in spans)
        if unknown or not self.has_all_energy():
            return None
        return sum((b.trained_j - a.trained_j) / (b.trained_s - a.trained_s) for a, b in spans)


def ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None
