"""Clocks that only a test moves."""

from training.step.clock import HostClock


class FakeClock:
    """Replacement for the module `time`, whose clock only `sleep` moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def perf_counter(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class GivenClock(HostClock):
    """Clock of the training loop that shows the given moments one after the other."""

    def __init__(self, moments_s, synchronises):
        self.moments_s = iter(moments_s)
        super().__init__(0, synchronises)

    def mark(self):
        return next(self.moments_s)
