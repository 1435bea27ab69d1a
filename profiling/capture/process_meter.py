"""CPU time, threads and memory of this process, told with each logged row.

Called by profiling.capture.sampler. CPU time is a counter of the system: what a row says holds for
all of its iterations, and between two rows nothing is asked.
"""

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from profiling.metric_names import CPU_MEMORY_BYTES, CPU_PERCENT, CPU_THREADS

STAT = Path("/proc/self/stat")  # man 5 proc_pid_stat
THREADS, RESIDENT_PAGES = 20 - 3, 24 - 3  # its fields, from the one behind the program's name


class Times(NamedTuple):
    """Seconds: of CPU time in all threads, user's and system's, and of the clock on the wall."""

    cpu_s: float
    wall_s: float

    def plus(self, begin: "Times", end: "Times") -> "Times":
        return Times(self.cpu_s + end.cpu_s - begin.cpu_s, self.wall_s + end.wall_s - begin.wall_s)

    def percent_until(self, end: "Times") -> float | None:
        return Times(0.0, 0.0).plus(self, end).percent()

    def percent(self) -> float | None:
        """100 is one core."""
        return 100 * self.cpu_s / self.wall_s if self.wall_s else None


@dataclass
class ProcessMeter:
    """Counts from `start` on, but for what lies in `paused`. Of the thread that trains."""

    row: Times = Times(0.0, 0.0)  # since the last row
    run: Times = Times(0.0, 0.0)  # until the last row
    counted: Times = Times(0.0, 0.0)  # what the counters were when last added
    aside_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))  # by phase

    def start(self) -> None:
        self.counted = now()

    @contextmanager
    def paused(self, phase: str) -> Iterator[None]:
        self.count()
        begin_s = self.counted.wall_s
        yield
        self.start()
        self.aside_s[phase] += self.counted.wall_s - begin_s

    def count(self) -> None:
        before, self.counted = self.counted, now()
        self.row = self.row.plus(before, self.counted)

    def read(self) -> dict[str, float | None]:
        """The row's: CPU use since the last one, threads and memory as they are."""
        self.count()
        row, self.row = self.row, Times(0.0, 0.0)
        self.run = self.run.plus(Times(0.0, 0.0), row)
        return {CPU_PERCENT.name: row.percent(), **held()}

    def summary(self) -> dict[str, float | None]:
        """The run's: CPU use in all its rows, threads and memory at its end."""
        return {CPU_PERCENT.name: self.run.percent(), **held()}


def now() -> Times:
    return Times(time.process_time(), time.perf_counter())


def held() -> dict[str, float | None]:
    """Threads, and bytes of memory in use; None where the system has no /proc."""
    try:
        fields = STAT.read_bytes().rpartition(b")")[2].split()
    except OSError:
        return {CPU_THREADS.name: None, CPU_MEMORY_BYTES.name: None}
    resident_bytes = int(fields[RESIDENT_PAGES]) * os.sysconf("SC_PAGE_SIZE")
    return {CPU_THREADS.name: int(fields[THREADS]), CPU_MEMORY_BYTES.name: resident_bytes}
