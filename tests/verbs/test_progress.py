"""Progress on stderr: with a total and the time left on a terminal, and nothing in a pipe."""

import io
import re
from contextlib import redirect_stderr

import pytest

from profiling.timeline.chrome_events import PIECE_BYTES
from profiling.timeline.opening import open_capture
from profiling.timeline.share_read import while_reading
from profiling.verbs.progress import progress_line, reading_bar
from profiling.verbs.training_bar import training_bar
from tests.helpers.captures import write_trace
from tests.paths import CAPTURES


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def stderr(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return Terminal()


def test_items_are_counted_as_they_begin(stderr):
    with redirect_stderr(stderr), progress_line("measuring", total=6, done=3, ticking=False) as say:
        for what in ("eager", "compile"):
            say(what)
    shown = stderr.getvalue()
    assert "measuring" in shown and "3/6" in shown and "compile" in shown and "4/6" in shown
    assert "5/6" not in shown and ":" in shown, "the second has begun, and there is the time left"


def test_a_large_trace_tells_how_far_it_is_read(stderr, tmp_path):
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "k" * 1000, "pid": 0, "tid": 7, "ts": i, "dur": 0.5}
        for i in range(3 * PIECE_BYTES // 1000)
    ]
    path = write_trace(tmp_path / "large.json", {"traceEvents": events})
    with redirect_stderr(stderr), reading_bar(path) as say:
        open_capture(path)
        say("analysing")
    shown = stderr.getvalue()
    assert "reading large.json" in shown and "70 %" in shown and "analysing" in shown


def test_an_export_of_nsys_tells_how_many_of_its_rows_are_read():
    shares = []
    with while_reading(shares.append):
        open_capture(CAPTURES / "flash_metrics.sqlite.gz")
    assert shares == sorted(shares) and len(shares) >= 5 and shares[-1] == 1.0


def test_a_training_has_a_bar_below_its_own_lines(stderr, capsysbinary):
    chunks = [
        b"profile=nsys: iterations 20 to 29\niter 0: loss 4\n",
        b"iter 10: loss 4\niter 2",
        b"0: loss 4\n",
        b"iter 90: loss 4\n",
    ]
    with redirect_stderr(stderr), training_bar(100) as output:
        for chunk in chunks:
            output.write(chunk)
            assert stderr.getvalue().endswith("\x1b[2K")  # the bar is gone from the line
            output.flush()
    assert capsysbinary.readouterr().out == b"".join(chunks)
    shown = re.sub(r"\x1b\[[\d;?]*\w", "", stderr.getvalue())
    whole = ["will be captured .* 1/100", "are captured .* 21/100", "all is captured .* 91/100"]
    assert all(re.search(words, shown) for words in whole)


def test_a_terminal_that_erases_no_line_has_no_bar(stderr, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    with redirect_stderr(stderr), training_bar(100) as output:
        assert output is None
    assert stderr.getvalue() == ""


def test_a_pipe_gets_nothing(capsys, tmp_path):
    with progress_line("measuring", total=2) as say:
        say("eager")
    with reading_bar(tmp_path / "x.json") as say:
        say("analysing")
    with training_bar(100) as output:
        assert output is None  # stdout as it is
    assert capsys.readouterr() == ("", "")
