"""A bar below the lines of a training that `run` started: how far it is, and what is captured.

The lines go to stdout as they come, which may be the same terminal: the bar is on stderr, is erased
before each of them, and is drawn again behind a whole line.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from profiling.launch.process import Output
from profiling.verbs.progress import bar

WINDOW = re.compile(rb"profile=nsys: iterations (\d+) to (\d+)")
ITERATION = re.compile(rb"^iter (\d+):", re.M)


@contextmanager
def training_bar(max_iters: int | None) -> Iterator[Output | None]:
    """Show the bar within the block; gives the receiver of training's output.

    None, which is stdout as it is, where stderr is no terminal that can erase a line, or nothing is
    known to iterate.
    """
    below = bar(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    if not (max_iters and sys.stderr.isatty()) or below.console.is_dumb_terminal:
        yield None
        return
    with below as shown:
        yield LinesAbove(shown, max_iters)


class LinesAbove:
    """Writes lines to stdout above a bar, which follows the iterations that they name."""

    def __init__(self, shown: Progress, max_iters: int) -> None:
        self.shown, self.stdout = shown, sys.stdout.buffer
        self.task = shown.add_task("training", total=max_iters)
        self.windows: list[tuple[int, int]] = []  # (first, last iteration) that are captured
        self.done, self.line = 0, b""  # iterations; the last line, which may not have ended yet

    def write(self, chunk: bytes) -> None:
        self.shown.stop()
        self.stdout.write(chunk)
        whole, ended, self.line = (self.line + chunk).rpartition(b"\n")
        if ended:
            self.windows += [(int(first), int(last)) for first, last in WINDOW.findall(whole)]
            done = [int(number) + 1 for number in ITERATION.findall(whole)]
            self.done = done[-1] if done else self.done
            self.shown.update(self.task, completed=self.done, description=self.now)

    def flush(self) -> None:
        self.stdout.flush()
        if not self.line:
            self.shown.start()

    @property
    def now(self) -> str:
        for first, last in self.windows:
            if self.done <= last:
                are = "are" if self.done >= first else "will be"
                return f"iterations {first} to {last} {are} captured"
        return "all is captured" if self.windows else "training"
