"""Measures of one page in Chromium: paint, faults for readers, phone, paper, dark theme, requests.

Called by validation.pages.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from validation import axe
from validation.browser import open_page, resize

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

PHONE, NARROW, DESK = 390, 320, 1440  # px
SHEET = 703  # px between the margins of A4
REACH = "return document.documentElement.scrollWidth"
OWN_ADDRESSES = ("file:", "data:", "blob:", "about:")
PAINTED = """
const done = arguments[0];
new PerformanceObserver((list, observer) => {
  const [paint] = list.getEntriesByName("first-contentful-paint");
  if (paint) { observer.disconnect(); done(paint.startTime); }
}).observe({type: "paint", buffered: true});
"""
SMALL = """
return [...document.querySelectorAll("a, button, summary, input, select, [tabindex]")].filter(
  (each) => {
    const {width, height} = each.getBoundingClientRect();
    return width && (height < 24 || width < 24) && !each.closest(".skip, svg");
  }).length;
"""
# a listener that comes before the page's own, which draws for the screen again
PRINTED = """
addEventListener("afterprint", () => {
  window.printed = [...document.querySelectorAll(".chart")].map((chart) => [
    chart.querySelector(".main-svg")?.getBoundingClientRect().height ?? 0, chart.clientHeight]);
});
"""
DARK = """
const colour = getComputedStyle(document.body).backgroundColor;
return colour.match(/\\d+/g).slice(0, 3).every((part) => part < 90);
"""


@dataclass(frozen=True)
class Measured:
    """Measures of a page, but for the first paint, which is measured in turns with others."""

    bytes: int
    axe_faults: list[list[str]]  # in both themes: rule, impact, selectors of the elements
    reach_px: int  # of a window of NARROW px; more means that it scrolls sideways
    small_targets: int  # lower or narrower than 24 px in a window of PHONE px
    charts: int
    charts_wrong_on_paper: int  # not drawn, or higher than their box
    paper_reach_px: int  # of a sheet of SHEET px
    dark: bool  # where the system asks for it
    requests: list[str]  # addresses outside the file
    console: list[str]


def measure_page(driver: "Chrome", path: Path) -> Measured:
    driver.get_log("browser"), driver.get_log("performance")  # what was before
    resize(driver, DESK)
    printed = heights_on_paper(driver, path)
    resize(driver, SHEET, media="print")
    reopen(driver, path)
    paper_reach = driver.execute_script(REACH)
    resize(driver, PHONE, 844)
    reopen(driver, path)
    small = driver.execute_script(SMALL)
    resize(driver, NARROW, 700)
    reopen(driver, path)
    reach = driver.execute_script(REACH)
    resize(driver, DESK, theme="dark")
    reopen(driver, path)
    dark = driver.execute_script(DARK)
    resize(driver, DESK)
    reopen(driver, path)
    return Measured(
        bytes=path.stat().st_size,
        axe_faults=axe.violations(driver),
        reach_px=reach,
        small_targets=small,
        charts=len(printed),
        charts_wrong_on_paper=sum(not 0 < drawn <= box + 1 for drawn, box in printed),
        paper_reach_px=paper_reach,
        dark=dark,
        requests=requests_of(driver),
        console=[entry["message"] for entry in driver.get_log("browser")],
    )


def reopen(driver: "Chrome", path: Path) -> None:
    """Open the page anew, with all its charts."""
    driver.get("about:blank")
    open_page(driver, path)


def heights_on_paper(driver: "Chrome", path: Path) -> list[tuple[float, float]]:
    """Heights in px of each chart and of its box, where the page is printed once it is loaded."""
    driver.get("about:blank")
    source = {"source": PRINTED}
    script = driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", source)
    driver.get(path.as_uri())
    driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)
    heights: list[tuple[float, float]] = driver.execute_script("return window.printed")
    return heights


def requests_of(driver: "Chrome") -> list[str]:
    """Addresses outside the page's file that were asked for since the log was read."""
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
    urls = [each["request"]["url"] for each in sent]
    return [url for url in urls if not url.startswith(OWN_ADDRESSES)]


def first_paint_ms(driver: "Chrome", path: Path) -> float:
    driver.get("about:blank")
    driver.get(path.as_uri())
    driver.set_script_timeout(30)
    painted: float = driver.execute_async_script(PAINTED)
    return painted
