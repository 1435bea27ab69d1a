"""`python -m profiling home`: the rows of a folder, what its server makes of them, the page."""

import os
import pickle
import shutil
import threading
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from profiling.analysis.runs.listing import list_entries
from profiling.report.dashboard.server import LivePage, PageServer
from profiling.verbs import home
from tests.helpers.chromium import load, wait_until
from tests.helpers.folders import with_rows, write_run
from tests.paths import CAPTURES, PROJECT
from validation.browser import resize

EXAMPLES = PROJECT / "profiling" / "examples"
RESULTS = '{"comparisons": [{"sentence": "cannot tell"}]}'


def of_kind(place: Path) -> dict[str, list]:
    found = {}
    for entry in list_entries(place):
        found.setdefault(entry.kind, []).append(entry)
    return found


@pytest.fixture
def place(tmp_path):
    """A folder with a run that ended, a sweep, an experiment, a capture and two snapshots."""
    place = tmp_path / "all"
    write_run(place / "ended")
    for number in (0, 1):
        write_run(place / "sweep" / str(number), seed=number)
    (place / "sweep" / "multirun.yaml").touch()
    write_run(place / "ab" / "runs" / "01-slow")
    (place / "ab" / "results.json").write_text(RESULTS)
    (place / "trace, mine.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    (place / "settings.json").write_text("{}")
    for name in ("leaky", "fixed"):
        shutil.copy(CAPTURES / "memory" / f"{name}.pickle", place)
    (place / "meta.pkl").write_bytes(pickle.dumps({"stoi": {"a": 1}, "itos": "segments"}))
    return place


def test_everything_in_a_folder_is_listed_with_what_is_known(place):
    under_way = write_run(place / "under way")
    (under_way / "summary.json").unlink()
    with_rows(place / "begun")
    (place / "begun" / "summary.json").unlink()
    found = of_kind(place)
    assert {kind: len(entries) for kind, entries in found.items()} == {
        **{"run": 5, "sweep": 1, "experiment": 1, "capture": 1, "snapshot": 2},
    }
    runs = {entry.path.name: entry for entry in found["run"]}
    assert runs["ended"].state == "ended" and runs["under way"].state == "running, or killed"
    assert runs["ended"].step_ms == pytest.approx(5.4, rel=0.01)
    assert 1.4 < runs["ended"].loss <= runs["under way"].loss < 3
    assert (runs["begun"].state, runs["begun"].step_ms) == ("no row yet", None)
    assert found["experiment"][0].verdict == "cannot tell" and len(found["sweep"][0].runs) == 2


def test_what_is_damaged_is_a_row_that_says_so(place):
    with open(place / "ended" / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write("damaged\n")
    (place / "sweep" / "0" / "config.yaml").unlink()
    (place / "ab" / "results.json").write_text("{")
    problems = sorted(entry.problem for entry in list_entries(place) if entry.problem)
    assert len(problems) == 3 and "results.json: is damaged" in problems[0]
    assert "this line was not written by training: damaged" in problems[1]
    assert "config.yaml: no such file" in problems[2]


def test_nothing_outside_of_the_folder_is_listed(place, tmp_path):
    write_run(tmp_path / "other")
    (place / "link").symlink_to(tmp_path / "other")
    (place / "trace.json").symlink_to(EXAMPLES / "slow_compile.sqlite.gz")
    (place / "loop").symlink_to(place)
    assert not any(entry.path.is_symlink() for entry in list_entries(place))
    (place / "ended" / "profile").symlink_to(EXAMPLES)
    assert not any(entry.captures for entry in of_kind(place)["run"])


def test_pipes_are_not_waited_for(place):
    before = len(list_entries(place))
    (place / "ended" / "profile").mkdir()
    for folder in (place, place / "ended" / "profile"):
        for name in ("pipe.json", "pipe.pickle", "pipe.html"):
            os.mkfifo(folder / name)
    assert len(list_entries(place)) == before
    assert not any(entry.captures for entry in of_kind(place)["run"])


def test_one_row_is_counted_as_one(tmp_path, capsys):
    (tmp_path / "one").mkdir()
    shutil.copy(EXAMPLES / "flash_compile.sqlite.gz", tmp_path / "one")
    assert home.main([str(tmp_path / "one"), "-o", str(tmp_path / "home.html")]) == 0
    assert capsys.readouterr().out.endswith("home.html: 1 row\n")


def test_a_page_links_the_pages_that_there_are_but_not_itself(place, capsys):
    capture = place / "trace, mine.json"
    head = '<meta content="script-src \'nonce-x\'"><meta name="step-ms" content="7.25"><title>'
    (place / "made.html").write_text(f"{head}Bound by X · {capture.name} · GPU</title>")
    (place / "held.html").write_text(
        "<!-- script-src 'nonce-x' --><title>It leaks · Memory: leaky.pickle</title>"
    )
    (place / "foreign.html").write_text("<title>foreign</title>")
    for _ in range(2):
        assert home.main([str(place), "-o", str(place / "home.html")]) == 0
    assert capsys.readouterr().out.endswith("home.html: 8 rows\n")
    page = (place / "home.html").read_text()
    assert '<a href="made.html">made.html</a>' in page and "<td>Bound by X</td>" in page
    assert "foreign" not in page and "connect-src" not in page
    snapshots = {entry.path.name: entry.verdict for entry in of_kind(place)["snapshot"]}
    assert snapshots == {"leaky.pickle": "It leaks", "fixed.pickle": None}
    assert of_kind(place)["capture"][0].step_ms == 7.25 and ">7.25</td>" in page


def test_a_folder_without_anything_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no such folder; give one that holds runs"):
        home.main([str(tmp_path / "none")])
    with pytest.raises(ValueError, match=r"no run, capture, snapshot or page in this folder"):
        home.main([str(tmp_path)])
    with pytest.raises(ValueError, match=r"^-o: --watch serves"):
        home.main([str(tmp_path), "--watch", "-o", "page.html"])


@pytest.fixture
def pages(place):
    return home.pages_of(place)


def test_the_server_makes_what_is_listed_and_nothing_else(place, pages):
    (place / "copy.sqlite.gz").write_bytes((EXAMPLES / "slow_compile.sqlite.gz").read_bytes())
    assert "sweep/1" in pages.find("/").page(bare=True).decode()
    dashboard = pages.find("/dashboard/sweep%2F0,ended/")
    assert (
        isinstance(dashboard, LivePage) and pages.find("/dashboard/sweep%2F0,ended/") is dashboard
    )
    assert b"2 runs" in dashboard.page(bare=True)
    report = pages.find("/report/copy.sqlite.gz/")
    assert b"Bound by" in report.content and report.policy == ""
    row = pages.find("/").page(bare=True).decode().partition("<td>Bound by")[2].split("<td")
    assert ">7.00<" in row[1], "verdict and step time are known from now on"
    compared = pages.find("/compare/ended,sweep%2F1/").content.decode()
    assert "ended" in compared and "not alike" not in compared
    assert b"keeps 3.0 MiB more with each step" in pages.find("/report/leaky.pickle/").content
    assert "<td>train.py:55 (main) keeps 3.0 MiB" in pages.find("/").page(bare=True).decode()
    assert (
        b"fixed.pickle against leaky.pickle"
        in pages.find("/compare/leaky.pickle,fixed.pickle/").content
    )
    broken = pages.find(f"/report/{quote('trace, mine.json')}/")
    assert (broken.status, b"Traceback" in broken.content) == (422, False)
    for path in (
        "/report/..%2Fother/",
        "/report/ended/",
        "/compare/ended/",
        "/x/ended/",
        "/report/",
    ):
        assert pages.find(path) is None, path


def test_a_page_of_the_folder_gets_nothing_of_the_server(place, pages):
    (place / "ab" / "report.html").write_text("<!-- script-src 'nonce-x' --><title>A</title>")
    page = pages.find("/page/ab,0/")
    assert page.policy.startswith("sandbox ") and "allow-same-origin" not in page.policy
    assert pages.find("/page/ab,1/") is None


@pytest.mark.slow
def test_rows_are_ticked_for_a_command_and_the_address_keeps_them(browser, place, monkeypatch):
    monkeypatch.setattr("profiling.report.home.pages.BETWEEN_PAGES_S", 0.2)
    os.utime(place / "ended" / "metrics.jsonl", (1e9, 1e9))  # the last row
    (place / "bad").mkdir()
    (place / "bad" / "metrics.jsonl").write_text('{"run":')
    home.main([str(place), "-o", str(place / "home.html")])
    assert "cannot be read: config.yaml" in (place / "home.html").read_text()
    ticks = "[...document.querySelectorAll('td.code input')]"
    load(browser, (place / "home.html").as_uri())
    assert browser.execute_script(f"return {ticks}.every(t => t.checkVisibility())")
    for name in ("ended", "sweep/1"):
        browser.execute_script(f"{ticks}.find(t => t.ariaLabel === 'pick {name}').click()")
    told = "return [...document.querySelectorAll('#picked code')].map(c => c.textContent)"
    both = "ended sweep/1"  # the page can be passed on: it names no folder above
    assert browser.execute_script(told) == [
        f"python -m profiling compare {both} --html comparison.html",
        f"python -m profiling dashboard {both} -o dashboard.html",
    ]
    assert str(place) not in (place / "home.html").read_text()
    assert f"In the folder {place.name}:" in browser.find_element("id", "picked").text
    address = browser.current_url
    load(browser, address)
    assert len(browser.execute_script(told)) == 2
    for other, verbs in (("fixed.pickle", ["compare"]), ("trace, mine.json", [])):
        picked = f"#pick=leaky.pickle&pick={quote(other)}"
        load(browser, (place / "home.html").as_uri() + picked)
        assert [line.split()[3] for line in browser.execute_script(told)] == verbs
    follow_and_tick(browser, place, ticks)
    resize(browser, 703, media="print")  # a sheet of A4 between its margins
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 703
    resize(browser, 390)
    cells = "[...document.querySelectorAll('#table-all td:nth-child(2)')]"
    inside = f"{cells}.every(c => c.getBoundingClientRect().right <= innerWidth)"
    assert browser.execute_script(f"return {inside}"), "whole verdicts on a phone"
    assert browser.get_log("browser") == []


def follow_and_tick(browser, place, ticks):
    """The served page takes over a new run, and keeps what is ticked."""
    server = PageServer(home.pages_of(place).find, "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}).start()
    try:
        load(browser, f"http://127.0.0.1:{server.server_port}/")
        browser.execute_script(f"{ticks}[0].click()")
        offered = "return document.querySelector('#picked a').textContent"
        before = browser.execute_script(offered)
        write_run(place / "new")
        wait_until(lambda: "new" in browser.find_element("css selector", "#table-all").text)
        assert browser.execute_script(f"return {ticks}.filter(t => t.checked).length") == 1
        assert browser.execute_script(offered) == before
    finally:
        server.shutdown()
        server.server_close()


def test_hundreds_of_runs_are_listed_in_seconds(tmp_path):
    run = write_run(tmp_path / "all" / "0", rows=1000)
    for number in range(1, 200):
        (run.parent / str(number)).mkdir()
        for file in run.iterdir():
            os.link(file, run.parent / str(number) / file.name)
    begin_s = time.process_time()
    assert len(list_entries(run.parent)) == 200
    assert time.process_time() - begin_s < 2
