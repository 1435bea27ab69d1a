"""Pages in a headless Chromium, with all charts drawn. Skips the test where there is none."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from benchmarks import chromium as browser

DRAWN = """
const done = arguments[0], charts = [...document.querySelectorAll('.chart')];
let number = 0;
function next() {
  if (number === charts.length) { scrollTo(0, 0); return setTimeout(done, 50); }
  const chart = charts[number];
  if (chart.querySelector('.main-svg')) { number += 1; return next(); }
  chart.scrollIntoView();
  setTimeout(next, 20);
}
next();
"""


@contextmanager
def chromium() -> Iterator:
    """Open a driver for the block; its log has the console and every network request."""
    with ExitStack() as until_done:
        try:
            driver = until_done.enter_context(browser.chromium(1280, 900, logged=True))
        except ValueError as error:
            pytest.skip(str(error))
        yield driver


def open_page(driver, path: Path) -> None:
    """Open a page and draw all its charts, which otherwise are drawn when they come into view."""
    driver.get(path.as_uri())
    draw_all(driver)


def draw_all(driver) -> None:
    driver.set_script_timeout(30)
    driver.execute_async_script(DRAWN)
