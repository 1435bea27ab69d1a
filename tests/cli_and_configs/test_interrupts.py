"""Ctrl-C, SIGTERM and SIGHUP outside the training loop: quiet, exit code 128 + N, never lost."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.paths import PROJECT

BEGIN = """
from cli.process import begin
begin()
import os, signal, sys, time
from cli.errors import user_errors
from cli.interrupts import leave_on_signal, unwind_on_signal
def hit(number=signal.SIGINT):
    os.kill(os.getpid(), number)
    for _ in range(1000):
        pass
"""


def ended(code: str) -> tuple[int, str, str]:
    process = subprocess.run(
        [sys.executable, "-c", BEGIN + code],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return process.returncode, process.stdout, process.stderr


@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_start_up_is_left_at_once_and_nobody_can_catch_it(name, status):
    swallowing = f"""
print("begun")
try:
    hit(signal.{name})
except BaseException:
    pass
print("went on")
"""
    assert ended(swallowing) == (status, "begun\n", "")


@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_where_something_is_to_be_tidied_up_the_stack_unwinds(name, status):
    unwound = f"""
with user_errors(), unwind_on_signal():
    try:
        hit(signal.{name})
    finally:
        print("tidy")
"""
    assert ended(unwound) == (status, "tidy\n", "")


def test_composing_is_left_at_once_also_in_a_verb():
    assert ended("""
with user_errors(), unwind_on_signal(), leave_on_signal():
    try:
        hit()
    except BaseException:
        print("OmegaConf made something else of it")
""") == (130, "", "")


def test_an_import_in_a_verb_is_left_at_once(tmp_path):
    """numpy makes an ImportError of it, and `except ImportError` may go on without the module."""
    (tmp_path / "slow_module.py").write_text("import __main__; __main__.hit()")
    code = f"""
sys.path.insert(0, {str(tmp_path)!r})
with user_errors(), unwind_on_signal():
    try:
        import slow_module
    except BaseException:
        print("went on")
"""
    assert ended(code) == (130, "", "")


def test_what_python_would_drop_in_a_destructor_still_ends_it():
    assert ended("""
class Dying:
    def __del__(self):
        hit()
with user_errors(), unwind_on_signal():
    dying = Dying()
    del dying
    print("went on")
""") == (130, "", "")


def test_ignored_as_under_nohup_it_stays_ignored():
    code = (
        """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
"""
        + BEGIN
        + """
with unwind_on_signal():
    hit()
print("went on")
"""
    )
    assert ended(code) == (0, "went on\n", "")


def test_programs_of_tests_get_a_hangup_also_where_nohup_started_the_tests():
    started = "import os, signal; os.kill(os.getpid(), signal.SIGHUP)"
    code = f"""
import os, runpy, signal, subprocess, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)
runpy.run_path("tests/conftest.py")  # as pytest does
os.kill(os.getpid(), signal.SIGHUP)
print(subprocess.run([sys.executable, "-c", {started!r}]).returncode)
"""
    assert ended(code) == (0, f"{-signal.SIGHUP}\n", "")


def test_a_lock_and_the_folder_made_for_it_go(tmp_path):
    assert ended(f"""
from pathlib import Path
from cli.lock import Lock
with Lock(Path({str(tmp_path)!r}) / "new" / "run", "out_dir"):
    print(len(list(Path({str(tmp_path)!r}).rglob("*"))))
    hit()
""") == (130, "3\n", "")
    assert not list(tmp_path.iterdir())


def test_at_exit_too():
    assert ended("import atexit; atexit.register(hit)") == (130, "", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["train.py", "device=cpu", "compile=false", "out_dir={folder}"],
        ["sample.py"],
        ["-m", "data.prepare", "--help"],
        ["-m", "profiling", "doctor"],
        ["-m", "profiling", "device"],
        ["-m", "profiling", "compiled", "shakespeare_char_cpu", "out_dir={folder}"],
    ],
)
@pytest.mark.parametrize("after_s", [0.15, 0.6, 1.5])
def test_the_programs_in_their_first_seconds(words, after_s, tmp_path):
    process = subprocess.Popen(
        [sys.executable, *(word.format(folder=tmp_path / "out") for word in words)],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"HOME": str(tmp_path)},
        text=True,
    )
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    if process.returncode not in (0, 1, 2):  # it had ended before
        # Python's own start and end have its handler: there the signal ends the process
        assert process.returncode in (130, -signal.SIGINT)
    assert "Traceback" not in err
