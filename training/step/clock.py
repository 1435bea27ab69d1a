"""Measures the time of iterations without making the host wait for the GPU."""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import torch

from profiling.recording.recording import CAPTURED

Mark = TypeVar("Mark")
Pair = tuple[Mark, Mark]  # begin and end
HISTORY = 1000  # least number of laps that `recent` looks back over


class Lap(NamedTuple):
    ms: float
    label: str | None  # the profiler's state that disturbed it; None: an ordinary iteration
    host_ms: float | None  # time in which the host launched it; None if the host computes it
    sync_ms: float | None = None  # the part of `ms` in `synchronisation`; None: not measured


@dataclass
class Laps:
    """Milliseconds of consecutive iterations; those under a profiler are listed separately."""

    ms: list[float]  # without a profiler, as are host_ms and synchronised_ms
    captured_ms: list[float]
    host_ms: list[float] = field(default_factory=list)  # of iterations where it is known
    # (whole lap, the part of it in `synchronisation`) of iterations where that was measured
    synchronised_ms: list[tuple[float, float]] = field(default_factory=list)


class Speed(NamedTuple):
    """Speed of the iterations without a profiler."""

    step_ms: float  # median
    tokens_per_s: float  # from the mean step
    mfu: float | None  # 0 to 1; None if the device's peak is not known


class Clock(ABC, Generic[Mark]):
    """Marks the end of each iteration and reads the marks later; `recent` looks back over them.

    `synchronises`: ranks wait for each other at known places of an iteration, which are timed.
    """

    def __init__(self, longest_window: int = 0, synchronises: bool = False):
        self.synchronises = synchronises
        self.unread: list[Lap] = []
        self.history: deque[Lap] = deque(maxlen=max(HISTORY, longest_window))
        self.begin = self.mark()  # beginning of the first lap in `marked`
        self.marked: list[tuple[Mark, str | None, list[Pair[Mark]]]] = []  # end, label, syncs
        self.syncs: list[Pair[Mark]] = []  # synchronisations in the current lap
        self.started_anew = True

    @abstractmethod
    def mark(self) -> Mark:
        """A mark of this moment in the device's work."""

    @abstractmethod
    def passed_ms(self, begin: Mark, end: Mark) -> float:
        """Milliseconds between two marks. Waits for `end`."""

    def host_ms(self, begin: Mark, end: Mark) -> float | None:
        """Milliseconds of the host between two marks; None if that is the device's time as well."""
        return None

    def start(self) -> None:
        """Begins the next lap now; time since the last one is left out. Waits for the device."""
        self.read_marks(len(self.marked))
        self.begin, self.started_anew = self.mark(), True

    @contextmanager
    def synchronisation(self) -> Iterator[None]:
        """Times a block that lets no rank go on before the last one has reached it.

        After the end of an iteration, as when a row is logged, it belongs to the next lap, as all
        the time there does.
        """
        if not self.synchronises:
            yield
            return
        begin = self.mark()
        yield
        self.syncs.append((begin, self.mark()))

    def lap(self, label: str | None = None) -> None:
        """Ends the lap of an iteration; `label` names the profiler's state, None without one."""
        # In the first lap after a start the ranks may wait for one that did something else before,
        # such as a checkpoint. That would be counted as waiting in a step.
        syncs = [] if self.started_anew else self.syncs
        self.marked.append((self.mark(), label, syncs))
        self.syncs, self.started_anew = [], False

    def read_marks(self, count: int) -> None:
        """Turns the first `count` marked laps into laps with times. Waits for the last of them."""
        passed, self.marked = self.marked[:count], self.marked[count:]
        for end, label, syncs in passed:
            ms, host_ms = self.passed_ms(self.begin, end), self.host_ms(self.begin, end)
            sync_ms = sum(self.passed_ms(*sync) for sync in syncs) if syncs else None
            lap = Lap(ms, label, host_ms, sync_ms)
            self.unread.append(lap)
            self.history.append(lap)
            self.begin = end

    def count(self) -> int:
        """Number of laps that have ended and have not been read."""
        return len(self.unread) + len(self.marked)

    def read(self, count: int | None = None) -> Laps:
        """The first `count` laps since the last read, or all. Waits for the last of them."""
        count = self.count() if count is None else count
        self.read_marks(max(0, count - len(self.unread)))
        laps, self.unread = self.unread[:count], self.unread[count:]
        ordinary = [lap for lap in laps if lap.label is None]
        return Laps(
            [lap.ms for lap in ordinary],
            [lap.ms for lap in laps if lap.label == CAPTURED],
            [lap.host_ms for lap in ordinary if lap.host_ms is not None],
            [(lap.ms, lap.sync_ms) for lap in ordinary if lap.sync_ms is not None],
        )

    def recent(self, label: str | None, after: str | None = None) -> list[float]:
        """Milliseconds of the last laps with this label, in order, as of the last `start`.

        With `after` only those that follow the last lap with that label.
        """
        laps = list(self.history)
        if after is not None:
            ends = [number for number, lap in enumerate(laps, start=1) if lap.label == after]
            laps = laps[ends[-1] if ends else 0 :]
        return [lap.ms for lap in laps if lap.label == label]


class Launched(NamedTuple):
    """A CUDA event, and the time at which the host had launched everything before it."""

    event: torch.cuda.Event
    host_s: float


class CudaClock(Clock[Launched]):
    """Clock that records a CUDA event after each iteration and reads it when the GPU has passed."""

    def mark(self) -> Launched:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return Launched(event, time.perf_counter())

    def passed_ms(self, begin: Launched, end: Launched) -> float:
        end.event.synchronize()
        return float(begin.event.elapsed_time(end.event))

    def host_ms(self, begin: Launched, end: Launched) -> float:
        return (end.host_s - begin.host_s) * 1e3


class HostClock(Clock[float]):
    """Clock for a device whose work is done when the call returns."""

    def mark(self) -> float:
        return time.perf_counter()

    def passed_ms(self, begin: float, end: float) -> float:
        return (end - begin) * 1e3


def clock_for(
    device: torch.device, longest_window: int, synchronises: bool = False
) -> CudaClock | HostClock:
    return (CudaClock if device.type == "cuda" else HostClock)(longest_window, synchronises)
