"""Fuzzing: it finds planted mistakes, and none in this project."""

import signal
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cli.errors import one_line
from tests.soak import fuzz
from tests.soak.damage import NAME
from tests.soak.fuzzed_files import KINDS


@pytest.fixture(autouse=True)
def a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fuzz.page, "plotly_js", str)


@pytest.fixture
def outcome(monkeypatch):
    """outcome(main): of a command that has this main, on a file `x.json`."""
    handler = signal.signal(signal.SIGALRM, fuzz.raise_hang)
    Path("x.json").touch()

    def of(main, *words: str) -> tuple[str, str]:
        verb = SimpleNamespace(main=main)
        monkeypatch.setattr(fuzz, "import_module", lambda _: verb)
        return fuzz.outcome_of(["report", "x.json", *words], limit_s=1)

    yield of
    signal.signal(signal.SIGALRM, handler)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", (1, 2))
def test_a_damaged_file_is_read_or_refused(kind, seed):
    assert fuzz.worst_outcome(kind, seed, limit_s=60)[0] in ("ok", "refused")


def refuse(said: str):
    raise ValueError(said)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("main", "found"),
    [
        (lambda _: 0, ("ok", "")),
        (lambda _: refuse("x.json: is damaged"), ("refused", "")),
        (lambda _: refuse("sizes do not match"), ("unclear", "sizes do not match")),
        (lambda _: vars()["key"], ("traceback", "KeyError: 'key'")),
        (lambda _: np.float64(1e308) * 10 and 0, ("traceback", "overflow encountered")),
        (lambda _: time.sleep(5), ("hang", "report")),
        (lambda _: print(NAME) or 0, ("raw", "'\\x1b]0;owned\\x07' in the terminal")),
        (lambda _: Path("out.html").write_text(NAME[:4]) and 0, ("raw", "on the page")),
        (lambda _: Path("out.html").write_text('title="" zz=1') and 0, ("raw", "on the page")),
        (lambda _: Path("out.markdown").write_text(f"`{NAME[:4]}`") and 0, ("ok", "")),
        (lambda _: Path("out.markdown").write_text(f"**{NAME[:4]}") and 0, ("raw", "Markdown")),
    ],
)
def test_each_outcome_is_told_from_the_others(outcome, main, found):
    what, said = outcome(main)
    assert what == found[0] and found[1] in said


def test_an_error_line_has_no_control_characters():
    assert one_line(f"{NAME}\n.sqlite: is damaged").startswith("<zz>31m`|*[x](y) </script>")
