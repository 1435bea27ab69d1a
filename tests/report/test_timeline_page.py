"""Timeline of the report page in a headless Chromium: pixels, keys, mouse, fingers, address."""

import base64
import re
import time
from dataclasses import replace

import pytest

pytest.importorskip("selenium")
from selenium.webdriver.support.ui import WebDriverWait

from profiling.analysis.analysis import Analysis
from profiling.analysis.gpu_time.step_events import step_events
from profiling.analysis.summary import summarize
from profiling.report.document import Document
from profiling.report.renderers.page import page
from profiling.report.single.document import report_document
from tests.helpers.captures import capture_of
from tests.helpers.chromium import load
from tests.helpers.documents import with_first_rows, without_charts
from tests.helpers.programs import MS, Program
from tests.helpers.reports import nothing_captured

pytestmark = pytest.mark.slow  # in a real browser

PIXEL = """
const [x, y] = arguments, canvas = document.querySelector('#timeline-view canvas');
const ratio = canvas.width / canvas.clientWidth;
return [...canvas.getContext('2d').getImageData(x * ratio, y * ratio, 1, 1).data].slice(0, 3)
"""
PLACE = """
const {events, view, placeOf, topOf, rowOf} = timeline, i = arguments[0];
const x = placeOf(view).x((events.start[i] + events.end[i]) / 2);
return [Math.round(x), topOf(events, rowOf(events, i)) + 9]
"""
COLOUR = """
const probe = document.body.appendChild(document.createElement('i'));
probe.style.color = `var(--${arguments[0]})`;
const found = getComputedStyle(probe).color;
probe.remove();
return found.match(/\\d+/g).map(Number)
"""
# an operation of some microseconds that a known call launched, in the median step
OPERATION = """
const {events, callOf} = timeline, from = events.bounds[events.median];
for (let i = events.firstOperation; i < events.start.length; i++) {
  const known = events.start[i] > from + 5e6 && callOf(events, i) >= 0;
  if (known && events.end[i] - events.start[i] > 8000) return i;
}
"""
VIEW = "return [timeline.view.from, timeline.view.to]"
# brings the page back to what it was when it was loaded
BACK = """
const find = (selector) => document.querySelector(`#timeline-view ${selector}`);
localStorage.clear();
applyTheme();
if (!find('.help').hidden) find('[data-do=help]').click();
find('canvas').dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape', bubbles: true}));
find('[data-do=median]').click();
document.activeElement.blur();
find('').scrollIntoView();
"""


def short_page(document: Document) -> str:
    """Page without charts and with few rows of each table, which takes half of the time to load."""
    return page(with_first_rows(without_charts(document), 4))


@pytest.fixture(scope="module")
def write_page(tmp_path_factory):
    """write_page(name, links): the address of a capture's page."""

    def write(name, links=None):
        opened = capture_of(name)
        path = tmp_path_factory.mktemp("pages") / f"{name}.html"
        document = report_document(opened.report, opened.step_events, links)
        path.write_text(short_page(document), encoding="utf-8")
        return path.as_uri()

    return write


@pytest.fixture(scope="module")
def address(write_page):
    return write_page("slow_eager")


@pytest.fixture
def opened(browser, address):
    """The page at its median step, with nothing chosen; loaded if the test before had another."""
    if browser.execute_script("return window.opened"):
        browser.execute_script(BACK)
        wait_for_frame(browser)
    else:
        open_at(browser, address)
        browser.execute_script("window.opened = true")
    return browser


def open_at(driver, address, hash=""):
    driver.get_log("browser")  # what other tests left there
    load(driver, address + hash)
    driver.execute_script("document.querySelector('#timeline-view').scrollIntoView()")
    wait_for_frame(driver)


def wait_for_frame(driver):
    """Waits until the frame is drawn that was asked for."""
    driver.execute_async_script(
        "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
    )


def press(driver, *keys, into="canvas"):
    driver.find_element("css selector", f"#timeline-view {into}").send_keys(*keys)
    wait_for_frame(driver)


def mouse(driver):
    from selenium.webdriver import ActionChains

    return ActionChains(driver, duration=20)


def at(driver, x, y):
    """Gives the place as ActionChains counts: from the middle of the canvas."""
    canvas = driver.find_element("css selector", "#timeline-view canvas")
    return canvas, round(x - canvas.size["width"] / 2), round(y - canvas.size["height"] / 2)


def span(driver):
    start, end = driver.execute_script(VIEW)
    return end - start


def facts(driver):
    """{name: value} of what is chosen, as shown, in one question to the browser."""
    return dict(
        driver.execute_script(
            "return [...document.querySelectorAll('#timeline-details dl > div')]"
            "  .map(row => [...row.querySelectorAll('*')].map(each => each.innerText.trim()))"
        )
    )


def title(driver):
    return driver.find_element("css selector", "#timeline-details strong").text


def test_it_opens_at_the_median_step_without_an_error(browser, address):
    open_at(browser, address)
    report = capture_of("slow_eager").report
    times = report.window.step_ms
    index = min(range(20), key=lambda i: abs(times.values[i] - times.median))
    assert title(browser) == f"Step {100 + index}, the median: {times.values[index]:.2f} ms"
    assert span(browser) / 1e6 == pytest.approx(1.02 * times.values[index])
    assert browser.execute_script("return timeline.view.slices") > 500
    assert browser.get_log("browser") == []


def test_the_page_holds_every_event_of_the_window(opened):
    events = capture_of("slow_eager").step_events
    tables = (events.ranges, events.calls, events.projected, events.gaps, events.operations)
    rows = opened.execute_script("return timeline.events.rows.map(r => [r.kind, r.count])")
    assert sum(count for _, count in rows) == sum(len(table.start_ns) for table in tables)
    assert [kind for kind, _ in rows] == 3 * ["host"] + ["call", "phase", "idle", "stream"]


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_kernel_has_the_colour_of_its_family_in_the_theme(opened, theme):
    opened.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    operation = opened.execute_script(OPERATION)
    opened.execute_script(
        "const {events, setView} = timeline, i = arguments[0], w = events.end[i] - events.start[i];"
        "setView(events.start[i] - 80 * w, events.end[i] + 80 * w)",  # a name would lie over it
        operation,
    )
    wait_for_frame(opened)
    family = opened.execute_script(
        "const {events} = timeline; return events.shades[events.shade[arguments[0]]]", operation
    )
    x, y = opened.execute_script(PLACE, operation)
    assert opened.execute_script(PIXEL, x, y) == opened.execute_script(COLOUR, family)
    assert opened.execute_script(PIXEL, 5, 3) == opened.execute_script(COLOUR, "card")


def test_a_name_stays_in_view_when_its_slice_begins_outside(opened):
    """Written at the left edge, in the ink that is readable on the slice."""
    opened.execute_script("timeline.setView(107e6, 108e6)")  # in the midst of forward
    texts = drawn_texts(opened)
    left = opened.execute_script("return timeline.placeOf(timeline.view).left")
    names = {text: x for text, x, _ in texts}
    assert names["forward"] == pytest.approx(left + 4)
    assert any(text.startswith("step 106") for text in names)
    kernels = {
        text
        for text, _, y in texts
        if y > opened.execute_script("return timeline.topOf(timeline.events, 6)")
    }
    assert len(kernels) >= 3, "no kernel has its name"


def drawn_texts(driver):
    """Gives (text, x, y) of each text that the next frame writes beside the labels."""
    wait_for_frame(driver)
    return driver.execute_script("""
        const canvas = document.querySelector('#timeline-view canvas'), said = [];
        const context = canvas.getContext('2d'), write = context.fillText;
        context.fillText = (...all) => { said.push(all); write.apply(context, all); };
        timeline.drawNow();
        context.fillText = write;
        return said.filter(([, x]) => x > timeline.placeOf(timeline.view).left)""")


def test_where_the_name_of_a_step_does_not_fit_its_number_stands_alone(opened):
    opened.execute_script("timeline.setView(0, timeline.events.last)")
    steps = {text for text, _, y in drawn_texts(opened) if 24 < y < 46}
    assert len(steps) == 20
    assert all(re.fullmatch(r"(step )?1\d\d( · [\d.]+ ms)?", text) for text in steps), steps


@pytest.mark.slow
def test_keys_zoom_move_fit_and_step(opened):
    whole = span(opened)
    press(opened, "w")
    assert span(opened) == pytest.approx(whole / 1.4)
    press(opened, "+", "s", "-", "s")
    assert span(opened) == pytest.approx(whole * 1.4)
    before = opened.execute_script(VIEW)
    press(opened, "d")
    assert opened.execute_script(VIEW)[0] == pytest.approx(before[0] + 0.15 * span(opened))
    press(opened, "a")
    assert opened.execute_script(VIEW)[0] == pytest.approx(before[0])
    press(opened, "0", "]")
    assert title(opened).startswith("Step 107: ")
    press(opened, "f")
    assert span(opened) == pytest.approx(opened.execute_script("return timeline.events.last"))
    press(opened, "?")
    assert "whole window" in opened.find_element("id", "timeline-help").text


def test_any_step_by_its_number_as_the_rest_of_the_page_has_it(opened):
    times = capture_of("slow_eager").report.window.step_ms.values
    field = opened.find_element("css selector", "#timeline-view input[type=number]")
    field.clear()
    field.send_keys("111\n")
    assert title(opened) == f"Step 111: {times[11]:.2f} ms"
    opened.find_element("css selector", "[data-do=slowest]").click()
    slowest = max(range(20), key=times.__getitem__)
    assert title(opened) == f"Step {100 + slowest}, the slowest: {times[slowest]:.2f} ms"


@pytest.mark.slow
def test_the_wheel_zooms_at_the_pointer_and_a_drag_moves(opened):
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

    opened.execute_script("scrollBy(0, -300)")
    canvas, x, y = at(opened, 500, 100)
    under = (
        "const {view, placeOf} = timeline, {left, scale} = placeOf(view);"
        "return view.from + (500 - left) / scale"
    )
    time_before, span_before = opened.execute_script(under), span(opened)
    origin = ScrollOrigin.from_element(canvas, x, y)

    def turn(by):
        mouse(opened).scroll_from_origin(origin, 0, by).perform()
        wait_for_frame(opened)

    hint = opened.find_element("css selector", "#timeline-view .hint")
    scrolled, scroll = opened.execute_script("return scrollY"), "return scrollY"
    turn(-40)
    assert span(opened) == span_before and hint.is_displayed()
    WebDriverWait(opened, 5).until(lambda d: d.execute_script(scroll) < scrolled)
    mouse(opened).key_down("\ue009").scroll_from_origin(origin, 0, -40).key_up("\ue009").perform()
    wait_for_frame(opened)
    assert span_before > span(opened)
    mouse(opened).move_to_element_with_offset(canvas, x, y).click().perform()
    assert not hint.is_displayed()
    turn(-200)
    assert span(opened) < 0.7 * span_before
    assert opened.execute_script(under) == pytest.approx(time_before, abs=span_before / 500)
    start, width = opened.execute_script(VIEW)[0], span(opened)
    mouse(opened).move_to_element_with_offset(canvas, x, y).click_and_hold().move_by_offset(
        -200, 0
    ).release().perform()
    wait_for_frame(opened)
    plot = opened.execute_script("return timeline.placeOf(timeline.view).width")
    assert opened.execute_script(VIEW)[0] == pytest.approx(start + 200 / plot * width, rel=1e-3)
    press(opened, "\ue00c")  # Esc: the page scrolls again
    turn(40)
    assert span(opened) == width and hint.is_displayed()


def test_a_click_tells_all_of_a_kernel_and_draws_its_launch(opened):
    operation = opened.execute_script(OPERATION)
    opened.execute_script(
        "const {events, setView} = timeline, i = arguments[0];"
        "setView(events.start[i] - 2e5, events.end[i] + 1e5)",
        operation,
    )
    wait_for_frame(opened)
    mouse(opened).move_to_element_with_offset(
        *at(opened, *opened.execute_script(PLACE, operation))
    ).click().perform()
    wait_for_frame(opened)
    events = capture_of("slow_eager").step_events
    row = operation - opened.execute_script("return timeline.events.firstOperation")
    launched, found = events.launched, facts(opened)
    assert title(opened) == events.names[events.operations.name[row]]
    call = launched.call[row]
    assert found["launched by"].startswith(events.names[events.calls.name[call]])
    assert found["grid, blocks"] == f"{launched.blocks[row]:,}"
    assert found["block, threads"] == f"{launched.threads[row]:,}"
    assert found["registers per thread"] == str(launched.registers[row])
    assert found["shared memory per block"] == f"{launched.shared_bytes[row]:,} B"
    assert found["phase"] == events.names[launched.phase[row]] and found["row"] == "stream 7"
    at_ms = (events.operations.start_ns[row] - events.bounds_ns[0]) / 1e6
    assert found["at"] == f"{at_ms:.6f} ms"
    # and its call knows it
    calls = opened.execute_script(
        "return timeline.callOf(timeline.events, arguments[0])", operation
    )
    opened.execute_script("timeline.choose(arguments[0])", calls)
    assert "launched" in facts(opened)
    press(opened, "\ue00c")  # Esc
    assert not opened.find_elements("css selector", "#timeline-details strong")


def test_of_a_step_that_the_host_had_left_it_says_so(browser, write_page):
    open_at(browser, write_page("flash_compile"))
    assert "the host was ahead" in title(browser)
    browser.execute_script("timeline.setView(0, 1)")
    press(browser, "[")
    assert title(browser).startswith("Step 100: ") and "ahead" not in title(browser)


@pytest.mark.slow
def test_a_kernel_leads_to_its_source(browser, write_page):
    triton = next(k.name for k in capture_of("flash_compile").report.kernels if "triton_" in k.name)
    links = {triton: [("graph0", "compiled/index.html#graph0.kernel")]}
    open_at(browser, write_page("flash_compile", links))
    press(browser, "/")
    press(browser, triton, into="input[type=search]")
    press(browser, "\n", into="input[type=search]")
    link = browser.find_element("css selector", "#timeline-details a")
    assert link.text == "graph0" and link.get_attribute("href").endswith("#graph0.kernel")
    assert browser.get_log("browser") == []


def test_search_finds_names_and_families_and_goes_from_one_to_the_next(opened):
    events = capture_of("slow_eager").step_events
    named = [i for i, n in enumerate(events.names) if re.search("softmax|layer_norm", n, re.I)]
    press(opened, "/")
    press(opened, "softmax|layer_norm", into="input[type=search]")
    found = opened.find_element("css selector", "#timeline-view .found").text
    tables = (events.ranges, events.calls, events.projected, events.operations)
    count = sum(int((table.name == name).sum()) for table in tables for name in named)
    assert found.startswith(f"{count:,} found, ")
    press(opened, "\n", into="input[type=search]")
    assert re.search("softmax|layer_norm", title(opened), re.I)
    first = facts(opened)["at"]
    press(opened, "n")
    assert float(facts(opened)["at"][:-3]) > float(first[:-3])
    press(opened, "N")
    assert facts(opened)["at"] == first
    opened.find_element("css selector", "#timeline-view .legend button").click()
    searched, hatched = opened.execute_script(
        "return [document.querySelector('#timeline-view input[type=search]').value,"
        " [...document.querySelectorAll('#timeline-view .legend button')].map((each) =>"
        "   [each.textContent, each.firstChild.style.backgroundImage.startsWith('url(')])]"
    )
    assert searched == hatched[0][0]  # the legend's own word
    assert all(drawn == word.startswith("idle") for word, drawn in hatched)
    assert int(opened.find_element("css selector", ".found").text.split()[0].replace(",", "")) > 0


@pytest.mark.slow
def test_words_that_are_no_pattern_are_searched_for_as_they_are(opened):
    press(opened, "/")
    press(opened, "void (", into="input[type=search]")
    assert "0 found" in opened.find_element("css selector", "#timeline-view .found").text
    assert opened.get_log("browser") == []


def test_a_measured_selection_adds_up(opened):
    press(opened, "0")
    opened.execute_script("const {events, measure} = timeline; measure(0, events.last)")
    report, found = capture_of("slow_eager").report, facts(opened)
    assert found["GPU busy"].endswith(f"{report.gpu.busy_percent:.1f} %")
    assert found["GPU idle"].endswith(f"{100 - report.gpu.busy_percent:.1f} %")
    launching = report.idle.by_cause["launch"] * report.window.steps
    assert float(found["idle: kernel launches"].split()[0]) == pytest.approx(launching, rel=0.5)
    canvas, x, y = at(opened, 400, 60)
    before = opened.execute_script(VIEW)
    mouse(opened).key_down("\ue008").move_to_element_with_offset(
        canvas, x, y
    ).click_and_hold().move_by_offset(100, 0).release().key_up("\ue008").perform()
    wait_for_frame(opened)
    assert opened.execute_script(VIEW) == before
    start, end = opened.execute_script("return timeline.view.selection")
    assert end - start == pytest.approx(
        100 / opened.execute_script("return timeline.placeOf(timeline.view).scale")
    )
    assert title(opened).startswith("Selection of ")


def test_a_row_of_the_idle_table_leads_to_its_gap(opened):
    gap = capture_of("slow_eager").report.idle.gaps[0]
    row = opened.find_element("css selector", "#table-gaps tbody tr")
    assert row.find_elements("css selector", "td")[3].text == str(100 + gap.step)
    row.find_element("css selector", "a[href^='#t=']").click()
    wait_for_frame(opened)
    start, end = (time / 1e6 for time in opened.execute_script(VIEW))
    assert start < gap.start_ms < gap.start_ms + gap.ms < end and end - start < 4 * gap.ms
    found = facts(opened)
    assert found["row"] == "GPU idle" and found["step"].startswith(f"{100 + gap.step}, ")
    assert float(found["at"][:-3]) == pytest.approx(gap.start_ms, abs=1e-5)


@pytest.mark.parametrize(("table", "kind"), [("kernels", "stream"), ("api", "call")])
def test_a_row_leads_to_its_longest_median_and_next_slice_and_back(opened, table, kind):
    row = opened.find_element("css selector", f"#table-{table} tbody tr")
    name = row.find_element("css selector", "td.code").get_attribute("title")
    events = capture_of("slow_eager").step_events
    slices = events.operations if kind == "stream" else events.calls
    like = slices.rows([events.names[n] == name for n in slices.name])
    took = sorted((like.end_ns - like.start_ns).tolist(), reverse=True)
    chosen = "const {events: e, view: v} = timeline; return e.end[v.chosen] - e.start[v.chosen]"
    for way, place in (("longest", 0), ("median", len(took) // 2)):
        row.find_element("css selector", f"[data-way={way}]").click()
        assert title(opened) == name and opened.execute_script(chosen) == took[place]
    row.find_element("css selector", "[data-way=longest]").click()
    first = float(facts(opened)["at"][:-3])
    ways = {b.text: b for b in opened.find_elements("css selector", "#timeline-view .ways button")}
    ways[f"next of {len(took):,}"].click()
    after = float(facts(opened)["at"][:-3])
    starts = ((like.start_ns - events.bounds_ns[0]) / 1e6).tolist()
    assert after == pytest.approx(next((s for s in starts if s > first + 1e-6), starts[0]))
    opened.execute_script("document.querySelector('#timeline-view .ways button').click()")
    assert opened.switch_to.active_element == row
    assert "longest" not in opened.execute_script("return arguments[0].textContent", row)
    opened.execute_script("arguments[0].blur()", row)


def test_a_gap_that_was_chosen_leads_back_to_its_row(opened):
    row = opened.find_elements("css selector", "#table-gaps tbody tr")[1]
    row.find_element("css selector", "a[href^='#t=']").click()
    button = opened.find_element("css selector", "#timeline-view .ways button")
    assert button.text == "row in Idle gaps"
    button.click()
    assert opened.switch_to.active_element == row


def test_slice_selection_and_search_are_in_the_address(browser, address):
    open_at(browser, address)
    operation = browser.execute_script(OPERATION)
    browser.execute_script(
        "document.querySelector('#timeline-view [type=search]').value = 'gemm|norm & co';"
        "timeline.measure(1e6, 3e6); timeline.choose(arguments[0]); timeline.setView(0, 5e6)",
        operation,
    )
    browser.execute_script(
        "document.querySelector('#timeline-view [type=search]').dispatchEvent(new Event('input'))"
    )
    time.sleep(0.4)
    there = browser.execute_script("return location.hash")
    assert (
        "&slice=6," in there and "&selection=1.000000,3.000000" in there and "&find=gemm" in there
    )
    open_at(browser, address, there)
    chosen, selection, wanted = browser.execute_script(
        "const {chosen, selection, wanted} = timeline.view; return [chosen, selection, !!wanted]"
    )
    assert (chosen, selection, wanted) == (operation, [1e6, 3e6], True)
    assert browser.execute_script(VIEW) == [0, 5e6]
    assert browser.get_log("browser") == []


def test_counters_are_rows_on_the_same_axis(browser, write_page):
    open_at(browser, write_page("flash_metrics"))
    means = {row.name: row.mean_window for row in capture_of("flash_metrics").report.gpu_metrics}
    browser.execute_script("timeline.measure(0, timeline.events.last)")
    found = facts(browser)
    assert float(found["SMs Active"].split()[0]) == pytest.approx(
        means["SMs Active [Throughput %]"], rel=0.02
    )
    assert "MHz" in found["GPC Clock Frequency"]
    lines = "return timeline.events.lines.map(({label, curve}) => [label, !!curve])"
    shown = browser.execute_script(lines)
    assert [label for label, curve in shown if curve] == [
        *("SMs Active", "Tensor Active", "DRAM Read", "DRAM Write")
    ]
    place = [label for label, _ in shown].index("SMs Active")
    y = 24 + 22 * (place + 1) + 17  # the lowest pixel of the area
    assert browser.execute_script(PIXEL, 600, y - 2) != browser.execute_script(COLOUR, "card")
    mouse(browser).move_to_element_with_offset(*at(browser, 600, y)).perform()
    tip = browser.find_element("css selector", "#timeline-view .tip").text
    assert re.fullmatch(r"SMs Active · [\d.]+ %", tip)
    press(browser, "C")  # not all are folded, so all fold
    assert not any(curve for _, curve in browser.execute_script(lines))
    press(browser, "C")
    assert sum(curve for _, curve in browser.execute_script(lines)) == len(means)
    assert browser.get_log("browser") == []


def test_the_view_is_in_the_address_beside_what_others_keep_there(browser, address):
    open_at(browser, address, "#kernels=gemm&t=10.5,12.25")
    assert browser.execute_script(VIEW) == [10.5e6, 12.25e6]
    press(browser, "w")
    time.sleep(0.4)
    start, end = browser.execute_script(VIEW)
    wanted = f"#kernels=gemm&t={start / 1e6:.6f},{end / 1e6:.6f}"
    assert browser.execute_script("return location.hash") == wanted
    open_at(browser, address, wanted)
    assert browser.execute_script(VIEW) == pytest.approx([start, end], abs=1)
    browser.execute_script("location.hash = '#t=1,2'")
    time.sleep(0.1)
    assert browser.execute_script(VIEW) == [1e6, 2e6]
    browser.execute_script("location.hash = '#t=2,1&t=x'")
    assert browser.execute_script(VIEW) == [1e6, 2e6]


@pytest.mark.slow
def test_it_is_a_focusable_thing_with_a_name_and_tells_what_is_chosen(opened):
    canvas = opened.find_element("css selector", "#timeline-view canvas")
    assert canvas.get_attribute("tabindex") == "0" and "? for the keys" in canvas.accessible_name
    assert opened.find_element("id", "timeline-details").get_attribute("aria-live") == "polite"
    press(opened, ".")
    first = facts(opened)
    press(opened, ".")
    assert facts(opened)["row"] == first["row"] == "stream 7"
    assert float(facts(opened)["at"][:-3]) > float(first["at"][:-3])
    for field in opened.find_elements(
        "css selector", "#timeline-view button, #timeline-view input"
    ):
        assert field.accessible_name


@pytest.mark.slow
def test_fingers_move_and_pinch_on_a_phone(browser, address):
    size = {"width": 390, "height": 800, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    try:
        open_at(browser, address)
        box = browser.execute_script(
            "const b = document.querySelector('#timeline-view canvas').getBoundingClientRect();"
            "return [b.left, b.top, b.width]"
        )
        assert 250 < box[2] <= 390

        def touch(kind, *xs):
            points = [{"x": box[0] + x, "y": box[1] + 90, "id": i} for i, x in enumerate(xs)]
            event = {"type": f"touch{kind}", "touchPoints": points}
            browser.execute_cdp_cmd("Input.dispatchTouchEvent", event)

        start = browser.execute_script(VIEW)[0]
        touch("Start", 250)
        for x in (230, 200, 150):
            touch("Move", x)
        touch("End")
        wait_for_frame(browser)
        assert browser.execute_script(VIEW)[0] > start
        wide = span(browser)
        touch("Start", 180, 220)
        for apart in (30, 60, 90):
            touch("Move", 200 - apart, 200 + apart)
        touch("End")
        wait_for_frame(browser)
        assert span(browser) < wide / 2
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})


@pytest.mark.slow
def test_on_paper_it_is_light_and_the_present_view(opened):
    if opened.execute_script("return document.documentElement.dataset.theme") == "light":
        opened.find_element("id", "theme").click()
    wait_for_frame(opened)
    view = opened.execute_script(VIEW)
    opened.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert opened.execute_script(PIXEL, 5, 3) == [255, 255, 255]
    assert opened.execute_script("return document.querySelector('canvas').clientWidth") == 660
    opened.execute_script("dispatchEvent(new Event('afterprint'))")
    wait_for_frame(opened)
    assert sum(opened.execute_script(PIXEL, 5, 3)) < 150
    assert opened.execute_script("return document.documentElement.dataset.theme") == "dark"
    assert opened.execute_script(VIEW) == view
    assert len(base64.b64decode(opened.execute_cdp_cmd("Page.printToPDF", {})["data"])) > 20_000


def test_of_a_window_with_too_many_events_it_says_which_steps_it_has(monkeypatch):
    capture = capture_of("slow_eager")
    events = replace(capture.step_events, shown=capture.step_events.shown.copy())
    events.shown[:15] = False
    text = page(report_document(capture.report, events))
    assert "5 of 20 steps are shown, those around the median and the slowest" in text
    linked = [gap for gap in capture.report.idle.gaps if gap.step >= 15]
    assert text.count('href="#t=') == len(linked) < len(capture.report.idle.gaps)


def test_of_steps_that_were_chosen_it_says_which_and_how_to_choose_others(browser, tmp_path):
    capture = capture_of("slow_eager")
    text = short_page(report_document(capture.report, capture.events_of_steps((112, 114))))
    assert "3 of 20 steps are shown: 112 to 114, as chosen by --steps." in text
    (tmp_path / "chosen.html").write_text(text, encoding="utf-8")
    open_at(browser, (tmp_path / "chosen.html").as_uri())
    assert title(browser).startswith("Step 112")


@pytest.mark.slow
def test_markup_in_a_name_stays_text(browser, tmp_path):
    evil = "</script><img src=x onerror=document.title='run'>"
    capture = capture_of("slow_eager")
    names = [evil if name == "forward" else name for name in capture.step_events.names]
    events = replace(capture.step_events, names=names)
    path = tmp_path / "evil.html"
    document = report_document(capture.report, events)
    path.write_text(short_page(document), encoding="utf-8")
    open_at(browser, path.as_uri())
    press(browser, "/")
    press(browser, "onerror", into="input[type=search]")
    press(browser, "\n", into="input[type=search]")
    assert title(browser) == evil and not browser.find_elements("css selector", "main img")


@pytest.fixture
def written_of(tmp_path):
    """The page of a program that is made up."""

    def write(program):
        analysis = Analysis(program.trace())
        document = report_document(summarize(analysis), step_events(analysis))
        path = tmp_path / "made-up.html"
        path.write_text(short_page(document), encoding="utf-8")
        return path.as_uri()

    return write


def test_a_capture_of_one_step_can_be_read(browser, written_of):
    program = Program()
    with program.step(), program.phase("forward"):
        program.launch(1 * MS, 3)
    open_at(browser, written_of(program))
    assert re.fullmatch(r"Step 0: 3\.\d\d ms", title(browser))
    press(browser, "[", "]", "f", ".", "m")
    assert title(browser).startswith("Selection of 1.00 ms")
    field = browser.find_element("css selector", "#timeline-view input[type=number]")
    assert field.get_attribute("min") == field.get_attribute("max") == "0"
    assert browser.get_log("browser") == []


def test_each_stream_has_a_row_and_keys_go_from_row_to_row(browser, written_of):
    program = Program()
    for _ in range(3):
        with program.step(), program.phase("forward"):
            for stream in (7, 13, 20):
                program.launch(1 * MS, 2, stream=stream)
            program.wait()
    open_at(browser, written_of(program))
    rows = browser.execute_script("return timeline.events.rows.map(row => row.label)")
    assert rows[-3:] == ["stream 7", "stream 13", "stream 20"]
    press(browser, ".")
    told = []
    for _ in rows:
        told.append(facts(browser)["row"])
        press(browser, "\ue00e")  # page up
    assert told == rows[::-1]
    press(browser, "\ue00f")  # page down
    assert facts(browser)["row"] == rows[1]
    assert browser.get_log("browser") == []


def test_each_gpu_of_a_file_has_rows_that_fold(browser, written_of):
    program = Program()
    for _ in range(3):
        with program.step(), program.phase("forward"):
            program.launch(1 * MS, 2)
            program.launch(1 * MS // 2, 2, device=1)
            program.wait()
    open_at(browser, written_of(program))
    labels = "return timeline.events.lines.map(({label}) => label)"
    heads = ["GPU 0, process 7", "GPU 1, process 7"]
    lines = browser.execute_script(labels)
    assert [line for line in lines if line in heads] == heads
    assert (
        lines.count("CUDA calls") == 1 and lines.count("stream 7") == lines.count("GPU idle") == 2
    )
    press(browser, ".")
    assert facts(browser)["row"] == "GPU 1, process 7, stream 7"
    assert facts(browser)["launched by"].startswith("cudaLaunchKernel")
    press(browser, "c")
    assert browser.execute_script(labels) == lines[: lines.index(heads[1]) + 1]
    x, y = 5, 24 + 22 * (lines.index(heads[1]) + 1) + 9
    mouse(browser).move_to_element_with_offset(*at(browser, x, y)).click().perform()
    assert browser.execute_script(labels) == lines
    assert browser.get_log("browser") == []


def test_the_canvas_has_a_text_for_who_does_not_see_it(opened):
    canvas = opened.find_element("css selector", "#timeline-view canvas")
    assert "each slice is described in words" in canvas.get_property("textContent")
    press(opened, "?")
    button = opened.find_element("css selector", "[data-do=help]")
    assert button.get_attribute("aria-expanded") == "true"
    press(opened, "\ue00c")  # Esc
    assert button.get_attribute("aria-expanded") == "false"


def test_of_a_capture_without_a_gpu_the_page_has_no_timeline(browser, tmp_path):
    path = tmp_path / "nothing.html"
    path.write_text(short_page(report_document(nothing_captured(), None)), encoding="utf-8")
    load(browser, path.as_uri())
    assert not browser.find_elements("id", "timeline-view") and browser.get_log("browser") == []
