"""Output into a real pipe whose reader, such as head, closes it early."""

import logging
import os
import subprocess
import sys

import pytest

from cli.pipes import CUT, has_no_reader
from tests.paths import PROJECT
from training.metrics.console import LineHandler

ERRORS = "from cli.errors import user_errors\nwith user_errors():\n    "


def ended(*words: str, **environ: str) -> tuple[int, bytes]:
    """Run Python with nobody at the other end of stdout: (exit code, stderr)."""
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(
        [sys.executable, *words],
        cwd=PROJECT,
        stdout=writer,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": ""} | environ,
        timeout=120,
    )
    os.close(writer)
    return process.returncode, process.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("train.py", "--help"),
        ("sample.py", "--help"),
        ("-m", "data.prepare", "--help"),
        ("-m", "profiling"),
        ("-m", "benchmarks"),
        ("-m", "validation", "pages", "--help"),
    ],
    ids=" ".join,
)
def test_each_program_ends_quietly(words):
    assert ended(*words) == (CUT, b"")


def test_so_does_argparse_which_takes_no_notice():
    status, said = ended("-m", "profiling", "report", "--help")
    assert said == b"" and status in (0, CUT)


def test_as_under_a_shell():
    """The status under a shell is that of a program that knows nothing of all this."""
    command = f"set -o pipefail; {sys.executable} -m data.prepare --help | head -3"
    done = subprocess.run(["bash", "-c", command], cwd=PROJECT, capture_output=True, timeout=60)
    assert (done.stderr, done.stdout.count(b"\n")) == (b"", 3)
    assert done.returncode in (0, CUT)  # 0 where all was written before head went


@pytest.mark.parametrize(
    "body", ["print('x')", "for _ in range(9999): print('x' * 99)", "raise SystemExit(0)"]
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_nothing_runs_behind_it(body, unbuffered):
    code = f"{ERRORS}print('y')\n    {body}\nassert False, 'it ends there'"
    assert ended("-c", code, PYTHONUNBUFFERED=unbuffered) == (CUT, b"")


def test_so_does_rich_whose_exit_code_is_that_of_a_finding():
    """1 says of `hang` that something hangs, and of `report | head` to a shell that it failed."""
    print_it = f"{ERRORS}from rich.console import Console; Console().print('x')"
    assert ended("-c", print_it) == (CUT, b"")


def test_another_pipe_that_breaks_is_told():
    code = f"{ERRORS}raise BrokenPipeError('a connection')"
    process = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True)
    assert process.returncode == 1
    assert process.stderr.endswith(b"BrokenPipeError: a connection\n")


def test_a_pipe_with_a_reader_is_read():
    reader, writer = os.pipe()
    with open(writer, "w") as stream:
        assert not has_no_reader(stream)
        os.close(reader)
        assert has_no_reader(stream)


def test_the_first_line_that_is_lost_ends_the_run_and_no_other_says_so():
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w", buffering=1)
    handler = LineHandler(stream)
    record = logging.makeLogRecord({"msg": "iter 1"})
    with pytest.raises(BrokenPipeError):
        handler.handle(record)
    handler.handle(record)
    with pytest.raises(BrokenPipeError):  # its own at the end: the lines are still in it
        stream.close()
