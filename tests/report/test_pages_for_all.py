"""Pages on phones and paper, for screen readers and colour blindness; and what they export."""

import base64
import csv
import io
import json
import re
import time
import zlib

import pytest

from benchmarks.fleet.simulation import Fault, Fleet
from profiling.analysis.difference.comparison import compare
from profiling.analysis.difference.comparison_records import Experiment, Factor, ProcessRun
from profiling.analysis.difference.experiment import conclude
from profiling.analysis.runs.folder import read_run
from profiling.report.comparison.document import comparison_document, experiment_document
from profiling.report.dashboard.document import dashboard_page
from profiling.report.document import Bullets, Chart, Document, Facts, Section, Verdict
from profiling.report.lab.compiled_document import compiled_document
from profiling.report.packed import plotly_script, unpacked, without_wrapper
from profiling.report.ranks.document import ranks_document
from profiling.report.ranks.timeline import timeline_of
from profiling.report.renderers.page import page
from profiling.report.single.document import report_document
from profiling.shared.json_records import to_json
from tests.helpers.captures import capture_of, compilation
from tests.helpers.chromium import load, open_page
from tests.helpers.colours import contrast
from tests.helpers.documents import without_charts
from tests.helpers.fleet import analyse_files, write_fleet
from tests.helpers.folders import write_run
from tests.helpers.reports import flash, slow
from validation.page_questions import Question, answer

pytestmark = pytest.mark.slow  # a dozen pages in Chromium

MOST_BYTES = 2_000_000
PHONE, NARROW, SHEET = 390, 320, 703  # px; A4 between its margins
NAMES = "return [...document.querySelectorAll('#table-kernels tbody tr:not([hidden])')]"
NAMES += ".map(row => row.cells[0].textContent.trim())"
FAMILY = NAMES.replace("cells[0]", "cells[1]")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Name -> file."""
    capture, compiled = capture_of("flash_metrics"), compilation()
    report = report_document(capture.report, capture.step_events)
    documents = {
        "report": report,
        "tables": without_charts(report),
        "compare": comparison_document(compare(slow(), flash())),
        "compiled": compiled_document(compiled.index, compiled.files),
        "ranks": document_of_ranks(tmp_path_factory.mktemp("ranks")),
        "long": document_with_a_long_verdict(),
        "ab": document_of_an_experiment(),
    }
    folder = tmp_path_factory.mktemp("pages")
    runs = [read_run(write_run(folder / name, name)) for name in ("slow", "flash")]
    as_json = to_json(capture.report)
    texts = {
        name: page(document, as_json=as_json if name == "tables" else None)
        for name, document in documents.items()
    }
    for name, text in (texts | {"dashboard": dashboard_page(runs)}).items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in (*texts, "dashboard")}


def document_with_a_long_verdict() -> Document:
    """One whose charts are all far below the fold."""
    figure = {"data": [{"type": "bar", "x": [1], "y": ["a"]}], "layout": {"xaxis": {}, "yaxis": {}}}
    charts = [Chart(name, "one bar", figure, height) for name, height in (("a", 200), ("b", 600))]
    verdict = [Verdict("A verdict"), Bullets("Evidence", ["for a reason"] * 80)]
    return Document("A", [], verdict, [Section("s", "Charts", charts)])


def document_of_an_experiment() -> Document:
    ms = {"attention=slow": 10.0, "attention=flash": 8.0}
    runs = [
        ProcessRun(number, label, [], "runs", 20.0, 128, [60, 70], [time, time], [time, time])
        for label, middle in ms.items()
        for number, time in enumerate((middle * 0.999, middle, middle * 1.001))
    ]
    factor = Factor("attention", ["slow", "flash"], list(ms))
    facts = {label: {"device": "cpu"} for label in ms}
    asked = Experiment(
        1, factor, ["config/shakespeare_char_cpu.yaml"], 30, 50, 10, runs, facts, facts
    )
    return experiment_document(conclude(asked, [None]))


def document_of_ranks(folder) -> Document:
    late = Fleet(ranks=4, steps=4, fault=Fault("slower_kernels", ranks=(2,)))
    analysis = analyse_files(write_fleet(late, folder))
    return ranks_document(analysis.report, timeline_of(analysis))


@pytest.fixture
def tables(browser, pages):
    """The report without its charts: opened anew, without what an earlier test has chosen."""
    load(browser, pages["tables"].as_uri())
    yield browser
    assert browser.get_log("browser") == []


@pytest.fixture
def report(browser, pages):
    """The report with all charts drawn. A test leaves nothing that another one could read."""
    open_once(browser, pages["report"])
    yield browser
    assert browser.get_log("browser") == []


@pytest.fixture
def dashboard(browser, pages):
    """The dashboard, likewise."""
    open_once(browser, pages["dashboard"])
    return browser


def open_once(driver, path):
    """Open the page, unless the test before had opened it by this function."""
    if driver.execute_script("return window.opened") != path.name:
        driver.get("about:blank")
        driver.get_log("browser")  # what tests of other pages left there
        open_page(driver, path)
        driver.execute_script("window.opened = arguments[0]", path.name)


@pytest.fixture
def window(browser):
    """window(width, media): the page as in a window of this width, on screen or on paper."""

    def sized(width, media=""):
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media})

    yield sized
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_a_page_weighs_two_megabytes_at_most_and_without_a_chart_next_to_nothing():
    figure = {"data": [{"type": "bar", "x": [1], "y": ["a"]}], "layout": {"xaxis": {}, "yaxis": {}}}
    chart = Section("s", "One chart", [Chart("c", "one bar", figure)])
    with_chart, without = page(Document("A", [], [], [chart])), page(Document("A", [], [], []))
    assert len(with_chart.encode()) <= MOST_BYTES
    assert len(without.encode()) < 60_000 and "plotly.js" not in without


@pytest.mark.parametrize("name", ["slow_eager", "flash_metrics", "flash_compile"])
def test_a_report_with_its_timeline_weighs_two_megabytes_at_most_without_its_data(name):
    capture = capture_of(name)
    text = page(report_document(capture.report, capture.step_events))
    data = re.compile(r'(?<=id=")(answer|timeline-data|figures)">.*?(?=</script>)', re.S)
    assert data.findall(text) == ["answer", "timeline-data", "figures"]
    without = re.sub(r"<tbody>.*?</tbody>", "", data.sub("", text), flags=re.S)
    assert len(without.encode()) < MOST_BYTES < len(text.encode())


def test_plotly_is_packed_without_what_makes_a_browser_read_it_twice():
    script = unpacked(plotly_script())
    assert script.startswith(b"/**\n* plotly.js v") and script.endswith(b"window.Plotly = Plotly;")
    assert b"factory" not in script[:1000]
    assert without_wrapper("of another make") == "of another make"


def test_a_browser_that_cannot_unpack_the_charts_is_told(browser, pages):
    script = {"source": "delete window.DecompressionStream"}
    made = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", script)
    try:
        load(browser, pages["report"].as_uri())
        chart = browser.find_element("css selector", ".chart")
        deadline = time.monotonic() + 10
        while "too old" not in chart.text:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", made)
    assert all("too old" in entry["message"] for entry in browser.get_log("browser"))


def test_scripts_run_by_the_nonce_alone(tables):
    from selenium.webdriver.support.wait import WebDriverWait  # not everywhere, like the browser

    tables.get_log("browser")  # what was said before
    ran = tables.execute_script(
        "const script = document.createElement('script');"
        "script.textContent = 'window.ran = true'; document.head.append(script);"
        "return window.ran === true"
    )
    assert not ran
    # the browser's own process tells it, some time later
    (refused,) = WebDriverWait(tables, 30).until(lambda browser: browser.get_log("browser"))
    assert "Content Security Policy" in refused["message"]


@pytest.mark.parametrize(
    ("name", "width"),
    [
        *((name, PHONE) for name in ("compare", "compiled", "ranks")),
        *((name, NARROW) for name in ("report", "dashboard", "ab")),
    ],
)
def test_a_phone_has_room_for_words_legends_and_fingers(browser, pages, window, name, width):
    window(width)
    open_page(browser, pages[name])
    wide, cells, rows, above, small = browser.execute_script(
        "const edge = (chart, name) => chart.querySelector(name)?.getBoundingClientRect();"
        "return [document.documentElement.scrollWidth,"
        "  [...document.querySelectorAll('tr:not([hidden]) td.code')].filter(cell =>"
        "    cell.offsetHeight > 40).map(cell => cell.offsetWidth),"
        "  [...document.querySelectorAll('tbody tr:not([hidden])')].map(row => row.offsetHeight),"
        "  [...document.querySelectorAll('.chart')].filter(chart => edge(chart, '.legend') &&"
        "    edge(chart, '.legend').top < edge(chart, '.xtick').bottom).map(c => c.dataset.chart),"
        "  [...document.querySelectorAll('body > * :is(a, button, summary, input)')].filter(part =>"
        "    part.offsetWidth && Math.min(part.offsetWidth, part.offsetHeight) < 24)"
        "    .map(part => part.outerHTML)]"
    )
    assert wide <= width
    assert min(cells, default=width) >= 200, "a column that is narrower breaks names into pieces"
    assert max(rows) <= 80, "a row for a line of text is not three lines high"
    assert above == [] and small == []


def test_cards_stay_low_and_fill_their_rows_whatever_words_they_hold(browser, window, tmp_path):
    """One with words made all of its row 180 px tall, and a phone had half a row of nothing."""
    bound = "GPU memory bandwidth -> GPU compute"
    pairs = [("baseline", "6.88 ms"), ("95 % interval", "0.812 to 0.815"), ("bound by", bound)]
    pairs += [("counts as equal", "within 2 %")] * 3 + [("bound by", bound)]
    path = tmp_path / "page.html"
    document = Document("A", [], [Facts(pairs, cards=True)], [])
    path.write_text(page(document), encoding="utf-8")
    cards = (
        "return [...document.querySelectorAll('.cards > div')].map(card =>"
        " [card.offsetTop, card.offsetWidth, card.offsetHeight, card.innerText])"
    )
    for width, tallest, rows in ((1280, 120, 1), (PHONE, 110, 4)):
        window(width)
        load(browser, path.as_uri())
        tops, widths, heights, words = zip(*browser.execute_script(cards), strict=True)
        assert max(heights) <= tallest and len(set(tops)) == rows
        assert words[-1].startswith("GPU memory bandwidth → GPU compute")
    assert widths[-1] > 2 * widths[0], "the odd one has the row"


def test_the_first_screen_of_a_comparison_says_how_much_and_where_from(browser, pages, window):
    window(1440)
    open_page(browser, pages["compare"])
    said = browser.execute_script("return document.querySelector('h1').innerText")
    assert re.search(r" faster than .* \(95 %: .* times as fast\)$", said)
    bottom = browser.execute_script(
        "return document.querySelector('[data-chart=waterfall]').getBoundingClientRect().bottom"
    )
    assert bottom < 900


def comes_to(driver, script: str, wanted) -> object:
    """Returns what the script comes to at last: plotly draws again in its own time."""
    end = time.monotonic() + 10
    while not wanted(found := driver.execute_script(script)) and time.monotonic() < end:
        time.sleep(0.05)
    return found


HEIGHTS = """[...document.querySelectorAll('.chart')].map(chart => [
  chart.querySelector('.main-svg')?.getBoundingClientRect().height ?? 0, chart.clientHeight])"""


@pytest.mark.parametrize("name", ["report", "compare", "ranks", "dashboard", "long"])
def test_a_page_printed_as_soon_as_it_is_loaded_has_all_charts_in_their_boxes(
    browser, pages, window, name
):
    window(1280)
    browser.get("about:blank")
    on_paper = f"addEventListener('afterprint', () => {{ window.printed = {HEIGHTS}; }})"
    script = browser.execute_cdp_cmd(
        "Page.addScriptToEvaluateOnNewDocument", {"source": on_paper}
    )  # it comes before the page's own, which draws for the screen again
    load(browser, pages[name].as_uri())
    told = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)
    sheets = texts_of_sheets(base64.b64decode(told["data"]))
    assert len(sheets) >= 2 and min(sheets) > 5, sheets
    printed = browser.execute_script("return window.printed")
    assert printed and all(0 < drawn <= box for drawn, box in printed), printed
    if name == "long":  # of the others the charts are drawn for the screen again
        load(browser, pages[name].as_uri())
    fits = f"return {HEIGHTS}.filter(([drawn, box]) => !drawn || drawn > box)"
    assert comes_to(browser, fits, lambda found: found == []) == []


@pytest.mark.parametrize("name", ["report", "dashboard"])
def test_a_picture_is_saved_by_a_click_before_plotly_is_there(browser, pages, window, name):
    way = "click [data-picture=png]", "save"
    saved = answer(browser, Question("A figure?", name, way), pages[name].parent)
    assert saved is not None and saved.said.endswith(".png")


@pytest.mark.parametrize("name", ["compiled", "ranks", "compare"])
def test_no_page_is_wider_than_its_sheet(browser, pages, window, name):
    window(SHEET, "print")
    load(browser, pages[name].as_uri())
    assert browser.execute_script("return document.documentElement.scrollWidth") <= SHEET


def test_on_paper_each_curve_of_a_dashboard_has_its_key(dashboard):
    keys, above = dashboard.execute_script(
        "dispatchEvent(new Event('beforeprint'));"
        "const chart = document.querySelector('[data-lazy=s0-train]');"
        "const texts = [...chart.querySelectorAll('.legendtext')].map(text => text.textContent);"
        "const box = (of) => chart.querySelector(of).getBoundingClientRect();"
        "const above = box('.legend').bottom <= box('.xy .gridlayer').top + 1;"
        "dispatchEvent(new Event('afterprint')); return [texts, above]"
    )
    assert sorted(keys) == ["flash", "slow"] and above


OF_MANY = """
const [count, width, done] = arguments;
const chart = document.body.appendChild(document.createElement('div'));
const data = Array.from({ length: count }, (_, at) => ({
  name: `lr=${at / 1e4}, dropout=0.${at % 9}`, x: [0, 9], y: [at, at], legendgroup: at,
  meta: { kind: 'mean' } }));
const titled = { title: { text: 'x' } }, margin = { l: 10, r: 20, t: 10, b: 10 };
const usual = { showlegend: false, xaxis: titled, yaxis: titled, margin };
const made = withLegend({ data, layout: usual }, width, 250);
const [traces, layout] = themed(made);
Plotly.newPlot(chart, traces, { height: 250, ...layout, width }).then(async () => {
  const box = (of) => of.getBoundingClientRect(), find = (of) => chart.querySelector(of);
  const texts = [...chart.querySelectorAll('.legendtext')], legend = find('.legend');
  const fits = legend && box(legend).top >= box(find('.xtitle')).bottom
    && box(legend).bottom <= box(find('.main-svg')).bottom + 1
    && texts.every((text) => box(text).bottom <= box(legend).bottom);
  const notes = [...chart.querySelectorAll('.annotation-text')].map((text) => text.textContent);
  const names = texts.map((text) => text.textContent);
  await Plotly.react(chart, ...themed({ data, layout: usual })); // on the screen again
  await fitScreen(chart, 250);
  const bottom = chart._fullLayout._size.b;
  chart.remove();
  done([names, fits && bottom < 80, notes, made.layout.height ?? 250]);
});
"""


@pytest.mark.parametrize(("count", "width"), [(9, 640), (32, 640), (32, 320)])
def test_the_picture_of_many_curves_has_its_legend_below_it(dashboard, count, width):
    names, fits, _, height = dashboard.execute_async_script(OF_MANY, count, width)
    assert len(names) == count and names[1] == "0.0001 · 0.1" and fits
    assert height < 250 + (count * 20 if width == 320 else count * 8)


def test_the_picture_of_more_curves_than_can_be_read_says_where_their_key_is(dashboard):
    names, _, notes, height = dashboard.execute_async_script(OF_MANY, 33, 640)
    assert (names, height, notes) == ([], 250, ["33 curves; their key is on the page"])


def texts_of_sheets(pdf: bytes) -> list[int]:
    """Number of pieces of text that each page of a PDF shows."""
    objects = {int(m[1]): m[2] for m in re.finditer(rb"(\d+) 0 obj(.*?)endobj", pdf, re.S)}
    found = []
    for content in objects.values():
        if re.search(rb"/Type\s*/Page\b", content):
            number = re.search(rb"/Contents (\d+) 0 R", content)
            stream = objects[int(number[1])].partition(b"stream")[2].strip(b"\r\n")
            found.append(len(re.findall(rb"T[jJ]\b", zlib.decompressobj().decompress(stream))))
    return found


def test_one_chart_is_drawn_in_a_frame_and_what_waits_is_drawn_once(report):
    report.set_script_timeout(20)
    drawn = report.execute_async_script("""
        const done = arguments[0], react = Plotly.react, drawn = [];
        let frame = 0, over = false;
        const count = () => { frame += 1; if (!over) requestAnimationFrame(count); };
        requestAnimationFrame(count);
        Plotly.react = (chart, ...all) => {
          drawn.push([chart.dataset.chart, frame]);
          return react(chart, ...all);
        };
        redrawCharts();
        redrawCharts();
        turn.then(() => { Plotly.react = react; over = true; done(drawn); });
    """)
    names, frames = [name for name, _ in drawn], [frame for _, frame in drawn]
    assert len(names) == len(set(names)) >= 4, drawn
    assert frames == sorted(set(frames)), "two charts held up one frame"


def test_the_first_screen_answers(report, window):
    window(1440)
    headline, bar, evidence, following, folded, step_times = report.execute_script(
        "const box = (part) => part.getBoundingClientRect().toJSON();"
        "const [one, other] = document.querySelectorAll('#verdict .side > div');"
        "return [document.querySelector('h1').textContent,"
        "  box(document.querySelector('[data-chart=breakdown]')), box(one), box(other),"
        "  [...document.querySelectorAll('#verdict details.folded')].map(part => part.innerText),"
        "  [...document.querySelectorAll('.cards > div')].map(card => card.innerText)"
        "    .filter(text => / ms\\b/.test(text))]"
    )
    assert headline.startswith("Bound by GPU compute")
    assert bar["bottom"] <= 900 and max(evidence["bottom"], following["bottom"]) <= 900
    assert evidence["top"] == following["top"] and evidence["right"] < following["left"]
    assert folded == ["Upper limits of the time per step that each bottleneck costs (10)"]
    assert len(step_times) == 1
    window(PHONE)
    figure = "return document.querySelector('.cards strong').getBoundingClientRect().bottom"
    assert report.execute_script(figure) < 400


def test_on_paper_a_page_is_light_and_no_chart_is_cut(report, window):
    window(1280)
    report.execute_script("localStorage.setItem('theme', 'dark'); applyTheme(); redrawCharts()")
    window(SHEET, "print")
    report.execute_script("dispatchEvent(new Event('beforeprint'))")
    cut = "return [...document.querySelectorAll('.chart')].filter(chart =>"
    cut += "  chart.querySelector('.main-svg').getBoundingClientRect().right"
    cut += "  > chart.parentElement.getBoundingClientRect().right).map(c => c.dataset.chart)"
    assert comes_to(report, cut, lambda found: found == []) == []
    assert report.execute_script("return document.documentElement.scrollWidth") <= SHEET
    theme = "return document.documentElement.dataset.theme"
    assert report.execute_script(theme) == "light"
    window(1280)
    report.execute_script("dispatchEvent(new Event('afterprint'))")
    wide = "return document.querySelector('.main-svg').getBoundingClientRect().width"
    assert comes_to(report, wide, lambda found: found > SHEET) > SHEET
    assert report.execute_script(theme) == "dark"
    report.execute_script("localStorage.clear(); applyTheme(); redrawCharts()")


def test_who_hears_a_page_hears_its_figures(report):
    labels, tables, heads, skip = report.execute_script(
        "const all = (name) => [...document.querySelectorAll(name)];"
        "return [all('.chart').map(chart => chart.ariaLabel),"
        "  all('table').map(table => table.caption?.textContent ?? ''),"
        "  all('th').filter(head => head.scope !== 'col').length,"
        "  document.querySelector('body > a').hash]"
    )
    assert all(re.search(r"\d", label) for label in labels)
    assert "compute 5.3" in labels[0] and "ms of the typical step" in labels[0]
    assert all(tables) and heads == 0 and skip == "#content"
    live = report.find_elements("css selector", ".tools [aria-live=polite]")
    assert len(live) == len(tables)


def test_the_numbers_of_a_chart_stand_behind_it(report):
    found = report.execute_async_script(
        "const done = arguments[0], details = document.querySelector('[data-numbers=families]');"
        "details.open = true; setTimeout(() => done([...details.querySelectorAll('tbody tr')]"
        "  .map(row => [row.cells[0].textContent, +row.cells[1].dataset.value])), 100)"
    )
    families = capture_of("flash_metrics").report.families
    assert dict(found) == {f.family: pytest.approx(f.total_ns / 1e6) for f in families}


def test_a_chart_is_saved_as_png_and_svg(report):
    made = report.execute_async_script(
        "const done = arguments[0], made = [];"
        "Plotly.downloadImage = async (figure, how) => {"
        "  made.push([how.filename, (await Plotly.toImage(figure, how)).slice(0, 60)]);"
        "  if (made.length === 2) done(made); };"
        "document.querySelectorAll('[data-chart=families] + .pictures button')"
        "  .forEach(button => button.click())"
    )
    assert sorted([name, url.partition(",")[0]] for name, url in made) == [
        ["report-families", "data:image/png;base64"],
        ["report-families", "data:image/svg+xml"],
    ]


def test_a_family_leads_to_its_kernels(report):
    report.find_element("css selector", "#table-families tbody a").click()
    first = report.execute_script(
        "return document.querySelector('#table-families tbody td').textContent.split(' ')[0]"
    )
    assert set(report.execute_script(FAMILY)) == {first}
    report.execute_script(
        "const chart = document.querySelector('[data-chart=families]');"
        "chart.emit('plotly_click', {points: [{y: 'norm'}]})"
    )
    assert comes_to(report, FAMILY, lambda found: set(found) == {"norm"})


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_labels_in_bars_are_read_in_both_themes(report, theme):
    bars = report.execute_async_script(
        "const [theme, done] = arguments; document.documentElement.dataset.theme = theme;"
        "redrawCharts(); const bar = document.querySelector('[data-chart=breakdown]');"
        "turn.then(() => done(bar.data.map("
        "  ({name, marker, insidetextfont}) => [name, insidetextfont.color, marker.color,"
        "    marker.pattern?.fgcolor ?? marker.color])))",
        theme,
    )
    assert len(bars) >= 5
    for name, ink, colour, hatch in bars:
        assert min(contrast(ink, colour), contrast(ink, hatch)) >= 4.5, name
        assert (hatch != colour) == name.startswith("idle: ")


def test_the_filter_knows_either_not_patterns_and_columns(tables):
    names = every_kernel(tables)
    either = filtered(tables, "gemm|softmax")
    assert 0 < len(either) < len(names)
    assert len(filtered(tables, "-gemm|softmax")) == len(names) - len(either)
    pattern = filtered(tables, r"/^flash_(fwd|bwd)/")
    assert pattern == [n for n in names if re.match("flash_(fwd|bwd)", n)] and pattern
    assert filtered(tables, "family:norm") == [n for n in names if n in in_family(tables, "norm")]
    filtered(tables, "/(/")
    assert (
        "regular expression" in tables.find_element("css selector", "#kernels .shown").text.lower()
    )


def every_kernel(driver) -> list[str]:
    button = driver.find_element("css selector", "#table-kernels .all")
    if button.is_displayed() and button.text != "fewer":
        button.click()
    return driver.execute_script(NAMES)


def in_family(driver, family: str) -> list[str]:
    return driver.execute_script(
        "return [...document.querySelectorAll('#table-kernels tbody tr')]"
        ".filter(row => row.cells[1].textContent.trim() === arguments[0])"
        ".map(row => row.cells[0].textContent.trim())",
        family,
    )


def filtered(driver, text: str) -> list[str]:
    driver.execute_script(
        "const field = document.querySelector('#table-kernels input'); field.value = arguments[0];"
        "field.dispatchEvent(new Event('input'))",
        text,
    )
    return driver.execute_script(NAMES)


def test_filter_and_order_stand_in_the_address(tables):
    filtered(tables, "gemm|norm")
    heads = "#table-kernels th:nth-child(3) button"
    tables.find_element("css selector", heads).click()
    before, address = tables.execute_script(NAMES), tables.execute_script("return location.href")
    assert "kernels.sort=-3" in address and "kernels.filter=gemm" in address
    tables.execute_script("location.hash = 'health'")
    assert tables.execute_script("return location.hash").startswith("#health")
    load(tables, address)
    assert tables.execute_script(NAMES) == before


def saved(driver, table: str, kind: str) -> str:
    return driver.execute_async_script(
        "const [table, kind, done] = arguments, made = URL.createObjectURL;"
        "URL.createObjectURL = (blob) => { blob.text().then(done); return '#'; };"
        "HTMLAnchorElement.prototype.click = () => {};"
        "document.querySelector(`#table-${table} .${kind}`).click(); URL.createObjectURL = made;",
        table,
        kind,
    )


def test_a_table_is_taken_away_as_csv_and_json(tables):
    kernels = capture_of("flash_metrics").report.kernels
    rows = list(csv.DictReader(io.StringIO(saved(tables, "kernels", "csv"), newline="")))
    assert {(row["kernel"], int(row["count"])) for row in rows} == {
        (kernel.name, kernel.count) for kernel in kernels
    }
    assert sum(float(row["total [ns]"]) for row in rows) == sum(k.total_ns for k in kernels)
    filtered(tables, "family:norm")
    told = json.loads(saved(tables, "kernels", "json"))
    assert {row["family"] for row in told} == {"norm"}
    steps = capture_of("flash_metrics").report.window.steps
    for row in told:
        assert row["total per step [ns]"] == pytest.approx(row["total [ns]"] / steps)
    gaps = json.loads(saved(tables, "gaps", "json"))
    assert all(isinstance(gap["ms"], float) for gap in gaps)


def test_what_is_taken_away_holds_no_words_of_links_and_no_dashes(tables):
    known = capture_of("flash_metrics").report
    families = list(csv.DictReader(io.StringIO(saved(tables, "families", "csv"), newline="")))
    assert [row["family"] for row in families] == [row.family for row in known.families]
    assert [int(row["total [ns]"]) for row in families] == [r.total_ns for r in known.families]
    missing = tables.execute_script(
        "const box = document.querySelector('#table-families');"
        "box.querySelector('tbody td').firstChild.textContent = '–';"
        "return exported(box)[1][0][0]"
    )
    assert missing is None


def test_a_command_is_copied_by_its_button(tables):
    told = tables.execute_async_script(
        "const done = arguments[0]; Object.defineProperty(navigator, 'clipboard',"
        "  {value: {writeText: (text) => done(text)}});"
        "document.querySelector('#verdict button.copy').click()"
    )
    assert told.startswith("python -m profiling ncu ") and told.endswith("-- COMMAND")


@pytest.mark.parametrize("clipboard", ["allowed", "forbidden"])
def test_the_answer_is_copied_as_text_and_as_markdown(tables, clipboard):
    tables.execute_script(
        "window.copied = []; const write = (text) => copied.push(text);"
        "const allowed = { writeText: async (text) => write(text) };"
        "const forbidden = arguments[0] === 'forbidden';"
        "Object.defineProperty(navigator, 'clipboard', {value: forbidden ? undefined : allowed});"
        "document.addEventListener('copy', () => write(document.activeElement.value))",
        clipboard,
    )
    tables.find_element("css selector", "[popovertarget=export]").click()
    for kind in ("text", "markdown"):
        button = tables.find_element("css selector", f"[data-copy={kind}]")
        button.click()
        assert comes_to(tables, "return copied.length", lambda count: count) and button.text
    text, markup = tables.execute_script("return copied")
    verdict = tables.find_element("css selector", "#verdict h1").text
    assert f"\n\n{verdict}\n\n- " in text and "\\_" not in text
    assert markup.startswith(f"## {verdict}\n") and "- **next:** " in markup


def test_all_figures_are_saved_as_report_prints_them(tables):
    told = tables.execute_async_script(
        "const done = arguments[0];"
        "URL.createObjectURL = (blob) => { blob.text().then(done); return '#'; };"
        "HTMLAnchorElement.prototype.click = () => {};"
        "document.querySelector('[data-save=json]').click()"
    )
    assert told == to_json(capture_of("flash_metrics").report)


def test_a_page_to_be_passed_on_holds_no_folders():
    as_json = json.dumps({"command": ["python", "/home/me/secret/train.py"]})
    text = page(Document("A", [], [], []), as_json=as_json)
    told = json.loads(unpacked(re.search(r'id="as-json">(.*?)<', text)[1]))
    assert told == {"command": ["python", "train.py"]}


def test_perfetto_is_reached_by_a_command_with_the_captures_own_name(tables):
    command = tables.find_element("css selector", "#export .command")
    words = command.get_attribute("textContent").split()
    assert words[:4] == ["python", "-m", "profiling", "export"]
    assert words[4:] == ["flash_metrics.sqlite.gz", "--perfetto", "perfetto.json.gz"]


def test_without_scripts_charts_stand_still_and_no_button_is_dead(browser, pages):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(pages["report"].as_uri())
        shown = [b.text for b in browser.find_elements("css selector", "button") if b.text]
        still = browser.find_element("css selector", ".chart svg")
        assert shown == ["export"] and still.size["height"] > 100
        assert "Without JavaScript" in browser.find_element("css selector", "noscript").text
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
