"""`python -m profiling demo`: pages of shipped examples, without a GPU, a network or torch."""

import gzip
import re
import shlex
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from configs import command_line
from configs.compose import compose_jobs
from profiling.verbs import demo, report
from tests.paths import PROJECT

ANSWERS = {
    "demo-report.html": "Bound by GPU compute",
    "demo-compare.html": "flash_compile is 1.23x faster than slow_compile",
    "demo-ranks.html": "Rank 1 delays the others by 5.35 ms per step: its GPU computes 4.59 ms",
    "demo-dashboard.html": "kernels=fused is 1.17x faster than",
}


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """The addresses that a browser is given; the working directory is empty, the network away."""

    def refuse(*_, **__):
        raise AssertionError("the demo reached for the network")

    addresses: list[str] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(demo.webbrowser, "open", lambda address: addresses.append(address) or True)
    for name in demo.DISPLAYS:
        monkeypatch.delenv(name, raising=False)
    return addresses


@pytest.fixture
def quick(monkeypatch):
    """Pages without their content."""
    pages = tuple(replace(page, make=lambda: "<p>") for page in demo.PAGES)
    monkeypatch.setattr(demo, "PAGES", pages)


@pytest.mark.slow
def test_pages_with_their_answers_and_a_line_each(opened, capsys):
    assert demo.main([]) == 0
    folder = Path("profiling-demo")
    assert {path.name for path in folder.iterdir()} == ANSWERS.keys()
    lines = capsys.readouterr().out.splitlines()
    for line, (name, answer) in zip(lines, ANSWERS.items(), strict=False):
        assert line.startswith(f"{folder / name}  ") and len(line) <= 120
        page = (folder / name).read_text(encoding="utf-8")
        assert answer in re.sub(r"\s+", " ", page) and len(page) < 3_000_000
    assert "8 runs" in page and "NVIDIA H200" in (folder / "demo-report.html").read_text()


def test_the_first_page_is_opened_where_there_is_a_display(opened, quick, capsys, monkeypatch):
    demo.main([])
    assert opened == [] and "open profiling-demo/demo-report.html" in capsys.readouterr().out
    monkeypatch.setenv("DISPLAY", ":0")
    demo.main(["--no-open"])
    assert opened == []
    demo.main([])  # its own pages are made anew
    assert opened == [Path("profiling-demo/demo-report.html").resolve().as_uri()]


def test_the_commands_it_ends_with_work(opened, quick, capsys):
    demo.main([])
    commands = re.findall(r"^  python (.*)$", capsys.readouterr().out, re.M)
    verbs = [shlex.split(c) for c in commands if c.startswith("-m profiling ")]
    assert [words[2] for words in verbs] == ["report", "report", "run", "report", "doctor"]
    assert report.main(verbs[0][3:]) == report.main(verbs[1][3:]) == 0
    assert verbs.pop(2)[3:] == ["--", "python", "train_mine.py"]
    (training,) = [shlex.split(c)[1:] for c in commands if c.startswith("train.py ")]
    _, _, words = command_line.split_arguments(training)
    (config,) = compose_jobs(*command_line.split_words(words, None), False)
    assert config.out_dir == verbs[2][3]


def test_it_writes_onto_no_file_of_a_run_and_into_no_file(opened, quick):
    Path("run").mkdir()
    Path("run/metrics.jsonl").write_text("{}\n")
    Path("pages").mkdir()
    Path("pages/demo-compare.html").symlink_to(Path("run/metrics.jsonl").resolve())
    with pytest.raises(ValueError, match="demo-compare.html: this file belongs to the run in"):
        demo.main(["-o", "pages"])
    assert [path.name for path in Path("pages").iterdir()] == ["demo-compare.html"]
    with pytest.raises(ValueError, match="metrics.jsonl: is a file or has a file as parent"):
        demo.main(["-o", "run/metrics.jsonl"])


def test_examples_say_nothing_of_where_they_were_made():
    examples = PROJECT / "profiling" / "examples"
    for path in [*(examples / "runs").rglob("*.*"), *examples.glob("*/*.json.gz")]:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8") as file:
            assert not re.search(r"/(home|root|work|tmp|usr|opt)\b", file.read()), path
