"""Progress of a verb, on stderr, for work that would be silent for more than two seconds."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

Say = Callable[[str], None]


@contextmanager
def progress_line(what: str, ticking: bool = True) -> Iterator[Say]:
    """Show `what` within the block; calling the function that it gives shows other words.

    A terminal shows one line with the elapsed time, which is removed at the end; any other stderr
    gets a line for each call. If `ticking` is false no thread updates the time, so that nothing
    else runs while something is timed.
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
