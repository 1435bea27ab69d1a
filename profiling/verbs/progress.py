"""What a verb is doing, on stderr, where it would be silent for more than two seconds."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

Say = Callable[[str], None]


@contextmanager
def doing(what: str, ticking: bool = True) -> Iterator[Say]:
    """Says `what`, and then what the function is called with that this gives.

    On a terminal one line with the time it takes, which is gone at the end; elsewhere a line each.
    Not `ticking`: no thread writes the time, so that nothing else runs where something is timed.
    """
    console = Console(stderr=True, highlight=False)
    columns = TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    shown = console.is_terminal
    with Progress(
        *columns, console=console, transient=True, auto_refresh=ticking, disable=not shown
    ) as progress:
        task = progress.add_task("")

        def say(words: str) -> None:
            progress.update(task, description=words, refresh=True)
            if not shown:
                console.print(words, markup=False)

        say(what)
        yield say
