"""Samples the GPUs from a thread beside the training, as long as `with GpuSampler(...)` lasts.

Called by training.gpu_metrics. What is asked of a GPU stands in profiling.capture.nvml. The thread
holds the interpreter for some ten microseconds a sample: NVML's calls release it. What is told of
the process itself is a counter (profiling.capture.process_meter), GPUs or not.
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

from profiling.capture.nvml import ENERGY, Gpu
from profiling.capture.process_meter import ProcessMeter
from profiling.metric_names import gpu_metric_name

log = logging.getLogger(__name__)

JOIN_S = 2.0  # a driver that hangs is not waited for any longer


@dataclass
class NoSampler(AbstractContextManager["NoSampler"]):
    """The same surface for a run whose GPUs are not sampled; `reason` says why."""

    reason: str
    process: ProcessMeter = field(default_factory=ProcessMeter)

    def __enter__(self) -> "NoSampler":
        self.process.start()
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def paused(self, phase: str) -> AbstractContextManager[None]:
        return self.process.paused(phase)

    def read(self, tokens_per_s: float | None) -> dict[str, float | None]:
        return self.process.read()

    def summary(self, tokens_per_s: float | None) -> dict[str, float | None]:
        return self.process.summary()


@dataclass
class Means:
    """Sums and counts by name."""

    sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, value: float) -> None:
        self.sums[name] += value
        self.counts[name] += 1

    def of(self, name: str) -> float | None:
        return self.sums[name] / self.counts[name] if name in self.counts else None


class Count(NamedTuple):
    """What a GPU's energy counter said at a time, and its part while iterations ran."""

    joules: float
    at_s: float
    trained_j: float = 0.0
    trained_s: float = 0.0

    def then(self, joules: float, at_s: float, trained: bool) -> "Count":
        trained_j, trained_s = trained * (joules - self.joules), trained * (at_s - self.at_s)
        return Count(joules, at_s, self.trained_j + trained_j, self.trained_s + trained_s)


@dataclass
class Meter:
    """A GPU's energy counter: at the first sample, at the last row's, now."""

    first: Count
    row: Count
    now: Count


@dataclass
class GpuSampler:
    """Means over the time between two rows, and over the run.

    `gpus` are the run's on this machine, the process's own first; its metrics are called
    `gpu/power_w`, those of the others `gpu1/power_w`, `gpu2/power_w`, ... `complete` says that the
    run has no others elsewhere: only then is its energy known.
    """

    gpus: list[Gpu]
    interval_ms: int
    complete: bool = True
    process: ProcessMeter = field(default_factory=ProcessMeter)
    breaks: int = 0  # odd while the training is interrupted
    # by the number of the GPU
    seen: dict[int, tuple[int, ...]] = field(default_factory=dict)  # breaks at its last samples
    names: dict[str, None] = field(default_factory=dict)  # of all that was ever read, in order
    since_row: Means = field(default_factory=Means)
    of_run: Means = field(default_factory=Means)
    meters: dict[int, Meter] = field(default_factory=dict)
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
    def paused(self, phase: str) -> Iterator[None]:
        """Around what is no training iteration: its samples count for the energy alone."""
        self.breaks += 1
        with self.process.paused(phase):
            yield
        self.breaks += 1

    def work(self) -> None:
        try:
            self.sample()
            while not self.stopping.wait(self.interval_ms / 1e3):
                self.sample()
            self.sample()  # the energy up to the end
        except Exception as error:  # training is not to die of it
            log.warning("gpu_metrics: %s: %s; no more of them", type(error).__name__, error)

    def sample(self) -> None:
        for number, gpu in enumerate(self.gpus):
            breaks = self.breaks
            values = gpu.sample()
            at_s = time.monotonic()
            with self.lock:
                self.add(number, values, at_s, self.in_training(number, breaks))

    def in_training(self, number: int, breaks: int) -> bool:
        """Whether what this sample tells is of training alone.

        A sample tells of the time since the one before, and the driver's counters are a sample
        behind: so two samples before it must belong to the same stretch of training.
        """
        last = self.seen[number] = (*self.seen.get(number, ()), breaks)[-3:]
        return breaks % 2 == 0 and last == 3 * (self.breaks,)

    def add(self, number: int, values: dict[str, float], at_s: float, trained: bool) -> None:
        joules = values.pop(ENERGY, None)
        if joules is not None:
            count = Count(joules, at_s)
            meter = self.meters.setdefault(number, Meter(count, count, count))
            meter.now = meter.now.then(joules, at_s, trained)
        for key, value in values.items():
            name = gpu_metric_name(number, key)
            self.names[name] = None
            if trained:
                self.since_row.add(name, value)
                self.of_run.add(name, value)

    def read(self, tokens_per_s: float | None) -> dict[str, float | None]:
        """The row's metrics: means of the samples since the last one, None where there were none.

        Energy is all that the counter counted since the last row that had one: it is renewed every
        100 ms, so the energy of a row is that of its time give or take so much, and the sum over
        rows is right. Energy per token is the power of the iterations, by that counter, over their
        speed.
        """
        with self.lock:
            means, self.since_row = self.since_row, Means()
            row = {name: means.of(name) for name in self.names}
            power_w = self.power_w([(meter.row, meter.now) for meter in self.meters.values()])
            for number, meter in self.meters.items():
                counted_j = meter.now.joules - meter.row.joules
                row[gpu_metric_name(number, ENERGY)] = counted_j or None
                if counted_j:
                    meter.row = meter.now
        energy_per_token_j = ratio(power_w, tokens_per_s)
        return {**self.process.read(), **row, "perf/energy_per_token_j": energy_per_token_j}

    def summary(self, tokens_per_s: float | None) -> dict[str, float | None]:
        """The run's: means over its iterations, energy of all of it, evaluations included."""
        with self.lock:
            means = {name: self.of_run.of(name) for name in self.names}
            spans = [(meter.first, meter.now) for meter in self.meters.values()]
        energy_j = sum(b.joules - a.joules for a, b in spans) if self.knows_all() else None
        return {
            **self.process.summary(),
            **means,
            "perf/energy_j": energy_j,
            "perf/energy_per_token_j": ratio(self.power_w(spans), tokens_per_s),
        }

    def knows_all(self) -> bool:
        counted = len(self.meters) == len(self.gpus) and not any(gpu.lost for gpu in self.gpus)
        return self.complete and counted

    def power_w(self, spans: list[tuple[Count, Count]]) -> float | None:
        """Of all GPUs together while iterations ran."""
        unknown = any(a.trained_s == b.trained_s or a.joules == b.joules for a, b in spans)
        if unknown or not self.knows_all():
            return None
        return sum((b.trained_j - a.trained_j) / (b.trained_s - a.trained_s) for a, b in spans)


def ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None
