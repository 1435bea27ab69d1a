"""Phases of a step (data, forward, backward, optimizer): their ranges and their time on the host.

In a window each phase is a range in the capture. Outside, one step of twenty is timed, later one of
a hundred or of five hundred, so that the others pay a comparison only.
"""

import time

EVERY, EARLY = 20, 400  # steps between two that are timed, and the last step of which that holds
EVERY_LATER, LATER = 100, 4000
EVERY_LAST = 500


def is_timed(number):
    """Whether the phases of this step are timed where no window is open. The first always are."""
    every = EVERY if number <= EARLY else EVERY_LATER if number <= LATER else EVERY_LAST
    return number % every == 0


class Phases:
    """Open phases, and the time that finished ones took on the host, in ns per step."""

    def __init__(self):
        self.on = True  # whether the present step is timed or captured
        self.ranges = None  # context manager of a range's name while a window is open, else None
        self.open = []  # (name, begin in ns, range or None)
        self.ns = {}  # of the present step
        self.timed = 0  # steps that were
        self.ms = {}  # name -> a time for each of them, 0 where the phase did not come

    def enter(self, name):
        span = None
        if self.ranges is not None:
            span = self.ranges(name)
            span.__enter__()
        self.open.append((name, time.perf_counter_ns(), span))

    def leave(self, name):
        """End the phase, and those left open inside it by an exception."""
        if not self.is_open(name):
            return
        inner = None
        while inner != name:
            inner, began, span = self.open.pop()
            if span is not None:
                span.__exit__(None, None, None)
        if not self.is_open(name):  # one inside another of its name is in that one's time
            self.ns[name] = self.ns.get(name, 0) + time.perf_counter_ns() - began

    def is_open(self, name):
        return name in [phase[0] for phase in self.open]

    def end_step(self, number):
        """Keep what the step took, if it was timed whole, and decide whether the next one is."""
        if self.on:
            for name in self.ns:
                self.ms.setdefault(name, [0.0] * self.timed)
            for name, ms in self.ms.items():
                ms.append(self.ns.get(name, 0) / 1e6)
            self.timed += 1
            self.ns = {}
        self.on = self.ranges is not None or is_timed(number)

    def close_ranges(self):
        """End the ranges of phases that are still open when a window closes."""
        for _, _, span in reversed(self.open):
            if span is not None:
                span.__exit__(None, None, None)
        self.open = [(name, began, None) for name, began, _ in self.open]
