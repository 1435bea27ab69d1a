"""What the user sees: log lines, and a progress bar where the output is a terminal."""

import errno
import logging
import sys
import time
from collections import deque
from typing import Any, TextIO, cast

from rich.console import Console
from rich.highlighter import NullHighlighter
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cli.pipes import drop_unread
from cli.program import as_called
from training.clock import Speed

log = logging.getLogger("train")


class Terminal:
    """stdout, which takes each line also once its terminal is closed.

    SIGHUP comes with that, and a line that is under way then would end the run before it has saved.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        try:
            return self.stream.write(text)
        except OSError as error:
            self.without_reader(error)
            return len(text)

    def flush(self) -> None:
        try:
            self.stream.flush()
        except OSError as error:
            self.without_reader(error)

    def without_reader(self, error: OSError) -> None:
        """Raises the error again, unless it is that of a terminal without anybody behind it."""
        if error.errno != errno.EIO or not drop_unread():
            raise error


console = Console(file=cast(TextIO, Terminal(sys.stdout)), highlight=False)


class PlainFormatter(logging.Formatter):
    """The message alone, with commands as the reader calls them; a warning is marked as one."""

    def format(self, record: logging.LogRecord) -> str:
        mark = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        return mark + as_called(super().format(record))


class Lines(logging.StreamHandler[TextIO]):
    """Where nobody reads them any more the first that is lost ends the run, as a print would."""

    lost = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            super().handleError(record)
        elif not self.lost:
            self.lost = True  # what ends behind it may say so, in vain
            raise


def configure_logging(rank: int) -> None:
    """Rank 0 speaks; the others, which would say the same, only of errors."""
    handler: logging.Handler = Lines(sys.stdout)
    if console.is_terminal:
        handler = RichHandler(
            console=console,
            show_path=False,
            show_time=False,
            show_level=False,
            highlighter=NullHighlighter(),
        )
    level = logging.INFO if rank == 0 else logging.ERROR
    say_through(handler, level, "train", "training", "data", "configs", "profiling")


def say_through(handler: logging.Handler, level: int, *names: str) -> None:
    """What the loggers `names` have to say from `level` up, and the warnings of all others."""
    handler.setFormatter(PlainFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    for name in names:
        logging.getLogger(name).setLevel(level)


class Display:
    """A bar on rank 0's terminal from progress.start() to stop(), a line per row elsewhere."""

    def __init__(self, iteration: int, max_iters: int, rank: int):
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[now]}"),
            TimeRemainingColumn(),
            console=console,
            disable=rank != 0 or not console.is_terminal,
            speed_estimate_period=60,
        )
        self.max_iters = max_iters
        # of rows: how many came, and the iterations and times of those that the rest is told by
        self.came, self.rows = 0, deque[tuple[int, float]](maxlen=1000)
        self.task = self.progress.add_task(
            "training", total=max_iters, completed=iteration, now="warming up"
        )

    def trained(
        self, iteration: int, loss: float, speed: Speed | None, captured_ms: float | None
    ) -> None:
        """`captured_ms`: the median step under a profiler."""
        parts = [f"loss {loss:.4f}"]
        if speed:
            parts.append(f"time {speed.step_ms:.2f}ms")
            parts.append(f"{tokens(speed.tokens_per_s)} tokens/s")
        if speed and speed.mfu is not None:
            parts.append(f"mfu {speed.mfu:.1%}")
        if captured_ms is not None:
            parts.append(f"captured {captured_ms:.2f}ms")
        now = ", ".join(parts)
        self.progress.update(self.task, completed=iteration + 1, now=now)
        if self.progress.disable:
            log.info("iter %d: %s, %s", iteration, now, self.progress_of(iteration))

    def progress_of(self, iteration: int) -> str:
        """'35/5000, 40 min left', by the later half of the rows, evaluations and all.

        What took its time once, as a capture, is soon behind it.
        """
        self.came += 1
        self.rows.append((iteration, time.perf_counter()))
        while len(self.rows) > 1 + self.came // 2:
            self.rows.popleft()
        (since, began), (_, now) = self.rows[0], self.rows[-1]
        done = f"{iteration}/{self.max_iters}"
        if iteration == since:
            return done
        left = self.max_iters - 1 - iteration
        return f"{done}, {duration((now - began) / (iteration - since) * left)} left"

    def evaluated(self, iteration: int, losses: dict[str, float]) -> None:
        self.progress.update(self.task, completed=iteration)
        train_loss, val_loss = losses["eval/train_loss"], losses["val/loss"]
        log.info("step %d: train loss %.4f, val loss %.4f", iteration, train_loss, val_loss)


def tokens(per_s: float) -> str:
    """192, 4.2k, 190k: three figures are more than a step repeats."""
    if per_s < 1000:
        return f"{per_s:.0f}"
    return f"{per_s / 1e3:,.{1 if per_s < 10_000 else 0}f}k"


def duration(seconds: float) -> str:
    """3 s, 12 min, 5.5 h: to the precision at which one plans."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
