"""Share of a large file that is read, told to whoever shows it. Called by chrome_events.

A ContextVar, because the readers lie many calls below the verb that shows it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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
