"""validation.browser for tests: those that need it are skipped where there is no Chromium."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from validation import browser
from validation.browser import draw_all, load, open_page

__all__ = ["chromium", "draw_all", "load", "open_page"]


@contextmanager
def chromium() -> Iterator:
    """Open a driver for the block; its log has the console and every network request."""
    try:
        browser.find_programs()
    except ValueError as missing:
        pytest.skip(str(missing))
    with browser.chromium() as driver:
        yield driver
