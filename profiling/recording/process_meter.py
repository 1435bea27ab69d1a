"""CPU time, threads and memory of this process, logged with each row.

Called by profiling.recording.sampler. CPU time is a counter of the system: a row's value covers all
of its iterations, and nothing is read between two rows.
"""

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from profiling.shared.metric_names import CPU_MEMORY_BYTES, CPU_PERCENT, CPU_THREADS

STAT = Path("/proc/self/stat")  # man 5 proc_pid_stat
THREADS, RESIDENT_PAGES = 20 - 3, 24 - 3  # indices of its fields after the program's name


class Times(NamedTuple):
    """CPU time of all threads, user and system, and wall time. Seconds."""

    cpu_s: float
    wall_s: float

    def plus(self, begin: "Times", end: "Times") -> "Times":
        return Times(self.cpu_s + end.cpu_s - begin.cpu_s, self.wall_s + end.wall_s - begin.wall_s)

    def percent_until(self, end: "Times") -> float | None:
        return Times(0.0, 0.0).plus(self, end).percent()

    def percent(self) -> float | None:
        """CPU use in per cent, where 100 is one core, or None if no time has passed."""
        return 100 * self.cpu_s / self.wall_s if self.wall_s else None


@dataclass
class ProcessMeter:
    """Measures this process from `start` on, except within `pause`. Used by the training thread."""

    row: Times = Times(0.0, 0.0)  # sum since the last row
    run: Times = Times(0.0, 0.0)  # sum until the last row
    counted: Times = Times(0.0, 0.0)  # the counters when they were last added to `row`
    # wall time within `pause`, by phase
    paused_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def start(self) -> None:
        self.counted = now()

    @contextmanager
    def pause(self, phase: str) -> Iterator[None]:
        """Leave the block out of rows and run; its wall time is added to `paused_s` of `phase`."""
        self.count()
        begin_s = self.counted.wall_s
        yield
        self.start()
        self.paused_s[phase] += self.counted.wall_s - begin_s

    def count(self) -> None:
        before, self.counted = self.counted, now()
        self.row = self.row.plus(before, self.counted)

    def read(self) -> dict[str, float | None]:
        """Metrics of a row: CPU use since the last row, threads and memory as they are now."""
        self.count()
        row, self.row = self.row, Times(0.0, 0.0)
        self.run = self.run.plus(Times(0.0, 0.0), row)
        return {CPU_PERCENT.name: row.percent(), **threads_and_memory()}

    def summary(self) -> dict[str, float | None]:
        """Metrics of the run: CPU use over all its rows, threads and memory as they are now."""
        return {CPU_PERCENT.name: self.run.percent(), **threads_and_memory()}


def now() -> Times:
    return Times(time.process_time(), time.perf_counter())


def threads_and_memory() -> dict[str, float | None]:
    """Number of threads and resident memory in bytes, by metric; None without /proc."""
    try:
        fields = STAT.read_bytes().rpartition(b")")[2].split()
    except OSError:
        return {CPU_THREADS.name: None, CPU_MEMORY_BYTES.name: None}
    resident_bytes = int(fields[RESIDENT_PAGES]) * os.sysconf("SC_PAGE_SIZE")
    return {CPU_THREADS.name: int(fields[THREADS]), CPU_MEMORY_BYTES.name: resident_bytes}
