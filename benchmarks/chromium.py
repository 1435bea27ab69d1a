"""A headless Chromium, driven by selenium, for what is measured of the pages."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")


@contextmanager
def chromium(width: int, height: int) -> Iterator["Chrome"]:
    """Its window in px. Raises ValueError where there is none."""
    program, driver_program = shutil.which("chromium"), shutil.which("chromedriver")
    if not (find_spec("selenium") and program and driver_program):
        raise ValueError("needs the extra dev, chromium and chromedriver (apt-get install both)")
    from selenium import webdriver

    os.environ["SE_OFFLINE"] = "true"  # selenium is not to look for drivers or report its use
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in (*ARGUMENTS, f"--window-size={width},{height}"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options, webdriver.ChromeService(driver_program))
    try:
        yield driver
    finally:
        driver.quit()
