"""A headless Chromium to measure the pages with: driven by selenium, or left alone.

Tests of the pages use it too (tests/helpers/chromium.py).
"""

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",  # root, in a container
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
)
LOGS = {"browser": "ALL", "performance": "ALL"}  # the console, and every request


def title_of(page: Path, begin: str, width: int, height: int, longest_s: float) -> str:
    """Rest of the page's title, once the title starts with `begin`, in a browser of its own.

    No inspector is attached, such as selenium: it would make V8 parse scripts again for the
    positions of their functions. Raises ValueError where there is no browser or no such title.
    """
    program = chromium_path()
    if not program:
        raise ValueError("needs chromium (apt-get install chromium)")
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        arguments = [f"--user-data-dir={profile}", "--remote-debugging-port=0", page.as_uri()]
        words = [program, *ARGUMENTS, f"--window-size={width},{height}", *arguments]
        with subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as browser:
            try:
                return wait_for_title(Path(profile) / "DevToolsActivePort", begin, longest_s)
            except TimeoutError:
                raise ValueError(f"{page}: not drawn within {longest_s:.0f} s") from None
            finally:
                browser.terminate()


def wait_for_title(port_file: Path, begin: str, longest_s: float) -> str:
    """Rest of the first title that starts with `begin` in the browser's list of its pages.

    Raises TimeoutError after `longest_s`.
    """
    end = time.monotonic() + longest_s
    while time.monotonic() < end:
        time.sleep(0.2)
        with suppress(OSError, IndexError):  # not there yet
            port = port_file.read_text().splitlines()[0]
            with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=5) as answer:
                titles = [each["title"] for each in json.load(answer)]
            for title in titles:
                if title.startswith(begin):
                    return title.removeprefix(begin)
    raise TimeoutError


def chromium_path() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def chromium(width: int, height: int, logged: bool = False) -> Iterator["Chrome"]:
    """Open a browser for the block, with a window of `width` x `height` px; `logged` keeps LOGS.

    Raises ValueError where selenium, chromium or chromedriver is missing.
    """
    program, driver_program = chromium_path(), shutil.which("chromedriver")
    if not (find_spec("selenium") and program and driver_program):
        raise ValueError("needs the extra dev, chromium and chromedriver (apt-get install both)")
    from selenium import webdriver

    os.environ["SE_OFFLINE"] = "true"  # selenium is not to look for drivers or report its use
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in (*ARGUMENTS, f"--window-size={width},{height}"):
        options.add_argument(argument)
    if logged:
        options.set_capability("goog:loggingPrefs", LOGS)
    driver = webdriver.Chrome(options, webdriver.ChromeService(driver_program))
    try:
        yield driver
    finally:
        driver.quit()
