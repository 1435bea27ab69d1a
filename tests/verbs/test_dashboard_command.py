"""`python -m profiling dashboard`: the file, the mistakes, and the server that follows the runs."""

import http.client
import json
import re
import signal
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from profiling.report.dashboard.server import DashboardServer
from profiling.verbs import dashboard as dashboard_command
from tests.helpers.chromium import chromium
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
    note = "the last line is half-written and was left out"
    assert note in capsys.readouterr().out and note in (tmp_path / "made.html").read_text()


def test_mistakes_are_one_line_that_names_them(tmp_path):
    run = write_run(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    out = tmp_path / "made.html"
    assert "empty: no metrics.jsonl" in refused(tmp_path / "empty", "-o", out)
    assert "did you mean gpu/power_w" in refused(run, "--metric", "gpu/power", "-o", out)
    assert "--loss: nan: must be" in refused(run, "--loss", "nan", "-o", out)
    assert "which runs?" in refused()
    assert "--project: is missing" in refused("--entity", "me")
    assert "--group: needs --entity" in refused(run, "--group", "g")
    assert "--by: needs --entity" in refused(run, "--by", "dropout")
    assert "--by attentio: no such key; did you mean attention?" in refused(
        "--entity", "me", "--project", "p", "--by", "attentio"
    )
    assert "not both" in refused(run, "--entity", "me", "--project", "p")
    assert "there is no folder" in refused(run, "-o", tmp_path / "no" / "made.html")
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


def test_the_command_line_ends_with_2_on_a_mistake(start, tmp_path):
    process = start(["-m", "profiling", "dashboard", str(tmp_path)], PYTHONPATH=str(PROJECT))
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 2
    assert said == (
        f"profiling dashboard: error: {tmp_path}: no metrics.jsonl in it or below; "
        "give the out_dir of a run\n"
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
def serving(place: Path):
    flags = dashboard_command.parse([str(place), "--watch"])
    server = DashboardServer(*dashboard_command.watched(flags), flags.host, 0)
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
        _, version = get(server, "/version")
        assert f'followNewer("{version}")' in page
        assert get(server, "/?again")[1] == page
        append_row(folder, '{"iter": 400, "train/loss": 1.0}\n')
        assert get(server, "/version")[1] != version
        write_run(tmp_path / "other")
        assert "other" in get(server, "/")[1]


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
        assert status == 503 and re.search(r"metrics.jsonl:\d+: not a row", content)
        assert 'http-equiv="refresh"' in content, "the browser asks again"


@pytest.mark.slow
def test_the_page_reloads_when_a_run_goes_on(tmp_path):
    folder = write_run(tmp_path / "run")
    with chromium() as driver, serving(tmp_path) as server:
        driver.get(f"http://127.0.0.1:{server.server_port}/")
        driver.execute_script("window.before = true")
        append_row(folder, '{"iter": 4000, "train/loss": 1.0}\n')
        deadline = time.monotonic() + 20
        while driver.execute_script("return window.before === true"):
            assert time.monotonic() < deadline, "did not reload"
            time.sleep(0.1)
        assert driver.get_log("browser") == []


@pytest.mark.slow
def test_watching_says_where_and_ends_with_ctrl_c(start, tmp_path):
    write_run(tmp_path / "run")
    words = ["-m", "profiling", "dashboard", str(tmp_path), "--watch", "--port", "0"]
    process = start(words, PYTHONPATH=str(PROJECT))
    assert re.match(r"http://127\.0\.0\.1:\d+/ follows the runs", process.stdout.readline())
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=20)[0]
    assert process.returncode == 0 and "Traceback" not in rest


def test_a_port_that_is_taken_is_named(tmp_path):
    write_run(tmp_path / "run")
    with serving(tmp_path) as server:
        said = refused(tmp_path, "--watch", "--port", server.server_port)
    assert f"--port {server.server_port}: cannot listen: " in said
