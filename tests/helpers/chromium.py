"""A headless Chromium for the tests of the pages, driven by selenium. Skips where there is none."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

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
