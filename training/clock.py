"""Time of iterations, without making the host wait for the GPU."""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import torch

from profiling.capture.recording import CAPTURED

Mark = TypeVar("Mark")
Pair = tuple[Mark, Mark]  # begin and end
HISTORY = 1000  # laps that `recent` looks back to, at least


class Lap(NamedTuple):
    ms: float
    label: str | None  # what disturbed it: a profiler; None is an ordinary iteration
    host_ms: float | None  # what the host took to launch it; None: it computes itself
    sync_ms: float | None = None  # of it in `synchronisation`; None: not measured


@dataclass
class Laps:
    """Milliseconds of consecutive iterations, those under a profiler apart."""

    ms: list[float]
    captured_ms: list[float]
    host_ms: list[float] = field(default_factory=list)  # of those without one, where they are known
    # (whole, of it in `synchronisation`) of those without one, where that was measured
    synchronised_ms: list[tuple[float, float]] = field(default_factory=list)


class Speed(NamedTuple):
    """Of iterations without a profiler."""

    step_ms: float  # the median
    tokens_per_s: float  # of the mean one
    mfu: float | None  # 0 to 1; None: the device's peak is not known


class Clock(ABC, Generic[Mark]):
    """Marks the end of each iteration and reads the marks later; `recent` looks back over them.

    synchronises: ranks wait for each other in known places of an iteration, which are timed.
    """

    def __init__(self, longest_window: int = 0, synchronises: bool = False):
        self.synchronises = synchronises
        self.unread: list[Lap] = []
        self.history: deque[Lap] = deque(maxlen=max(HISTORY, longest_window))
        self.begin = self.mark()  # of the first lap that is marked
        self.marked: list[tuple[Mark, str | None, list[Pair[Mark]]]] = []  # end, label, syncs
        self.syncs: list[Pair[Mark]] = []  # in the lap that is under way
        self.started_anew = True

    @abstractmethod
    def mark(self) -> Mark:
        """This moment of the device's work."""

    @abstractmethod
    def passed_ms(self, begin: Mark, end: Mark) -> float:
        """Waits for `end`."""

    def host_ms(self, begin: Mark, end: Mark) -> float | None:
        """What the host took from one to the other; None where that is the time of the device."""
        return None

    def start(self) -> None:
        """Begins anew: what happened since the last lap is nobody's. Waits for the last of them."""
        self.settle(len(self.marked))
        self.begin, self.started_anew = self.mark(), True

    @contextmanager
    def synchronisation(self) -> Iterator[None]:
        """Around what lets no rank go on before the last one has come to it. Behind the end of an
        iteration, as where a row is logged, it is part of the next lap, as all its time is."""
        if not self.synchronises:
            yield
            return
        begin = self.mark()
        yield
        self.syncs.append((begin, self.mark()))

    def lap(self, label: str | None = None) -> None:
        """An iteration has ended."""
        # behind a start ranks wait for what one of them did aside, as a checkpoint
        syncs = [] if self.started_anew else self.syncs
        self.marked.append((self.mark(), label, syncs))
        self.syncs, self.started_anew = [], False

    def settle(self, count: int) -> None:
        """Makes laps of the first `count` of those that have only been marked so far."""
        passed, self.marked = self.marked[:count], self.marked[count:]
        for end, label, syncs in passed:
            ms, host_ms = self.passed_ms(self.begin, end), self.host_ms(self.begin, end)
            sync_ms = sum(self.passed_ms(*sync) for sync in syncs) if syncs else None
            lap = Lap(ms, label, host_ms, sync_ms)
            self.unread.append(lap)
            self.history.append(lap)
            self.begin = end

    def count(self) -> int:
        """How many laps have ended since those that were read."""
        return len(self.unread) + len(self.marked)

    def read(self, count: int | None = None) -> Laps:
        """The first `count` laps since the last read, or all. Waits for the last of them."""
        count = self.count() if count is None else count
        self.settle(max(0, count - len(self.unread)))
        laps, self.unread = self.unread[:count], self.unread[count:]
        free = [lap for lap in laps if lap.label is None]
        return Laps(
            [lap.ms for lap in free],
            [lap.ms for lap in laps if lap.label == CAPTURED],
            [lap.host_ms for lap in free if lap.host_ms is not None],
            [(lap.ms, lap.sync_ms) for lap in free if lap.sync_ms is not None],
        )

    def recent(self, label: str | None, after: str | None = None) -> list[float]:
        """The last laps before `start`, of this label, in order; behind the last one of `after`."""
        laps = list(self.history)
        if after is not None:
            behind = [number for number, lap in enumerate(laps, start=1) if lap.label == after]
            laps = laps[behind[-1] if behind else 0 :]
        return [lap.ms for lap in laps if lap.label == label]


class Launched(NamedTuple):
    """A CUDA event, and when the host had launched all before it."""

    event: torch.cuda.Event
    host_s: float


class CudaClock(Clock[Launched]):
    """A CUDA event behind each iteration, read when the GPU has passed it."""

    def mark(self) -> Launched:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return Launched(event, time.perf_counter())

    def passed_ms(self, begin: Launched, end: Launched) -> float:
        end.event.synchronize()
        return begin.event.elapsed_time(end.event)

    def host_ms(self, begin: Launched, end: Launched) -> float:
        return (end.host_s - begin.host_s) * 1e3


class HostClock(Clock[float]):
    """The same on a device whose work is done when the call returns."""

    def mark(self) -> float:
        return time.perf_counter()

    def passed_ms(self, begin: float, end: float) -> float:
        return (end - begin) * 1e3


def clock_for(
    device: torch.device, longest_window: int, synchronises: bool = False
) -> CudaClock | HostClock:
    return (CudaClock if device.type == "cuda" else HostClock)(longest_window, synchronises)
