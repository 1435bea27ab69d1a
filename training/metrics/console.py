"""Output for the user: log lines, and a progress bar if the output is a terminal."""

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
from profiling.shared.units import percent, spell_duration
from training.step.clock import Speed

log = logging.getLogger("train")


class Terminal:
    """stdout that still accepts lines after its terminal has been closed.

    A closing terminal sends SIGHUP. A line that is being written at that moment would raise, and
    end the run before it has saved.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        try:
            return self.stream.write(text)
        except OSError as error:
            self.raise_unless_closed(error)
            return len(text)

    def flush(self) -> None:
        try:
            self.stream.flush()
        except OSError as error:
            self.raise_unless_closed(error)

    def raise_unless_closed(self, error: OSError) -> None:
        """Raises `error`, unless it is the one of a terminal that has been closed."""
        if error.errno != errno.EIO or not drop_unread():
            raise error


console = Console(file=cast(TextIO, Terminal(sys.stdout)), highlight=False)


class PlainFormatter(logging.Formatter):
    """Formats the message alone, commands as the user types them; marks warnings and errors."""

    def format(self, record: logging.LogRecord) -> str:
        mark = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        return mark + as_called(super().format(record))


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes log lines; the first one that nobody reads any more ends the run, as print would."""

    lost = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            super().handleError(record)
        elif not self.lost:
            self.lost = True  # lines that are logged while the run ends may be lost
            raise


def configure_logging(rank: int) -> None:
    """Sets up logging: rank 0 logs everything, the others, which would repeat it, only errors."""
    handler: logging.Handler = LineHandler(sys.stdout)
    if console.is_terminal:
        handler = RichHandler(
            console=console,
            show_path=False,
            show_time=False,
            show_level=False,
            highlighter=NullHighlighter(),
        )
    level = logging.INFO if rank == 0 else logging.ERROR
    # in an installation the last one is the parent of all but the first
    log_through(handler, level, "train", "training", "data", "configs", "profiling")


def log_through(handler: logging.Handler, level: int, *names: str) -> None:
    """Logs through `handler`: loggers `names` from `level` up, all others from warnings up."""
    handler.setFormatter(PlainFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    for name in names:
        logging.getLogger(name).setLevel(level)


class Display:
    """Shows a bar on rank 0's terminal from progress.start() to stop(), else a line per row."""

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
        # (iteration, time in s) of the rows that the time left is estimated from
        self.row_count, self.rows = 0, deque[tuple[int, float]](maxlen=1000)
        self.task = self.progress.add_task(
            "training", total=max_iters, completed=iteration, now="warming up"
        )

    def show_training(
        self, iteration: int, loss: float, speed: Speed | None, captured_ms: float | None
    ) -> None:
        """Shows a row of training; `captured_ms` is the median step under a profiler."""
        parts = [f"loss {loss:.4f}"]
        if speed:
            parts.append(f"time {speed.step_ms:.2f}ms")
            parts.append(f"{tokens(speed.tokens_per_s)} tokens/s")
        if speed and speed.mfu is not None:
            parts.append(f"mfu {percent(100 * speed.mfu)}")
        if captured_ms is not None:
            parts.append(f"captured {captured_ms:.2f}ms")
        now = ", ".join(parts)
        self.progress.update(self.task, completed=iteration + 1, now=now)
        if self.progress.disable:
            log.info("iter %d: %s, %s", iteration, now, self.progress_of(iteration))

    def progress_of(self, iteration: int) -> str:
        """Progress in words: '35/5000, 40 min left'. Call it once for each row.

        The estimate uses the later half of the rows, evaluations included, so that it soon forgets
        what took time only once, such as a capture.
        """
        self.row_count += 1
        self.rows.append((iteration, time.perf_counter()))
        while len(self.rows) > 1 + self.row_count // 2:
            self.rows.popleft()
        (since, began), (_, now) = self.rows[0], self.rows[-1]
        done = f"{iteration}/{self.max_iters}"
        if iteration == since:
            return done
        left = self.max_iters - 1 - iteration
        return f"{done}, {spell_duration((now - began) / (iteration - since) * left)} left"

    def show_evaluation(self, iteration: int, losses: dict[str, float]) -> None:
        self.progress.update(self.task, completed=iteration)
        train_loss, val_loss = losses["eval/train_loss"], losses["val/loss"]
        log.info("step %d: train loss %.4f, val loss %.4f", iteration, train_loss, val_loss)


def tokens(per_s: float) -> str:
    """A rate in words: 192, 4.2k, 190k. Steps do not repeat to three figures."""
    if per_s < 1000:
        return f"{per_s:.0f}"
    return f"{per_s / 1e3:,.{1 if per_s < 10_000 else 0}f}k"
