"""Pages in a headless Chromium, with all charts drawn. Skips the test where there is none."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",  # root, in a container
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--window-size=1280,900",
)
LOGS = {"browser": "ALL", "performance": "ALL"}  # the console, and every request
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
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    driver_program = shutil.which("chromedriver")
    if not (find_spec("selenium") and program and driver_program):
        pytest.skip("needs the extra dev, chromium and chromedriver (apt-get install both)")
    from selenium import webdriver

    os.environ["SE_OFFLINE"] = "true"  # selenium is not to look for drivers or report its use
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ARGUMENTS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", LOGS)
    driver = webdriver.Chrome(options, webdriver.ChromeService(driver_program))
    try:
        yield driver
    finally:
        driver.quit()


def open_page(driver, path: Path) -> None:
    """Open a page and wait until all its charts are drawn."""
    driver.get(path.as_uri())
    draw_all(driver)


def draw_all(driver) -> None:
    driver.set_script_timeout(30)
    driver.execute_async_script(DRAWN)
