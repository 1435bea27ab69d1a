"""Hands rows to another tracker on a thread of its own, which may hang or fail without harm.

A sink of training.metrics.tracker; the trackers are training.metrics.trackio and mlflow.
"""

import logging
import threading
from collections.abc import Callable
from importlib.util import find_spec
from queue import SimpleQueue
from typing import Protocol

from cli.errors import one_line
from cli.interrupts import handle_signals, unwind
from training.metrics.sinks import SILENT_S, Row, Sink, announce_wait

log = logging.getLogger(__name__)

START_TIMEOUT_S = 15.0
FINISH_TIMEOUT_S = 30.0  # the end of a run waits this long for the last rows


class OpenRun(Protocol):
    """A run in a tracker; each call may block, and raise what it likes."""

    def log(self, values: Row, iteration: int) -> None: ...
    def finish(self, exit_code: int) -> None: ...


def check_installed(key: str) -> None:
    """Raises ValueError, naming the key, if the package of the same name is missing."""
    if find_spec(key) is None:
        raise ValueError(
            f"{key}=true: the package is not installed; `pip install {key}`, or leave the key out"
        )


class ThreadedSink(Sink):
    """Calls `open_run` and then logs to the run that it returns; `name` is the tracker's."""

    def __init__(self, name: str, open_run: Callable[[], OpenRun]):
        self.name, self.open_run = name, open_run
        self.queue: SimpleQueue[tuple[Row, int] | None] = SimpleQueue()
        self.failed, self.exit_code = False, 0
        self.started = threading.Event()  # set once the run is open, or has failed
        self.thread = threading.Thread(target=self.work, name=name, daemon=True)
        self.thread.start()

    def work(self) -> None:
        try:
            run = self.open_run()
            self.started.set()
            while (item := self.queue.get()) is not None:
                run.log(*item)
            run.finish(self.exit_code)
        except Exception as error:
            self.fail(f"{type(error).__name__}: {one_line(error)}")
        finally:
            self.started.set()

    def wait_until_started(self) -> None:
        self.started.wait(START_TIMEOUT_S)

    def fail(self, reason: str) -> None:
        self.failed = True
        log.warning("%s failed (%s); metrics.jsonl is still written", self.name, reason)

    def log(self, row: Row) -> None:
        self.put({name: value for name, value in row.items() if name != "iter"}, row["iter"])

    def summary(self, values: Row) -> None:
        """Logs results as summary/NAME at the last iteration; rows use some of the bare names."""
        named = {f"summary/{name}": value for name, value in values.items()}
        self.put(named, values.get("iterations"))

    def put(self, values: Row, iteration: object) -> None:
        if not self.failed:
            known = {name: value for name, value in values.items() if value is not None}
            self.queue.put((known, iteration if isinstance(iteration, int) else 0))

    def finish(self, exit_code: int = 0) -> None:
        """Waits for the last rows, for a bounded time; an impatient user's Ctrl-C ends the run."""
        self.exit_code = exit_code
        self.queue.put(None)
        with handle_signals(unwind):
            self.thread.join(SILENT_S)
            if self.thread.is_alive():
                announce_wait(self.name, FINISH_TIMEOUT_S)
                self.thread.join(FINISH_TIMEOUT_S - SILENT_S)
        if self.thread.is_alive():
            self.fail(f"no answer in {FINISH_TIMEOUT_S:.0f} s")
