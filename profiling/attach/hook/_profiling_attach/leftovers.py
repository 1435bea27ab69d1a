"""Removal of files that were begun beside their place, as on a disk that is full by then."""

import os
from contextlib import contextmanager, suppress


@contextmanager
def leftovers_removed(*paths):
    """Remove at the end of the block those of the files that are still there."""
    try:
        yield
    finally:
        for path in paths:
            with suppress(OSError):
                os.remove(path)
