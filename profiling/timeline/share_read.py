"""Share of a large file that is read, told to whoever shows it. Called by its readers.

A ContextVar, because the readers lie many calls below the verb that shows it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

Told = Callable[[float], None]  # with a share, 0 to 1

told: ContextVar[Told | None] = ContextVar("told", default=None)


@contextmanager
def while_reading(tell: Told) -> Iterator[None]:
    """Call `tell` within the block with the share that is read, after each piece of a file."""
    before = told.set(tell)
    try:
        yield
    finally:
        told.reset(before)


def tell_share(share: float) -> None:
    if tell := told.get():
        tell(share)


class RowsRead:
    """Counts the rows of tables that several threads read, and tells which share of `total` they
    are."""

    def __init__(self, total: int) -> None:
        self.tell, self.total, self.done = told.get(), total, 0  # a thread would not have `told`
        self.lock = Lock()

    def add(self, rows: int) -> None:
        with self.lock:
            self.done += rows
            if self.tell and self.total:
                self.tell(min(1.0, self.done / self.total))
