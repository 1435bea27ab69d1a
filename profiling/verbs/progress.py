"""Progress of a verb on stderr: on a terminal, and nowhere else.

rich is imported only where it is needed: so the verb report starts in 0.22 s, not in 0.28.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from profiling.timeline.share_read import while_reading

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

Say = Callable[[str], None]
LONGEST_ITEM_S = 3600  # the time left is estimated from items that take up to this long
READING = 0.7  # share of the time until a report after which a large capture is read


@contextmanager
def progress_line(
    what: str, total: int | None = None, done: int = 0, ticking: bool = True
) -> Iterator[Say]:
    """Show `what` within the block; calling the function that it gives shows other words.

    With a `total` of items, of which some may be `done`, each call begins the next one, and the
    line has a bar with the time left; else it has the elapsed time. If `ticking` is false no
    thread updates it, so that nothing else runs while something is timed.
    """
    if not sys.stderr.isatty():
        yield say_nothing
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TimeElapsedColumn, TimeRemainingColumn

    of_items = BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with bar(*(of_items if total else [TimeElapsedColumn()]), ticking=ticking) as progress:
        task, begun = progress.add_task(what, total=total, completed=done), done

        def say(words: str) -> None:
            nonlocal begun
            progress.update(task, description=words, completed=begun, refresh=True)
            begun += 1

        yield say


@contextmanager
def reading_bar(path: Path) -> Iterator[Say]:
    """Show within the block how far the capture at `path` is read, with the time left.

    Once it is read, the function that this gives is called with what comes next.
    """
    if not sys.stderr.isatty():
        yield say_nothing
        return
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    percent = TextColumn("{task.percentage:.0f} %")
    with bar(BarColumn(), percent, TimeRemainingColumn()) as progress:
        task = progress.add_task(f"reading {path.name}", total=1.0)

        def say(words: str) -> None:
            progress.update(task, description=words, completed=READING, refresh=True)

        with while_reading(lambda share: progress.update(task, completed=READING * share)):
            yield say


def say_nothing(words: str) -> None:
    """Stands in where no terminal shows progress."""


def bar(*columns: "ProgressColumn", ticking: bool = True) -> "Progress":
    """A line of progress that is gone once it ends."""
    from rich.console import Console
    from rich.progress import Progress, TextColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        *columns,
        console=Console(stderr=True, highlight=False),
        transient=True,
        auto_refresh=ticking,
        speed_estimate_period=LONGEST_ITEM_S,
    )
