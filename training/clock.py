"""Time of iterations, without making the host wait for the GPU."""

import statistics
import time
from dataclasses import dataclass

import torch


@dataclass
class Laps:
    """Milliseconds of consecutive iterations."""

    ms: list[float]

    @property
    def median_ms(self) -> float:
        return statistics.median(self.ms)

    @property
    def mean_ms(self) -> float:
        return statistics.fmean(self.ms)


class CudaClock:
    """A CUDA event behind each iteration, read when the GPU has passed it."""

    def __init__(self):
        self.events: list[torch.cuda.Event] = []
        self.start()

    def start(self) -> None:
        """Begins anew: what happened since the last lap is nobody's."""
        self.laps_ms = self.read().ms if self.events else []
        self.events = [self.now()]

    def lap(self) -> None:
        self.events.append(self.now())

    def read(self) -> Laps:
        """The laps since the last read. Waits for the last of them."""
        self.events[-1].synchronize()
        pairs = zip(self.events, self.events[1:], strict=False)
        laps = Laps(self.laps_ms + [a.elapsed_time(b) for a, b in pairs])
        self.laps_ms, self.events = [], self.events[-1:]
        return laps

    @staticmethod
    def now() -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


class HostClock:
    """The same on a device whose work is done when the call returns."""

    def __init__(self):
        self.laps_ms: list[float] = []
        self.start()

    def start(self) -> None:
        self.last = time.perf_counter()

    def lap(self) -> None:
        now = time.perf_counter()
        self.laps_ms.append((now - self.last) * 1e3)
        self.last = now

    def read(self) -> Laps:
        laps, self.laps_ms = Laps(self.laps_ms), []
        return laps


def clock_for(device: torch.device) -> CudaClock | HostClock:
    return CudaClock() if device.type == "cuda" else HostClock()
