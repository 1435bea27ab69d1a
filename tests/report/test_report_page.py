"""HTML page: the content of the file, and the page in a headless Chromium."""

import json
import re
import time
from dataclasses import replace

import pytest

from profiling.report.renderers.page import page
from profiling.report.single.document import report_document
from tests.helpers.captures import capture_of
from tests.helpers.chromium import draw_all, load, open_page
from tests.helpers.reports import nothing_captured, report_with_manifest

pytestmark = pytest.mark.slow  # in a real browser

CHARTS = {"breakdown", "step_times", "families", "phases", "roofline"}
DRAWN = """
return Object.fromEntries([...document.querySelectorAll('[data-chart]')].map(chart => [
  chart.dataset.chart,
  [...chart.querySelectorAll('.barlayer path, .scatterlayer path')]
    .filter(path => path.getBoundingClientRect().width > 0).length]))
"""
COLUMN = "return [...document.querySelectorAll('#table-kernels tbody tr:not([hidden])')].map(r => "


@pytest.fixture(scope="module")
def write_page(tmp_path_factory):
    """write_page(name, report, events): the page's file."""

    def write(name, report, events):
        path = tmp_path_factory.mktemp("pages") / f"{name}.html"
        path.write_text(page(report_document(report, events)), encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="module")
def opened(browser, write_page):
    path = write_page("slow_eager", report_with_manifest(), capture_of("slow_eager").step_events)
    browser.get_log("performance")
    open_page(browser, path)
    return browser


def theme(driver) -> str:
    return driver.execute_script("return document.documentElement.dataset.theme")


def background(driver) -> tuple[int, ...]:
    colour = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    return tuple(int(part) for part in re.findall(r"\d+", colour)[:3])


@pytest.mark.slow
def test_every_chart_is_drawn_without_an_error(opened):
    drawn = opened.execute_script(DRAWN)
    assert set(drawn) == CHARTS
    assert min(drawn.values()) >= 5, drawn
    assert opened.get_log("browser") == []


@pytest.mark.slow
def test_no_label_is_cut_off(opened):
    """Every text of a chart lies inside its chart, and the page inside the window."""
    outside = opened.execute_script("""
        const found = [];
        for (const chart of document.querySelectorAll('[data-chart]')) {
          const box = chart.getBoundingClientRect();
          const texts = '.ytick text, .xtick text, .legendtext, .bartext';
          for (const text of chart.querySelectorAll(texts)) {
            const at = text.getBoundingClientRect();
            if (at.width && (at.left < box.left - 1 || at.right > box.right + 1
                || at.top < box.top - 1 || at.bottom > box.bottom + 1))
              found.push(`${chart.dataset.chart}: ${text.textContent}`);
          }
        }
        return found""")
    assert outside == []
    assert opened.execute_script("return document.body.scrollWidth <= innerWidth")


def test_a_table_sorts_on_click(opened):
    heads = opened.find_elements("css selector", "#table-kernels th button")
    head = next(h for h in heads if h.text == "count")
    values = COLUMN + "+r.cells[2].dataset.value)"
    before = opened.execute_script(values)
    assert before != sorted(before, reverse=True)
    head.click()
    assert (down := opened.execute_script(values)) == sorted(down, reverse=True)
    assert max(before) == down[0] and len(down) == 12
    head.click()
    assert (up := opened.execute_script(values)) == sorted(up)


@pytest.mark.slow
def test_a_table_filters_by_label_and_by_the_whole_name(opened):
    field = opened.find_element("css selector", "#table-kernels input")
    names = COLUMN + "r.cells[0].textContent)"
    field.send_keys("softmax float")
    found = opened.execute_script(names)
    assert len(found) >= 2 and all("softmax" in name for name in found)
    field.clear()
    field.send_keys("TrivialOffsetCalculator")  # only in the whole names
    assert "unrolled_elementwise · direct_copy(float)" in opened.execute_script(names)
    shown = opened.find_element("css selector", "#table-kernels .shown").text
    assert re.fullmatch(r"\d+ of 77 shown", shown)
    field.clear()
    field.send_keys(" ")
    opened.find_element("css selector", "#table-kernels .all").click()
    assert len(opened.execute_script(names)) == 77


@pytest.mark.slow
def test_light_and_dark_with_the_charts_and_the_choice_is_kept(opened):
    colour = (
        "return document.querySelector('[data-chart=families] .barlayer path').style.fill + "
        "document.querySelector('[data-chart=families] .ytick text').style.fill"
    )
    seen = {}
    for _ in range(2):
        seen[theme(opened)] = (sum(background(opened)), opened.execute_script(colour))
        opened.find_element("id", "theme").click()
    assert set(seen) == {"light", "dark"}
    assert seen["dark"][0] < 150 < 600 < seen["light"][0]
    assert seen["dark"][1] != seen["light"][1]
    opened.find_element("id", "theme").click()
    chosen = theme(opened)
    load(opened, opened.current_url)
    draw_all(opened)
    assert theme(opened) == chosen and min(opened.execute_script(DRAWN).values()) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_without_a_choice_it_follows_the_system(opened, scheme):
    opened.execute_script("localStorage.clear()")
    feature = [{"name": "prefers-color-scheme", "value": scheme}]
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": feature})
    time.sleep(0.2)
    assert theme(opened) == scheme


def test_the_network_is_not_asked_for_anything(opened):
    asked = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    urls = [
        event["params"]["request"]["url"]
        for event in asked
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert urls, "the log of requests is empty"
    assert all(url.startswith(("file://", "data:", "blob:")) for url in urls), urls


NAMED = """
const place = document.activeElement, box = place.getBoundingClientRect();
return [place.id, place.textContent, box.height > 0 && box.top >= 0 && box.bottom <= innerHeight]
"""


def test_what_an_agent_names_is_unfolded_and_scrolled_to(browser, tmp_path):
    report = report_with_manifest()
    kernels, path = report.kernels, tmp_path / "page.html"
    path.write_text(page(report_document(report)), encoding="utf-8")
    hidden = "#d04309dd/kernel/60&kernels.filter=gemm&kernels.sort=3"  # by limit and by filter
    load(browser, path.as_uri() + hidden)
    there, words, seen = browser.execute_script(NAMED)
    assert there == "kernel/60" and f"{kernels[60].count:,}" in words and seen
    address = "return location.hash"
    assert browser.execute_script(address) == "#d04309dd/kernel/60&kernels.sort=3"
    folded = "return document.getElementById('gain/1').closest('details').open"
    assert not browser.execute_script(folded)
    for name, there in (
        ("d04309dd/gain/1", "gain/1"),
        ("finding/0", "finding/0"),  # with no ID in front
        ("d04309dd/queue/0", "queue"),  # the only one of its kind
        ("d04309dd/step/0", "step"),
        ("d04309dd/kernel", "table-kernels"),
    ):
        browser.execute_script("location.hash = arguments[0]", name)
        browser.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0]))")
        found, _, seen = browser.execute_script(NAMED)
        assert found == there and (seen or there in ("step", "table-kernels")), name
    assert browser.execute_script(folded)
    browser.execute_script("location.hash = 'd04309dd/nothing/0'")
    assert browser.get_log("browser") == []


@pytest.mark.slow
def test_a_capture_that_holds_little_still_makes_a_page(browser, write_page):
    open_page(browser, write_page("nothing", nothing_captured(), None))
    assert "No bottleneck can be named" in browser.find_element("css selector", "#verdict h1").text
    assert set(browser.execute_script(DRAWN)) == {"step_times", "phases"}
    assert browser.get_log("browser") == []


@pytest.mark.slow
def test_markup_in_names_stays_text(browser, write_page):
    evil = "</script><img src=x onerror=document.title='run'><b>k</b>"
    report = report_with_manifest()
    report = replace(
        report,
        kernels=[replace(report.kernels[0], name=evil), *report.kernels[1:]],
        ranges=[replace(report.ranges[0], name=evil), *report.ranges[1:]],
        capture=replace(report.capture, file=evil),
        bottleneck=replace(report.bottleneck, evidence=[evil]),
    )
    open_page(browser, write_page("evil", report, None))
    assert not browser.find_elements("css selector", "img, main b")
    assert "onerror" in browser.find_element("css selector", "#verdict").text
    ticks = "return document.querySelector('[data-chart=phases]').textContent"
    assert "<b>k</b>" in browser.execute_script(ticks)


def test_the_file_needs_nothing_else():
    text = page(report_document(report_with_manifest()))
    markup = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!#|data:)""", markup)
    assert "default-src 'none'" in text
    assert "script-src 'nonce-" in text and "unsafe-eval" not in text
