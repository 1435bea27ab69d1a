"""The program `profiling-nanogpt` that pip installs: `python -m profiling` from any folder.

profiling-nanogpt train ... and profiling-nanogpt sample ... are train.py and sample.py.
"""

import sys
from pathlib import Path
from runpy import run_module

NAME = "profiling-nanogpt"
PROGRAMS = ("train", "sample")


def main() -> None:
    """Each begins as it does under `python -m`, before anything slow is imported."""
    named = sys.argv[1:2]
    program = sys.argv.pop(1) if named and named[0] in PROGRAMS else "profiling"
    run_module(program, run_name="__main__", alter_sys=True)


def spelled(program: str) -> str:
    """How a user who has called this process calls `program`: profiling, train or sample."""
    if NAME in (Path(word).name for word in sys.orig_argv[:2]):
        return f"{NAME} {program}" if program in PROGRAMS else NAME
    return f"python {program}.py" if program in PROGRAMS else f"python -m {program}"
