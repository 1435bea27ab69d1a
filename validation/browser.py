"""Pages in a headless Chromium: opened with all charts drawn, in windows of any size."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

AXE = "axe_playwright_python"  # the package that holds axe-core
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


LOADED = """
return !window.left && location.href !== 'about:blank' && document.readyState === 'complete'
"""


def find_programs() -> tuple[str, str]:
    """Paths of chromium and chromedriver. Raises ValueError where a requirement is missing."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    driver_program = shutil.which("chromedriver")
    if not (find_spec("selenium") and find_spec(AXE) and program and driver_program):
        raise ValueError("needs the extra dev, chromium and chromedriver (apt-get install both)")
    return program, driver_program


@contextmanager
def chromium() -> Iterator["Chrome"]:
    """Open a driver for the block; its log has the console and every network request.

    Raises ValueError where there is no Chromium, or selenium or axe-core is missing.
    """
    program, driver_program = find_programs()
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


def load(driver: "Chrome", address: str) -> None:
    """Load the page at this address anew and wait until its scripts have run.

    chromedriver alone may answer while the page before is still there.
    """
    from selenium.webdriver.support.wait import WebDriverWait

    driver.execute_script("window.left = true")
    driver.get("about:blank")  # else an address with another hash would load nothing
    driver.get(address)
    WebDriverWait(driver, 30, poll_frequency=0.02).until(lambda each: each.execute_script(LOADED))


def open_page(driver: "Chrome", path: Path) -> None:
    """Open a page and wait until all its charts are drawn."""
    load(driver, path.as_uri())
    draw_all(driver)


def draw_all(driver: "Chrome") -> None:
    driver.set_script_timeout(30)
    driver.execute_async_script(DRAWN)


def resize(
    driver: "Chrome", width: int, height: int = 900, theme: str = "light", media: str = ""
) -> None:
    """Give the page a window of this size in px, without scroll bars, in a theme; on paper if
    media is `print`."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    features = [{"name": "prefers-color-scheme", "value": theme}]
    driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
