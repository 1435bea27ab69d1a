"""Time of iterations, without making the host wait for the GPU."""

import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch

from profiling.capture.recording import CAPTURED

HISTORY = 1000  # laps that `recent` looks back to, at least


class Lap(NamedTuple):
    ms: float
    label: str | None  # what disturbed it: a profiler; None is an ordinary iteration


@dataclass
class Laps:
    """Milliseconds of consecutive iterations, those under a profiler apart."""

    ms: list[float]
    captured_ms: list[float]


class Speed(NamedTuple):
    """Of iterations without a profiler."""

    step_ms: float  # the median
    tokens_per_s: float  # of the mean one
    mfu: float | None  # 0 to 1; None: the device's peak is not known


class Clock(ABC):
    """What both clocks do with their laps; `recent` looks back over the longest window."""

    def __init__(self, longest_window: int = 0):
        self.unread: list[Lap] = []
        self.history: deque[Lap] = deque(maxlen=max(HISTORY, longest_window))
        self.start()

    @abstractmethod
    def start(self) -> None:
        """Begins anew: what happened since the last lap is nobody's."""

    @abstractmethod
    def lap(self, label: str | None = None) -> None:
        """An iteration has ended."""

    def passed(self, ms: float, label: str | None) -> None:
        self.unread.append(Lap(ms, label))
        self.history.append(self.unread[-1])

    @abstractmethod
    def settle(self) -> None:
        """Makes laps of what has only been marked so far."""

    def read(self) -> Laps:
        """The laps since the last read. Waits for the last of them."""
        self.settle()
        laps, self.unread = self.unread, []
        return Laps(
            [lap.ms for lap in laps if lap.label is None],
            [lap.ms for lap in laps if lap.label == CAPTURED],
        )

    def recent(self, label: str | None, after: str | None = None) -> list[float]:
        """The last laps of this label, in order; of those behind the last lap labelled `after`."""
        laps = list(self.history)
        if after is not None:
            behind = [number for number, lap in enumerate(laps, start=1) if lap.label == after]
            laps = laps[behind[-1] if behind else 0 :]
        return [lap.ms for lap in laps if lap.label == label]


class CudaClock(Clock):
    """A CUDA event behind each iteration, read when the GPU has passed it."""

    def __init__(self, longest_window: int = 0):
        self.events: list[torch.cuda.Event] = []
        self.labels: list[str | None] = []
        super().__init__(longest_window)

    def start(self) -> None:
        self.settle()
        self.events = [self.now()]

    def lap(self, label: str | None = None) -> None:
        self.events.append(self.now())
        self.labels.append(label)

    def settle(self) -> None:
        if not self.labels:
            return
        self.events[-1].synchronize()
        for (a, b), label in zip(pairwise(self.events), self.labels, strict=True):
            self.passed(a.elapsed_time(b), label)
        self.labels, self.events = [], self.events[-1:]

    @staticmethod
    def now() -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


class HostClock(Clock):
    """The same on a device whose work is done when the call returns."""

    def start(self) -> None:
        self.last = time.perf_counter()

    def lap(self, label: str | None = None) -> None:
        now = time.perf_counter()
        self.passed((now - self.last) * 1e3, label)
        self.last = now

    def settle(self) -> None:
        pass  # `lap` has


def clock_for(device: torch.device, longest_window: int) -> Clock:
    return (CudaClock if device.type == "cuda" else HostClock)(longest_window)
