"""`python -m profiling dashboard`: the file, the mistakes, and the server that follows the runs."""

import http.client
import json
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from profiling.report.dashboard.following import end_of_lines
from profiling.report.dashboard.server import PageServer
from profiling.verbs import dashboard as dashboard_command
from tests.helpers.chromium import load
from tests.helpers.folders import write_run
from tests.paths import PROJECT


def refused(*words) -> str:
    with pytest.raises(ValueError) as error:
        dashboard_command.main([str(word) for word in words])
    assert "\n" not in str(error.value)
    return str(error.value)


def test_one_file_from_two_runs(tmp_path, capsys):
    for attention in ("slow", "flash"):
        write_run(tmp_path / attention, attention)
    file = tmp_path / "made.html"
    assert dashboard_command.main([str(tmp_path), "-o", str(file), "--loss", "2.5"]) == 0
    page = file.read_text(encoding="utf-8")
    assert "flash is 1.2" in page and "s to val loss 2.5" in page
    assert "connect-src" not in page, "a file asks the network for nothing"
    assert capsys.readouterr().out.startswith(f"{file}: 2 runs, ")


def test_a_half_written_line_is_said(tmp_path, capsys):
    folder = write_run(tmp_path / "run")
    with open(folder / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"iter"')
    dashboard_command.main([str(folder), "-o", str(tmp_path / "made.html")])
    note = "the last line is incomplete and was left out"
    assert note in capsys.readouterr().out and note in (tmp_path / "made.html").read_text()


def test_a_run_that_cannot_be_read_is_left_out_and_said(tmp_path, capsys):
    whole, damaged, other = (write_run(tmp_path / name) for name in ("whole", "damaged", "other"))
    lines = (damaged / "metrics.jsonl").read_text().splitlines()
    (damaged / "metrics.jsonl").write_text("\n".join([*lines[:3], "damaged", *lines[3:]]) + "\n")
    (other / "config.yaml").unlink()
    out = tmp_path / "made.html"
    assert dashboard_command.main([str(tmp_path), "-o", str(out)]) == 0
    notes = [
        "left out: damaged/metrics.jsonl:4: this line was not written by training: damaged; remove "
        "the line, or restore the file",
        "left out: other/config.yaml: cannot be read: No such file or directory; restore the file, "
        "or give the out_dir of another run",
    ]
    printed = capsys.readouterr().out.splitlines()
    assert printed[:2] == [f"note: {note}" for note in notes]
    assert printed[2].startswith(f"{out}: 1 run, ")
    page = out.read_text()
    assert all(note in page for note in notes)
    out.unlink()
    (whole / "metrics.jsonl").write_text("")
    said = refused(tmp_path, "-o", out)
    assert said.startswith(f"{damaged}/metrics.jsonl:4: this line"), "not that no row is there yet"
    assert not out.exists()


def test_a_note_names_the_file_of_the_run_in_the_current_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(write_run(tmp_path / "run"))
    append_row(Path(), '{"iter"')
    dashboard_command.main([".", "-o", str(tmp_path / "made.html")])
    said = "note: run/metrics.jsonl: the last line is incomplete and was left out"
    assert capsys.readouterr().out.splitlines()[0] == said


def test_mistakes_are_one_line_that_names_them(tmp_path):
    run = write_run(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    out = tmp_path / "made.html"
    assert "empty: no metrics.jsonl" in refused(tmp_path / "empty", "-o", out)
    assert "did you mean gpu/power_w" in refused(run, "--metric", "gpu/power", "-o", out)
    assert "--loss: nan: must be" in refused(run, "--loss", "nan", "-o", out)
    assert "no runs are given" in refused()
    assert "--project: this flag is missing" in refused("--entity", "me")
    assert "--group: needs --entity" in refused(run, "--group", "g")
    assert "--ranks: needs --entity" in refused(run, "--ranks")
    assert "--by: needs --entity" in refused(run, "--by", "dropout")
    assert "--by attentio: no such key; did you mean attention?" in refused(
        "--entity", "me", "--project", "p", "--by", "attentio"
    )
    assert "not both" in refused(run, "--entity", "me", "--project", "p")
    assert "does not exist; create it first" in refused(run, "-o", tmp_path / "no" / "made.html")
    (tmp_path / "made.html").mkdir()
    assert "is a folder" in refused(run, "-o", out)
    out.rmdir()
    (run / "config.yaml").write_text("batch_size: [")
    assert "config.yaml: cannot be read" in refused(run, "-o", out)
    (run / "config.yaml").unlink()
    assert "config.yaml: cannot be read" in refused(run, "-o", out)
    assert not out.exists()
    assert refused(run, "-o", tmp_path / "x.html", "--watch").startswith("-o: --watch serves")
    assert refused(run, "--xyzzy") == (
        "unrecognized arguments: --xyzzy; see python -m profiling dashboard --help"
    )


@pytest.mark.slow
def test_the_command_line_ends_with_2_on_a_mistake(start, tmp_path):
    process = start(["-m", "profiling", "dashboard", str(tmp_path)], PYTHONPATH=str(PROJECT))
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 2
    assert said == (
        f"profiling dashboard: error: {tmp_path}: no metrics.jsonl in this folder or below; give "
        "the out_dir of a run\n"
    )


def test_a_dry_run_needs_no_login(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    words = ["--entity", "me", "--project", "p", "--dry-run"]
    assert dashboard_command.main([*words, str(tmp_path / "spec.json")]) == 0
    content = json.loads((tmp_path / "spec.json").read_text())
    assert set(content) == {"workspace", "report"}
    capsys.readouterr()
    assert dashboard_command.main(words) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"workspace", "report"}


def test_runs_in_wandb_are_told_apart_by_the_key_that_is_named(capsys):
    words = ["--entity", "me", "--project", "p", "--by", "dropout", "--dry-run"]
    assert dashboard_command.main(words) == 0
    printed = capsys.readouterr().out
    assert "runs by dropout" in printed and "validation loss by dropout" in printed
    assert "dropout.value" in printed and "attention" not in printed


@contextmanager
def serving(place: Path, port: int = 0):
    flags = dashboard_command.parse([str(place), "--watch"])
    page = dashboard_command.live_page(flags)
    server = PageServer(lambda path: page if path == "/" else None, flags.host, port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def get(server, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(method, path)
    answer = connection.getresponse()
    content = answer.read().decode()
    connection.close()
    return answer.status, content


def append_row(folder: Path, row: str) -> None:
    with open(folder / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write(row)


def test_the_server_makes_the_page_anew_when_a_run_goes_on(tmp_path):
    folder = write_run(tmp_path / "run")
    with serving(tmp_path) as server:
        assert server.server_address[0] == "127.0.0.1"
        status, page = get(server, "/")
        assert status == 200 and "connect-src 'self'" in page
        assert get(server, "/?again")[1] == page
        bare = get(server, "/bare")[1]
        assert len(bare) < len(page) / 4 and mark_in(bare) == mark_in(page)
        append_row(folder, '{"iter": 400, "train/loss": 1.0}\n')
        assert mark_in(get(server, "/bare")[1]) != mark_in(page)
        write_run(tmp_path / "other")
        assert "other" in get(server, "/")[1]


def mark_in(page: str) -> str:
    return re.search(r'data-mark="([^"]+)"', page)[1]


@contextmanager
def following(server, mark: str | None = None, **headers: str):
    """The events of a server since `mark`, or since now, as (name, id, data) each."""
    mark = mark_in(get(server, "/bare")[1]) if mark is None else mark
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.request("GET", f"/events?from={mark}", headers=headers)
    answer = connection.getresponse()
    assert answer.getheader("Content-Type").startswith("text/event-stream")
    try:
        yield read_events(answer)
    finally:
        answer.close()
        connection.close()


@contextmanager
def between_looks(server, monkeypatch):
    """Yield what `following` does; the server has looked once, and rests until it looks again."""
    rests, rest = threading.Event(), server.ending.wait

    def noted(seconds: float) -> bool:
        rests.set()
        return rest(seconds)

    monkeypatch.setattr(server.ending, "wait", noted)
    with following(server) as events:
        assert rests.wait(20)
        yield events


def read_events(answer) -> Iterator[tuple[str, str, object]]:
    said = {}
    for line in answer:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            said[name] = value
        elif said:
            yield said["event"], said["id"], json.loads(said["data"])
            said = {}


@pytest.mark.slow
def test_new_rows_alone_are_sent_and_a_break_loses_none(tmp_path):
    folder = write_run(tmp_path / "run", start_s=1.0)
    with serving(tmp_path) as server:
        begin = mark_in(get(server, "/bare")[1])
        append_row(folder, '{"iter": 400, "train/loss": 1.0}\n{"iter": 410, "train')
        with following(server, begin) as events:
            name, seen, rows = next(events)
            assert name == "rows" and rows == {folder.name: [{"iter": 400, "train/loss": 1.0}]}
            append_row(folder, '/loss": 0.5}\n')
            _, _, rows = next(events)
            assert rows[folder.name] == [{"iter": 410, "train/loss": 0.5}]
        # as a browser does that was away: the id of its last event goes before its page's mark
        with following(server, begin, **{"Last-Event-ID": seen}) as events:
            assert next(events)[2] == rows


def test_the_last_whole_line_is_found_behind_one_of_any_length(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_text("x" * 10 + "\n" + "y" * 200_000)
    assert end_of_lines(file) == 11
    file.write_text("x" * 200_000)
    assert end_of_lines(file) == 0 == end_of_lines(tmp_path / "none")


@pytest.mark.parametrize("change", ["another run", "replaced", "a start", "the end", "shorter"])
def test_a_page_is_told_when_rows_are_not_all_that_changed(tmp_path, change):
    folder = write_run(tmp_path / "run", start_s=1.0)
    path = folder / "metrics.jsonl"
    with serving(tmp_path) as server, following(server) as events:
        if change == "another run":
            write_run(tmp_path / "other", start_s=1.0)
        elif change == "replaced":
            (folder / "new").write_bytes(path.read_bytes())
            (folder / "new").rename(path)
        elif change == "a start":
            append_row(folder, '{"run": {}, "iter": 100}\n')
        elif change == "the end":
            (folder / "summary.json").write_text('{"verdict": "host"}')
        else:
            path.write_text(path.read_text()[:900])
        assert next(events)[0] == "changed"


def test_words_and_tables_follow_the_rows_after_some_seconds(tmp_path, monkeypatch):
    monkeypatch.setattr("profiling.report.dashboard.server.BETWEEN_PAGES_S", 1.5)
    folder = write_run(tmp_path / "run", start_s=1.0)
    with serving(tmp_path) as server, following(server) as events:
        append_row(folder, '{"iter": 400, "train/loss": 1.0}\n')
        assert [next(events)[0], next(events)[0]] == ["rows", "changed"]


def test_a_damaged_line_is_said_to_who_follows(tmp_path):
    """The page is made anew: that of the only run says what is wrong, others go on without it."""
    folder = write_run(tmp_path / "run", start_s=1.0)
    with serving(tmp_path) as server:
        with following(server) as events:
            append_row(folder, "damaged\n")
            assert next(events)[0] == "changed"
        status, said = get(server, "/bare")
        assert status == 503 and "this line was not written by training: damaged" in said
        other = write_run(tmp_path / "other", start_s=1.0)
        status, page = get(server, "/bare")
        assert status == 200 and "left out: run/metrics.jsonl:" in page
        with following(server, mark_in(page)) as events:
            append_row(other, '{"iter": 400, "train/loss": 1.0}\n')
            assert next(events)[0::2] == ("rows", {"other": [{"iter": 400, "train/loss": 1.0}]})


@pytest.mark.slow
@pytest.mark.parametrize("others", [0, 1])
def test_a_run_folder_that_vanishes_ends_nothing(tmp_path, monkeypatch, capfd, others):
    """The page is made anew without it; where it was the only one that is said until it is back."""
    monkeypatch.setattr("profiling.report.dashboard.server.BETWEEN_PAGES_S", 0.2)
    folder = write_run(tmp_path / "run", start_s=1.0)
    for number in range(others):
        write_run(tmp_path / f"other-{number}", start_s=1.0)
    with serving(tmp_path) as server, between_looks(server, monkeypatch) as events:
        folder.rename(tmp_path.parent / f"{tmp_path.name}-away")
        name, _, said = next(events)
        if others:
            assert name == "changed" and get(server, "/bare")[0] == 200
            return
        assert name == "trouble" and "no metrics.jsonl" in said
        assert get(server, "/bare")[0] == 503
        (tmp_path.parent / f"{tmp_path.name}-away").rename(folder)
        assert next(name for name, *_ in events if name != "trouble") in ("rows", "changed")
    assert "Traceback" not in capfd.readouterr().err


def test_a_folder_that_goes_while_it_is_looked_at_is_said_and_so_is_its_return(
    tmp_path, monkeypatch
):
    write_run(tmp_path / "run", start_s=1.0)
    monkeypatch.setattr("profiling.report.dashboard.server.BETWEEN_PAGES_S", 0.2)
    with serving(tmp_path) as server:
        page = server.find("/")
        whole, left = page.news, [2]

        def gone(mark):
            left[0] -= 1
            if left[0] >= 0:
                raise FileNotFoundError("metrics.jsonl went")
            return whole(mark)

        mark = mark_in(get(server, "/bare")[1])
        monkeypatch.setattr(page, "news", gone)
        with following(server, mark) as events:
            assert [next(events)[0::2] for _ in range(3)] == [
                *[("trouble", "metrics.jsonl went")] * 2,
                ("rows", {}),
            ]
        left[0] = 1
        monkeypatch.setattr(page, "mark", lambda: gone(None))
        assert get(server, "/bare") == (503, get_said("metrics.jsonl went"))


def get_said(words: str) -> str:
    return f'<meta http-equiv="refresh" content="5"><p>{words}</p>\n'


@pytest.mark.slow
def test_several_browsers_follow_at_once_and_end_with_the_server(tmp_path):
    folder = write_run(tmp_path / "run", start_s=1.0)
    with serving(tmp_path) as server:
        begin = mark_in(get(server, "/bare")[1])
        with following(server, begin) as one, following(server, begin) as other:
            append_row(folder, '{"iter": 400, "train/loss": 1.0}\n')
            assert next(one)[2] == next(other)[2] != {}


def test_a_mark_that_is_none_is_refused(tmp_path):
    write_run(tmp_path / "run")
    with serving(tmp_path) as server:
        assert get(server, "/events?from=x.y")[0] == 503
        for path in ("/events?from=", "/events?from=x.1,2,3"):
            with following(server, path.partition("=")[2]) as events:
                assert next(events)[0] == "changed"


def test_head_is_get_without_its_body(tmp_path):
    write_run(tmp_path / "run")
    with serving(tmp_path) as server:
        for path, status in (("/", 200), ("/bare", 200), ("/events?from=x.1", 200), ("/no", 404)):
            assert get(server, path, "HEAD") == (status, "")


@pytest.mark.parametrize(
    "host, status",
    [
        *(("localhost", 200), ("127.0.0.1:9000", 200), ("[::1]:8050", 200)),
        *(("evil.example", 421), ("127.0.0.1.evil.example:8050", 421), ("", 421)),
    ],
)
def test_a_name_that_somebody_points_here_gets_nothing(tmp_path, host, status):
    write_run(tmp_path / "run")
    with serving(tmp_path) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        connection.putrequest("GET", "/bare", skip_host=True)
        connection.putheader("Host", host)
        connection.endheaders()
        answer = connection.getresponse()
        assert answer.status == status and (b"flash" in answer.read()) == (status == 200)
        connection.close()


def test_the_server_has_nothing_but_the_page(tmp_path):
    folder = write_run(tmp_path / "run")
    with serving(tmp_path) as server:
        for path in (
            "/run/config.yaml",
            "/../run/config.yaml",
            "/%2e%2e/etc/passwd",
            "//etc/passwd",
        ):
            status, content = get(server, path)
            assert status == 404 and "n_layer" not in content and "root:" not in content
        assert get(server, "/", "POST")[0] == 501
        append_row(folder, "damaged\n")
        status, content = get(server, "/")
        assert status == 503 and re.search(
            r"metrics.jsonl:\d+: this line was not written by training", content
        )
        assert 'http-equiv="refresh"' in content, "the browser asks again"


@pytest.fixture
def driver(browser, monkeypatch):
    """A browser whose log is empty, and a server that looks often."""
    monkeypatch.setattr("profiling.report.dashboard.server.BETWEEN_EVENTS_S", 0.1)
    browser.get_log("browser")
    yield browser
    browser.get("about:blank")


SHOWN = """
const chart = document.querySelector('[data-lazy=s0-train]');
return {kept: window.kept === true, status: document.getElementById('live').textContent,
  last: chart.data?.find(trace => trace.name === 'slow')?.x.at(-1), x: chart.layout?.xaxis.range,
  names: chart.data?.filter(trace => trace.visible !== false).map(trace => trace.name),
  hash: location.hash, scroll: scrollY > 0,
  numbers: document.querySelector('[data-numbers=s0-train] tbody')?.lastChild?.textContent,
  table: document.getElementById('table-s0-runs').textContent}
"""


def wait_for(driver, condition, seconds=25):
    deadline = time.monotonic() + seconds
    while not condition(shown := driver.execute_script(SHOWN)):
        assert time.monotonic() < deadline, shown
        time.sleep(0.1)
    return shown


def watch(driver, server) -> None:
    """Open the page and wait until the losses of the runs are drawn."""
    load(driver, f"http://127.0.0.1:{server.server_port}/")
    driver.execute_script("document.querySelector('[data-lazy=s0-train]').scrollIntoView()")
    wait_for(driver, lambda shown: shown["last"] == 390)


def log_row(folder: Path, iteration: int) -> None:
    speed = {"time/step_ms": 6.6, "perf/tokens_per_s": 2.5e6, "time/elapsed_s": iteration / 100}
    append_row(folder, json.dumps({"iter": iteration, "train/loss": 1.0, **speed}) + "\n")


@pytest.mark.slow
def test_the_page_follows_its_runs_and_keeps_what_the_reader_chose(driver, tmp_path, monkeypatch):
    monkeypatch.setattr("profiling.report.dashboard.server.BETWEEN_PAGES_S", 0.5)
    folders = [
        write_run(tmp_path / name, name, start_s=1.0, gpu=False) for name in ("slow", "flash")
    ]
    with serving(tmp_path) as server:
        load(driver, f"http://127.0.0.1:{server.server_port}/")
        driver.execute_script(
            "window.kept = true; document.querySelector('[data-lazy=s0-train]').scrollIntoView()"
        )
        wait_for(driver, lambda shown: shown["last"] == 390)
        driver.execute_script(
            "Plotly.relayout(document.querySelector('[data-lazy=s0-train]'),"
            "{'xaxis.range[0]': 100, 'xaxis.range[1]': 900});"
            "document.querySelector('[data-name=\"s0:flash\"]').click()"
        )
        for iteration in range(400, 430, 10):  # longer than it takes to get words and tables
            log_row(folders[0], iteration)
            shown = wait_for(driver, lambda shown, last=iteration: shown["last"] == last)
            time.sleep(0.3)
        (folders[0] / "summary.json").write_text('{"verdict": "host", "iterations": 999}')
        shown = wait_for(driver, lambda shown: "999" in shown["table"])
        write_run(tmp_path / "third", "math", start_s=1.0, gpu=False)
        shown = wait_for(driver, lambda shown: shown["names"] == ["slow", "math"])
        assert shown["kept"] and shown["scroll"] and shown["x"] == [100, 900]
        assert "hide=s0%3Aflash" in shown["hash"] and "z.iteration=100%2C900" in shown["hash"]
        assert driver.get_log("browser") == []


OPEN_NUMBERS = """
document.querySelector('[data-numbers=s0-train]').open = true;
window.first = document.querySelector('[data-lazy=s0-train]')
"""
HIDE = """
Object.defineProperty(document, 'hidden', {value: arguments[0], configurable: true});
document.dispatchEvent(new Event('visibilitychange'))
"""


@pytest.mark.slow
def test_rows_arrive_after_a_pause_a_time_unseen_and_one_without_the_server(
    driver, tmp_path, monkeypatch
):
    """Rows are sent alone, also of the only run of its group: the page is not taken over.

    The table of numbers, which is open, follows when words and tables are due.
    """
    monkeypatch.setattr("profiling.report.dashboard.server.BETWEEN_PAGES_S", 1000.0)
    folder = write_run(tmp_path / "slow", "slow", start_s=1.0, gpu=False)
    with serving(tmp_path) as server:
        port = server.server_port
        watch(driver, server)
        driver.execute_script(OPEN_NUMBERS)
        driver.find_element("css selector", "#live button").click()
        log_row(folder, 400)
        time.sleep(1.5)
        assert driver.execute_script(SHOWN)["last"] == 390
        driver.find_element("css selector", "#live button").click()
        wait_for(driver, lambda shown: shown["last"] == 400)
        driver.execute_script(HIDE, True)
        log_row(folder, 410)
        time.sleep(2)
        assert driver.execute_script("return source.readyState") == 2  # closed
        assert driver.execute_script(SHOWN)["last"] == 400
        driver.execute_script(HIDE, False)
        wait_for(driver, lambda shown: shown["last"] == 410)
        monkeypatch.setattr("profiling.report.dashboard.server.BETWEEN_PAGES_S", 0.5)
        log_row(folder, 420)
        wait_for(driver, lambda shown: "420" in shown["numbers"])
        assert driver.execute_script("return window.first.isConnected")
        assert driver.get_log("browser") == []
    wait_for(driver, lambda shown: "does not answer" in shown["status"])
    log_row(folder, 430)
    with serving(tmp_path, port):
        shown = wait_for(driver, lambda shown: shown["last"] == 430)
    assert shown["names"] == ["slow"]


ADOPTED = """
return {names: [...document.querySelectorAll('[data-lazy=s0-train]')].length,
  runs: document.querySelectorAll('#table-s0-runs tbody tr').length,
  listeners: choiceFollowers.size, purged: window.first._fullLayout === undefined,
  open: document.querySelector('[data-numbers=s0-train]').open,
  numbers: document.querySelectorAll('[data-numbers=s0-train] tbody tr').length}
"""


@pytest.mark.slow
def test_a_page_that_is_taken_over_whole_keeps_nothing_of_the_old_one(driver, tmp_path):
    write_run(tmp_path / "run0", "slow", start_s=1.0, gpu=False)
    with serving(tmp_path) as server:
        watch(driver, server)
        driver.execute_script(OPEN_NUMBERS)
        found = []
        for number in (1, 2):
            write_run(tmp_path / f"run{number}", "slow", number, start_s=1.0, gpu=False)
            wait_for(driver, lambda shown, name=f"run{number}": name in shown["table"])
            time.sleep(0.5)
            found.append(driver.execute_script(ADOPTED))
        assert [each["runs"] for each in found] == [2, 3]
        assert len({each["listeners"] for each in found}) == 1, "tables that are gone still listen"
        assert all(each["purged"] and each["open"] and each["numbers"] > 30 for each in found)
        assert driver.get_log("browser") == []


@pytest.mark.slow
def test_watching_says_where_and_ends_with_ctrl_c(start, tmp_path):
    write_run(tmp_path / "run")
    words = ["-m", "profiling", "dashboard", str(tmp_path), "--watch", "--port", "0"]
    process = start(words, PYTHONPATH=str(PROJECT))
    said = re.match(r"http://127\.0\.0\.1:(\d+)/ follows the runs", process.stdout.readline())
    server = SimpleNamespace(server_port=int(said[1]))
    with following(server), following(server):  # pages that are open hold it up no more
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=20)[0]
    assert process.returncode == 0 and "Traceback" not in rest


def test_a_port_that_is_taken_is_named(tmp_path):
    write_run(tmp_path / "run")
    with serving(tmp_path) as server:
        said = refused(tmp_path, "--watch", "--port", server.server_port)
    assert f"--port {server.server_port}: cannot listen on this address: " in said
    assert said.endswith("; --port 0 picks a free port")
    said = refused(tmp_path, "--watch", "--host", "192.0.2.1", "--port", "0")
    assert "--host 192.0.2.1" in said and "picks a free port" not in said
