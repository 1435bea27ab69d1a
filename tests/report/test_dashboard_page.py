"""Dashboard: its words, its charts, and the page in a headless Chromium."""

import json
import re
import time
from dataclasses import replace

import numpy as np
import pytest

from profiling.analysis.runs.folder import read_run
from profiling.analysis.runs.groups import Spread, sections_of, tokens_per_s
from profiling.report.dashboard import dashboard_charts, words
from profiling.report.dashboard.document import dashboard_page
from profiling.report.packed import plotly_script
from profiling.shared.metric_names import PEAK_BYTES, STEP_MS, VAL_LOSS
from tests.helpers import folders
from tests.helpers.chromium import draw_all, load, wait_until
from tests.helpers.figures import figures_of
from tests.helpers.folders import write_run

pytestmark = pytest.mark.slow  # in a real browser

DRAWN = """
return [...document.querySelectorAll('[data-lazy]')].map(chart =>
  [chart.dataset.lazy, chart.querySelectorAll('.scatterlayer path, .boxlayer path').length])
"""
FIRST = "document.querySelector('[data-lazy=s0-train]')"


def both(folder, seeds=(1, 2), **keys):
    """Runs of slow and flash with these seeds."""
    folders = [
        write_run(folder / f"{attention}-{seed}", attention, seed, **keys)
        for attention in ("slow", "flash")
        for seed in seeds
    ]
    return [read_run(folder) for folder in folders]


def headline_and_findings(runs, loss=None):
    (section,) = sections_of(runs)
    return words.headline(section), words.findings(section, loss)


def test_the_verdict_is_said_in_words(tmp_path):
    headline, findings = headline_and_findings(both(tmp_path, (1, 2, 3)), loss=2.5)
    assert re.fullmatch(
        r"flash is 1\.2[12]x faster than slow: 5\.4\d against 6\.\d\d ms per step "
        r"\(95 %: 1\.\d+ to 1\.\d+ times as fast\)",
        headline,
    )
    assert findings[0] == "The configurations differ only in attention."
    assert findings[1].startswith("From 3 runs of each; two runs of the same configuration differ")
    assert any("the seeds' ranges overlap" in line for line in findings)
    reach = next(line for line in findings if "validation loss of 2.5" in line)
    slow_s, flash_s = (float(x) for x in re.findall(r"(?:slow|flash) ([\d.]+) s", reach))
    assert flash_s < slow_s
    assert findings[-1].startswith("Energy, µJ per token: slow 2")


def test_equal_runs_are_not_called_faster(tmp_path):
    runs = [
        read_run(write_run(tmp_path / f"r{i}", "flash", i, dropout=i % 2 / 10)) for i in range(6)
    ]
    headline, _ = headline_and_findings(runs)
    assert re.match(r"dropout=0\.\d and dropout=0\.\d are equally fast within 2 %: ", headline)


def test_noise_is_said_to_tell_nothing_and_what_would(tmp_path, monkeypatch):
    runs = []
    for seed, factor in enumerate((1, 1.3, 0.8)):
        for attention in ("slow", "flash"):
            monkeypatch.setitem(
                folders.STEP_MS, attention, 5.4 * factor + (attention == "slow") * 0.3
            )
            runs.append(read_run(write_run(tmp_path / f"{attention}{seed}", attention, seed)))
    headline, _ = headline_and_findings(runs)
    assert re.match(
        r"Cannot tell whether flash is faster than slow: .*; about \d+ runs of each would show it$",
        headline,
    )


def test_one_seed_a_side_is_said_to_be_little(tmp_path):
    _, findings = headline_and_findings(both(tmp_path, (1,)))
    assert findings[1] == words.ONE_RUN
    assert findings[2].endswith("with one seed each this may be chance.")


def test_many_configurations_stay_readable(tmp_path):
    runs = [
        read_run(write_run(tmp_path / f"{a}{i}", a, 1, learning_rate=i / 1e4))
        for a in ("slow", "flash")
        for i in range(5)
    ]
    headline, findings = headline_and_findings(runs)
    assert re.fullmatch(
        r"Equally fast within 2 %: the 5 with attention=flash, at 5\.41 ms per step; the other 5 "
        r"are 1\.22x slower",
        headline,
    )
    assert any(" is 1.22x faster than attention=slow" in line for line in findings)
    assert max(map(len, findings)) < 420


def test_which_is_fastest_is_left_open_where_the_runs_cannot_tell(tmp_path, monkeypatch):
    """The speed is in the table's unit, and no configuration is named by a number."""
    times = {"slow": (60, 61), "flash": (5.0, 5.6), "triton": (5.2, 5.5), "math": (5.1, 5.7)}
    runs = []
    for attention, of_seed in times.items():
        for seed, ms in enumerate(of_seed):
            monkeypatch.setitem(folders.STEP_MS, attention, ms)
            size = 32 if attention == "slow" else 64
            runs.append(
                read_run(
                    write_run(tmp_path / f"{attention}{seed}", attention, seed, batch_size=size)
                )
            )
    headline, findings = headline_and_findings(runs)
    assert re.fullmatch(
        r"Cannot tell which of the 3 with batch_size=64 is fastest: 3,\d{3},\d{3} to 3,\d{3},\d{3} "
        r"tokens/s; attention=slow, batch_size=32 is 2\dx slower",
        headline,
    ), headline
    assert "#" not in headline + "".join(findings)
    (section,) = sections_of(runs)
    speeds = [f"{tokens_per_s(group):,.0f}" for group in section.groups]
    assert sum(speed in headline for speed in speeds) == 2, "as the table has them"


def test_a_run_that_just_started_has_no_verdict(tmp_path):
    headline, _ = headline_and_findings([read_run(write_run(tmp_path / "run", rows=2))])
    assert headline.startswith("No step times yet")


def test_decimation_keeps_every_extreme_inside_of_the_band():
    random = np.random.default_rng(0)
    values = random.standard_normal(5003)
    iteration = np.arange(5003.0)
    spread = Spread(iteration, iteration / 9, values, values - 1, values + 1)
    shown = dashboard_charts.decimate(spread, 200)
    assert len(shown.mean) == 200
    assert (shown.low.min(), shown.high.max()) == (values.min() - 1, values.max() + 1)
    assert np.average(shown.mean, weights=np.diff(shown.iteration, append=5003)) == pytest.approx(
        values.mean(), abs=0.05
    )
    few = Spread(*(iteration[:5],) * 5)
    assert dashboard_charts.decimate(few, 200) is few


def test_a_curve_has_a_line_and_a_band_for_each_group(tmp_path):
    (section,) = sections_of(both(tmp_path))
    figure = dashboard_charts.curves(section, VAL_LOSS)
    assert [trace["name"] for trace in figure["data"]] == [
        *("slow, spread", "flash, spread"),
        *("slow-1", "slow-2", "flash-1", "flash-2"),
        *("slow", "flash"),
    ]
    line = figure["data"][6]
    assert len(line["x"]) == len(line["y"]) == len(line["meta"]["elapsed_s"])
    over_time = dashboard_charts.curves(section, VAL_LOSS, over_time=True)["data"][6]
    assert over_time["meta"]["iteration"] == line["x"]
    assert over_time["x"] == line["meta"]["elapsed_s"] and over_time["y"] == line["y"]
    step_ms = dashboard_charts.curves(section, STEP_MS, common=True)
    assert step_ms["layout"]["yaxis"]["range"][0] == 0


def test_values_are_shown_in_the_unit_of_the_axis(tmp_path):
    (section,) = sections_of(both(tmp_path, (1,)))
    memory = dashboard_charts.curves(section, PEAK_BYTES)["data"]
    assert {trace["name"]: trace["y"][0] for trace in memory} == {"slow": 3.9, "flash": 2.4}


def test_what_held_a_run_back_is_told_where_it_said_so(tmp_path):
    folder = write_run(tmp_path / "run")
    assert "What limited each run" not in dashboard_page([read_run(folder)])
    results = json.loads((folder / "summary.json").read_text()) | {"verdict": "evaluation: 60 %"}
    (folder / "summary.json").write_text(json.dumps(results))
    page = dashboard_page([read_run(folder)])
    assert "What limited each run" in page and "evaluation: 60 %" in page


def test_names_of_runs_are_text_and_no_markup(tmp_path):
    runs = [read_run(write_run(tmp_path / "<b>x", attention="<script>alert(1)</script>"))]
    page = dashboard_page(runs)
    assert "<script>alert" not in page and "<b>x" not in page


def test_what_was_not_logged_is_said(tmp_path):
    runs = [read_run(write_run(tmp_path / "run", gpu=False))]
    page = dashboard_page(runs)
    assert "These runs logged no GPU metrics" in page
    assert (
        "Not logged by these runs: time the host waits for a batch, model FLOP utilisation "
        "(MFU), peak" in page
    )


def test_cpu_use_of_the_process_is_drawn_also_without_a_gpu(tmp_path):
    page = dashboard_page([read_run(write_run(tmp_path / "run", gpu=False))])
    assert "CPU use of the process (100 %: one core), %" in page
    assert '"s0-cpu/process_percent"' in page


def test_metrics_of_further_gpus_and_others_are_drawn(tmp_path):
    folder = write_run(tmp_path / "run")
    text = (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").write_text(text.replace('"gpu/power_w"', '"gpu1/power_w"'))
    page = dashboard_page([read_run(folder)], extra=["lr"])
    assert "GPU 1: power" in page and "learning rate" in page


def write_run_of_ranks(folder, slowest=(1, 1, 1, 0), wait_ms=2.0, seed=1):
    """Each row has these metrics, and the slowest rank in turns."""
    write_run(folder, seed=seed)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    rows = [line for line in lines if "train/loss" in line]
    for number, row in enumerate(rows):
        row["time/wait_ms"] = row["time/wait_ms/rank0"] = wait_ms
        row["time/straggler_ms"], row["time/sync_ms"] = 2 * wait_ms, 0.25
        row["time/slowest_rank"] = slowest[number % len(slowest)]
        row["time/slowest_rank_ms"], row["time/fastest_rank_ms"] = 5.0, 3.0
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_who_was_waited_for_is_shown_where_ranks_logged_it(tmp_path):
    ranks, alone = write_run_of_ranks(tmp_path / "ranks"), write_run(tmp_path / "alone", dropout=0)
    page = dashboard_page([read_run(ranks), read_run(alone)], extra=["time/wait_ms/rank0"])
    assert "cost of slower ranks, ms per step" in page and "1, in 75 % of the rows" in page
    assert "rank 0 2.00" in page and "rank 0: wait for the last rank, ms per step" in page
    for name in ("wait_ms", "straggler_ms", "sync_ms", "slowest_rank_ms"):
        assert f'"s0-time/{name}"' in page
    _, findings = headline_and_findings([read_run(ranks), read_run(alone)])
    waited = "Wait for the last rank, ms per step: dropout=0.2 2.00 (slowest: rank 1, in 75 % of"
    assert [line.startswith(waited) for line in findings].count(True) == 1


def test_seeds_whose_slowest_ranks_differ_name_none(tmp_path):
    runs = [
        read_run(write_run_of_ranks(tmp_path / f"{seed}", (seed,), wait_ms=seed, seed=seed))
        for seed in (0, 1)
    ]
    _, findings = headline_and_findings(runs)
    assert "Wait for the last rank, ms per step: flash 0.500." in findings


def test_a_page_of_runs_of_one_rank_says_nothing_of_ranks(tmp_path):
    page = dashboard_page([read_run(write_run(tmp_path / "run"))])
    assert "s0-ranks" not in page and "last rank" not in page and "slower rank" not in page


def test_an_unknown_metric_is_refused_with_the_nearest(tmp_path):
    runs = [read_run(write_run(tmp_path / "run"))]
    with pytest.raises(ValueError, match="--metric train/los: .*did you mean train/loss"):
        dashboard_page(runs, extra=["train/los"])


def test_other_texts_are_kept_apart_and_said(tmp_path):
    runs = [read_run(write_run(tmp_path / "a")), read_run(write_run(tmp_path / "b", data="novel"))]
    page = dashboard_page(runs)
    assert "different texts" in page
    assert "on shakespeare_char (novel)" in page and "s1-loss" in page


def test_captures_are_linked_from_where_the_page_lies(tmp_path):
    folder = write_run(tmp_path / "runs" / "a b")
    (folder / "profile").mkdir()
    (folder / "profile" / "nsys.sqlite").touch()
    run = read_run(folder)
    linked = dashboard_page([run], links_from=tmp_path)
    assert '<a href="runs/a%20b/profile/nsys.sqlite">nsys.sqlite</a>' in linked
    assert str(tmp_path) not in linked + json.dumps(figures_of(linked)), "it is passed on"
    unlinked = dashboard_page([run]).split("Captures</h3>")[1].split("</table>")[0]
    assert "<a href=" not in unlinked and "<code>nsys.sqlite" in unlinked


@pytest.fixture(scope="module")
def opened(browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dashboard")
    (folder / "page.html").write_text(dashboard_page(both(folder)), encoding="utf-8")
    browser.get_log("performance")
    load(browser, (folder / "page.html").as_uri())
    return browser


@pytest.fixture
def at_chart(opened):
    """Page with the first small chart in view: the others are drawn anew when they come into it."""
    look_at_chart(opened)
    yield opened
    press(opened, "[data-reset]")


def look_at_chart(driver):
    driver.execute_script(f"{FIRST}.scrollIntoView({{block: 'center'}})")
    time.sleep(0.5)


def scroll_through(driver):
    """Everything has come into view once."""
    for share in np.linspace(0, 1, 8):
        driver.execute_script(f"scrollTo(0, {share} * document.body.scrollHeight)")
        time.sleep(0.1)
    driver.execute_script("scrollTo(0, 0)")


@pytest.mark.slow
def test_every_chart_is_drawn_without_an_error_and_without_the_network(opened):
    draw_all(opened)
    drawn = dict(opened.execute_script(DRAWN))
    assert {"s0-loss", "s0-loss_time", "s0-reach", "s0-steps", "s0-perf/mfu"} <= set(drawn)
    assert len(drawn) == 22 and min(drawn.values()) >= 2, drawn
    assert opened.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    asked = [
        m["params"]["request"]["url"]
        for m in messages
        if m["method"] == "Network.requestWillBeSent"
    ]
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.slow
def test_the_x_axis_switches_between_iterations_and_time(at_chart):
    def x_axis():
        return at_chart.execute_script(
            f"return [{FIRST}.layout.xaxis.title.text, Math.max(...{FIRST}.data.at(-1).x)]"
        )

    assert x_axis() == ["iteration", 390]
    at_chart.find_element("css selector", "[data-axis=time]").click()
    wait_until(lambda: x_axis()[0] == "training time, s")  # plotly draws in its own time
    assert 1.5 < x_axis()[1] < 4
    at_chart.find_element("css selector", "[data-axis=iteration]").click()
    wait_until(lambda: x_axis() == ["iteration", 390])


@pytest.mark.slow
def test_a_configuration_can_be_hidden(at_chart):
    button = at_chart.find_element("css selector", "[data-group='0']")
    shown = f"return {FIRST}.data.filter(trace => trace.visible !== false).map(t => t.name)"
    button.click()
    flash = ["flash, spread", "flash-1", "flash-2", "flash"]
    wait_until(lambda: at_chart.execute_script(shown) == flash)
    button.click()
    wait_until(lambda: len(at_chart.execute_script(shown)) == 8)


LAST_Y = f"name => {FIRST}.data.find(trace => trace.name === name).y.at(-1)"
RANGES = """
return [...document.querySelectorAll('[data-drawn]')].filter(chart => chart.data)
  .map(chart => [chart.dataset.lazy, chart.layout.xaxis.range])
"""


def press(driver, selector):
    driver.execute_script(f"document.querySelector({json.dumps(selector)}).click()")
    time.sleep(0.3)


@pytest.mark.slow
def test_a_run_that_is_hidden_is_not_in_the_mean(at_chart):
    last = [f"return ({LAST_Y})('{name}')" for name in ("flash", "flash-1", "flash-2")]
    mean, one, two = map(at_chart.execute_script, last)
    assert mean == pytest.approx((one + two) / 2, abs=1e-4) and one != two
    press(at_chart, "[data-run$='flash-2']")
    assert at_chart.execute_script(last[0]) == pytest.approx(one, abs=1e-4)
    assert "hide=" in at_chart.execute_script("return location.hash")
    press(at_chart, "[data-reset]")
    assert at_chart.execute_script(last[0]) == mean
    assert "hide=" not in at_chart.execute_script("return location.hash")


@pytest.mark.slow
def test_zoom_is_linked_over_charts_of_one_axis_and_stands_in_the_address(at_chart):
    at_chart.execute_script(
        f"Plotly.relayout({FIRST}, {{'xaxis.range[0]': 100, 'xaxis.range[1]': 200}})"
    )
    time.sleep(0.5)
    scroll_through(at_chart)
    ranges = dict(at_chart.execute_script(RANGES))
    assert ranges["s0-train"] == ranges["s0-loss"] == ranges["s0-perf/mfu"] == [100, 200]
    assert ranges["s0-loss_time"] != [100, 200], "another axis"
    address = at_chart.execute_script("return location.hash")
    assert address == "#z.iteration=100%2C200"
    press(at_chart, "nav a[href='#s0-speed']")
    both = at_chart.execute_script("return location.hash")
    assert both == "#s0-speed&z.iteration=100%2C200", "a link to a section keeps it"
    press(at_chart, "[data-reset]")
    scroll_through(at_chart)
    ranges = dict(at_chart.execute_script(RANGES))
    assert ranges["s0-train"][1] > 300 and ranges["s0-perf/mfu"][1] > 300


@pytest.mark.slow
def test_log_axis_end_of_curves_and_smoothing(at_chart):
    press(at_chart, "[data-toggle=end]")
    low, high = at_chart.execute_script(f"return {FIRST}.layout.yaxis.range")
    assert 1.3 < low < high < 2.9, "of losses from 4.2 to 2"
    press(at_chart, "[data-toggle=log]")
    assert at_chart.execute_script(f"return {FIRST}.layout.yaxis.type") == "log"
    low, high = at_chart.execute_script(f"return {FIRST}.layout.yaxis.range")
    assert 1.3 < 10**low < 10**high < 2.9
    press(at_chart, "[data-reset]")
    wiggle = f"""
    const y = {FIRST}.data.find(trace => trace.name === 'flash').y;
    return y.slice(2).reduce((sum, v, i) => sum + Math.abs(v - 2 * y[i + 1] + y[i]), 0)
    """
    before = at_chart.execute_script(wiggle)
    at_chart.execute_script(
        "const s = document.querySelector('[data-smooth]'); s.value = 0.8;"
        "s.dispatchEvent(new Event('input', {bubbles: true}));"
        "s.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    time.sleep(0.3)
    assert at_chart.execute_script(wiggle) < before / 2
    assert at_chart.execute_script("return location.hash").endswith("smooth=0.8")
    press(at_chart, "[data-reset]")


@pytest.mark.slow
def test_an_address_opens_the_page_as_it_was_left(at_chart):
    page = at_chart.current_url.partition("#")[0]
    load(at_chart, page + "#s0-loss&x=time&log=1&runs=0&hide=s0%3Aslow&z.time=1%2C2")
    time.sleep(0.5)
    look_at_chart(at_chart)
    found = at_chart.execute_script(
        f"const c = {FIRST}; return [c.layout.xaxis.range, c.layout.yaxis.type,"
        "c.data.filter(trace => trace.visible !== false).map(trace => trace.name)]"
    )
    assert found == [[1, 2], "log", ["flash, spread", "flash"]]
    press(at_chart, "[data-reset]")
    assert at_chart.get_log("browser") == []


SHOWN = f"return {FIRST}.data.filter(trace => trace.visible !== false).map(trace => trace.name)"


@pytest.mark.slow
def test_runs_are_found_and_grouped_by_a_key_and_the_address_keeps_it(at_chart):
    def ask(words):
        at_chart.execute_script(
            "const field = document.querySelector('[data-where]'); field.value = arguments[0];"
            "field.dispatchEvent(new Event('input', {bubbles: true}))",
            words,
        )
        return at_chart.find_element("css selector", "[data-matching]").text

    assert ask("att=flash step<6") == "2 of 4 runs"
    wait_until(
        lambda: at_chart.execute_script(SHOWN) == ["flash, spread", "flash-1", "flash-2", "flash"]
    )
    rows = "return document.querySelectorAll('#table-s0-runs tbody tr:not([hidden])').length"
    assert at_chart.execute_script(rows) == 2
    assert ask("lr>1") == "lr: no column of the table of runs is called so"
    assert ask("loss<2") == "loss: which of best_val_loss, training_loss?"
    assert ask("-slow-2 step>6 seed=1|2") == "1 of 4 runs"
    page, address = at_chart.current_url.partition("#")[::2]
    assert "where=-slow-2+step%3E6+seed%3D1%7C2" in address
    load(at_chart, f"{page}#by=attention&columns.s0=seed|attention&scatter.s0=seed|best+val+loss")
    time.sleep(0.3)
    look_at_chart(at_chart)
    both = ["attention=flash", "attention=slow"]
    assert [name for name in at_chart.execute_script(SHOWN) if "=" in name][-2:] == both
    keys = "return [...document.querySelectorAll('.legend:not([hidden]) [data-name]')]"
    assert at_chart.execute_script(f"{keys}.map(key => key.textContent.trim())") == [
        f"{label} 2" for label in both
    ]
    points = at_chart.execute_script("return shownFigure('s0-scatter-points').data.map(d => d.x)")
    assert points == [[1, 2], [1, 2]]
    heads = at_chart.execute_script(
        "return headsOf(document.querySelector('#table-s0-runs table'))"
        ".filter(head => getComputedStyle(head).display !== 'none').map(headingOf)"
    )
    assert heads[:3] == ["run", "configuration", "attention"] and "seed" not in heads
    press(at_chart, "[data-reset]")
    assert at_chart.get_log("browser") == []


@pytest.mark.slow
def test_the_x_under_the_pointer_is_shown_in_all_charts(at_chart):
    point = f"{{points: [{{x: 200, fullData: {FIRST}.data.at(-1)}}]}}"
    label = "c.querySelector('.hoverlayer :is(.hovertext, .legend)')"
    told = f"[...inView].filter(c => {label}).map(c => c.dataset.lazy)"

    def charts_that_tell():
        return at_chart.execute_script(f"{FIRST}.emit('plotly_hover', {point}); return {told}")

    wait_until(lambda: "s0-loss" in charts_that_tell())
    assert "s0-loss_time" not in charts_that_tell(), "another axis"


def test_rows_that_the_page_has_already_are_not_drawn_twice(opened):
    """Rows logged while the server made the page come once more."""
    found = opened.execute_script("""
        const meta = {metric: 'train/loss', scale: 2, over_time: false};
        const line = {x: [10, 20], y: [4, 3], meta: {run: 'a', elapsed_s: [1, 2]}};
        const figure = {data: [line, {x: [1], y: [1], meta: {kind: 'mean'}}], layout: {meta}};
        const rows = [20, 30].map(iter => ({iter, 'train/loss': 1, 'time/elapsed_s': iter / 10}));
        return [appendRows(figure, {a: rows}), appendRows(figure, {a: rows}), line];
    """)
    assert found[:2] == [True, False]
    assert found[2]["x"] == [10, 20, 30] and found[2]["y"] == [4, 3, 2]
    assert found[2]["meta"]["elapsed_s"] == [1, 2, 3]


@pytest.mark.slow
def test_axes_fit_into_the_margin_so_that_no_chart_is_drawn_twice(at_chart):
    margin, room = at_chart.execute_script(
        f"const {{margin, _size: size}} = {FIRST}._fullLayout;"
        "return [margin, size].map(({l, r, t, b}) => [l, r, t, b].map(Math.round))"
    )
    assert room == margin


@pytest.mark.slow
def test_charts_follow_the_theme(at_chart):
    ink = f"return getComputedStyle({FIRST}.querySelector('.xtick text')).fill"
    before = at_chart.execute_script(ink)
    press(at_chart, "#theme")
    assert at_chart.execute_script(ink) != before
    press(at_chart, "#theme")


@pytest.mark.slow
def test_twenty_runs_of_five_thousand_points_weigh_little_and_are_drawn(browser, tmp_path):
    runs = []
    for attention in ("slow", "flash"):
        run = read_run(write_run(tmp_path / attention, attention, rows=5000, gpu=False))
        runs += [replace(run, config=run.config | {"dropout": i / 20}) for i in range(10)]
    path = tmp_path / "page.html"
    text = dashboard_page(runs)
    assert len(text) - len(plotly_script()) < 300_000, "a point of a curve for each row"
    path.write_text(text, encoding="utf-8")
    load(browser, path.as_uri())
    drawn = "return document.querySelector('[data-drawn] .scatterlayer path') !== null"
    wait_until(lambda: browser.execute_script(drawn))
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("start_s, told", [(20.0, "wall time"), (None, "training time")])
def test_the_page_says_which_time_its_axis_is(tmp_path, start_s, told):
    folders = [write_run(tmp_path / name, name, start_s=start_s) for name in ("slow", "flash")]
    page = dashboard_page([read_run(folder) for folder in folders])
    assert f'data-title="{told}, s"' in page and f"{told.capitalize()} to a validation loss" in page
    assert f"validation loss over {told}" in page
    assert ("includes compiling, evaluations and checkpoints" in page) == (start_s is not None)
    figures = figures_of(page)
    assert figures["s0-loss_time"]["layout"]["xaxis"]["title"]["text"] == f"{told}, s"
    assert figures["s0-reach"]["layout"]["yaxis"]["title"]["text"] == f"{told}, s"
    (line,) = [t for t in figures["s0-loss_time"]["data"] if t["name"] == "flash"]
    assert line["x"][0] == pytest.approx(start_s or 0.0)
