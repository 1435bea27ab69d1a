"""Progress of a long preparation, on stderr: a bar on a terminal, elsewhere a line now and then."""

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

LINE_S = 10.0  # seconds between two lines

Result = TypeVar("Result")


def show_progress(
    what: str, results: Iterable[Result], sizes: list[int], done: int = 0
) -> Iterator[Result]:
    """Yield the results and show the progress after each.

    `sizes` are the bytes that each result stands for, `done` is how many were made before; these
    have a size but are not among the results.
    """
    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    total, at, began = sum(sizes), sum(sizes[:done]), time.monotonic()
    first, last_line = at, began
    with Progress(
        *columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(what, total=total, completed=at)
        for size, result in zip(sizes[done:], results, strict=True):
            yield result
            at += size
            bar.update(task, completed=at)
            now = time.monotonic()
            if bar.disable and now - last_line >= LINE_S:
                last_line, left_s = now, (now - began) / (at - first) * (total - at)
                console.print(f"{what}: {at / total:.0%}, {left_s / 60:.0f} min left")
