"""The program `profiling-nanogpt` that pip installs: `python -m profiling` from any folder.

profiling-nanogpt train ... and profiling-nanogpt sample ... are train.py and sample.py.
"""

import sys
from runpy import run_module

from cli.program import PROGRAMS, installed_program


def main() -> None:
    """Each begins as it does under `python -m`, before anything slow is imported."""
    installed_program(sys.argv[0])
    named = sys.argv[1:2]
    program = sys.argv.pop(1) if named and named[0] in PROGRAMS else "profiling"
    run_module(program, run_name="__main__", alter_sys=True)
