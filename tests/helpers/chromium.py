"""A headless Chromium for the tests of the pages, driven by selenium. Skips where there is none."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

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
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",  # root, in a container
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--window-size=1280,900",
    "--disable-background-networking",
)


@contextmanager
def chromium() -> Iterator:
    """A driver whose log has the console and every network request."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    program = shutil.which("chromedriver")
    if not browser or not program:
        pytest.skip("needs chromium and chromedriver (apt-get install chromium chromium-driver)")
    os.environ["SE_OFFLINE"] = "true"  # selenium is not to look for drivers or report its use
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ARGUMENTS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(program))
    try:
        yield driver
    finally:
        driver.quit()


def open_page(driver, path: Path) -> None:
    """All charts of it are drawn, which they are when they come into view."""
    driver.get(path.as_uri())
    draw_all(driver)


def draw_all(driver) -> None:
    driver.set_script_timeout(30)
    driver.execute_async_script(DRAWN)
