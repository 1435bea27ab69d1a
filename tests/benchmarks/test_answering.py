"""benchmarks.answering: a process that is asked line by line, and one that gives no answer."""

import sys

import pytest

from benchmarks import answering
from benchmarks.answering import AnsweringProcess

DOUBLES = """
import sys
print("ready", flush=True)
for line in sys.stdin:
    if line == "end\\n":
        break
    print(2 * float(line), flush=True)
"""


def process(log, code):
    return AnsweringProcess("doubling", [sys.executable, "-c", code], log)


def test_each_line_is_answered_until_the_last_one(tmp_path):
    with process(tmp_path / "log", DOUBLES) as doubling:
        assert doubling.answer() == "ready"
        assert [doubling.ask(line) for line in ("1", "2.5")] == [2.0, 5.0]
        doubling.end("end")
        assert doubling.process.returncode == 0


def test_a_process_that_ends_is_named_with_its_last_words(tmp_path):
    with process(tmp_path / "log", DOUBLES) as doubling:
        assert doubling.answer() == "ready"
        for _ in range(2):  # the second line finds nobody who reads it
            with pytest.raises(ValueError, match="^doubling ended with 1 and no answer: .*'one"):
                doubling.ask("one")


def test_a_process_that_is_silent_too_long_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(answering, "LONGEST_S", 0.1)
    code = "import time; time.sleep(600)"
    with (
        process(tmp_path / "log", code) as doubling,
        pytest.raises(ValueError, match="doubling ended with -9 and no answer"),
    ):
        doubling.answer()


STARTS_ANOTHER = """
import subprocess, sys
subprocess.Popen(["sleep", "600"])
print("ready", flush=True)
sys.stdin.readline()
"""


def test_a_process_whose_child_stays_is_ended_with_its_child(tmp_path, monkeypatch):
    monkeypatch.setattr(answering, "LONGEST_S", 0.5)
    with process(tmp_path / "log", STARTS_ANOTHER) as starting:
        assert starting.answer() == "ready"
        with pytest.raises(ValueError, match="^doubling was not at its end after 0.5 s"):
            starting.end("end")
