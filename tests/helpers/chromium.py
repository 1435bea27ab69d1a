"""validation.browser for tests: those that need it are skipped where there is no Chromium."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from validation import browser
from validation.browser import draw_all, load, open_page

__all__ = ["chromium", "draw_all", "load", "open_page", "start_over", "wait_until"]


@contextmanager
def chromium() -> Iterator:
    """Open a driver for the block; its log has the console and every network request."""
    try:
        browser.find_programs()
    except ValueError as missing:
        pytest.skip(str(missing))
    with browser.chromium() as driver:
        yield driver


def wait_until(true: Callable[[], object]) -> None:
    """Wait for what a page shows in its next frame, or later on a busy machine."""
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def start_over(driver) -> None:
    """Leave the page and take back all that tests chose: storage, window, media."""
    driver.get("about:blank")
    everything = {"origin": "*", "storageTypes": "all"}
    driver.execute_cdp_cmd("Storage.clearDataForOrigin", everything)
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": False})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    for name in browser.LOGS:
        driver.get_log(name)
