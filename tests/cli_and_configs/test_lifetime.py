"""cli.process: begin and end of a process that imports much."""

import os
import subprocess
import sys

import pytest

from cli.process import INJECTED
from tests.paths import PROJECT

BEGIN = """
import atexit, gc, sys
from cli import process

class Freed:
    def __del__(self):
        print("freed", flush=True)

process.begin_many_imports()
atexit.register(print, "an exit handler")
kept = Freed()
kept.itself = kept
"""


def ended(code: str, **environ: str) -> tuple[int, str]:
    """The exit code and the output of a process that runs `code`."""
    clean = {name: value for name, value in os.environ.items() if name not in INJECTED}
    process = subprocess.run(
        [sys.executable, "-c", BEGIN + code],
        cwd=PROJECT,
        env=clean | environ,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    return process.returncode, process.stdout


def test_a_success_runs_the_exit_handlers_and_frees_nothing():
    said = "all done\nan exit handler\n"
    assert ended("print('all done'); process.succeed()") == (0, said)


@pytest.mark.parametrize(("code", "status"), [("sys.exit(3)", 3), ("", 0), ("raise ValueError", 1)])
def test_all_else_ends_as_python_does(code, status):
    assert ended(code) == (status, "an exit handler\nfreed\n")


@pytest.mark.parametrize("name", INJECTED[1:])
def test_under_a_profiler_its_own_exit_handlers_run(name):
    code = "process.succeed()"
    assert ended(code, **{name: "/nowhere/libinjection.so"}) == (0, "an exit handler\nfreed\n")


def test_a_stdout_that_takes_no_more_is_told():
    code = "import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 1); print(1); process.succeed()"
    assert ended(code, PYTHONUNBUFFERED="")[0] == 120  # as Python has it


def test_cycles_are_looked_for_again_once_it_is_settled():
    code = """
print(gc.isenabled())
process.resume_garbage_collection()
print(gc.isenabled(), gc.get_freeze_count(), gc.get_count()[0] < 700)
del kept
gc.collect()
process.succeed()
"""
    said = "False\nTrue 0 True\nfreed\nan exit handler\n"
    assert ended(code) == (0, said)


def test_the_first_run_of_a_process_began_with_it_and_the_next_begins_then():
    code = """
import time
before_s = time.perf_counter()
process.begin()
time.sleep(0.05)  # the imports
first_s, then_s = process.take_began_s(), time.perf_counter()
next_s = process.take_began_s()
assert before_s <= first_s <= then_s - 0.05 < then_s <= next_s
"""
    assert ended(code)[0] == 0
