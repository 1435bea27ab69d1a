"""\
Takes the environment and the folders out of captures, so that they can be passed on. Every number
stays, and so do the names of kernels and ranges.

nsys stores the environment of the traced program, and that of every process above it: the shell's
too, secrets and all, whatever the program itself was given. It also lists every process and thread
of the machine; those that nothing was recorded of go too. A .nsys-rep cannot be edited: scrub its
export, and keep the report. What the program was told on its command line stays, less its folders.

What is taken out of a file is gone: so a copy is written with -o, and the file itself is changed
with --in-place alone.

{flags}

examples
  python -m profiling scrub nsys.sqlite -o passed-on.sqlite
  python -m profiling scrub --in-place out-slow/profile/*.sqlite

exit code: 0; 2 for a mistake, and for a file that is no capture, which stays as it was
"""

import argparse
from pathlib import Path

from cli.parser import Parser, flag
from cli.plain import without_controls
from profiling.shared.run_files import check_output
from profiling.timeline.opening import newest
from profiling.timeline.scrub import scrub
from profiling.verbs.results import check_new


def main(words: list[str]) -> int:
    """Scrub the captures; return the exit code. Raises ValueError for a mistake, and for a file
    that cannot be scrubbed."""
    asked = parse(words)
    captures = [newest(path) if path.is_dir() else path for path in asked.captures]
    if asked.output:
        check_copy(captures[0], asked.output)
    for path in captures:
        scrub(path, asked.output)
        print(without_controls(f"{asked.output or path}: scrubbed"))
    return 0


def parse(words: list[str]) -> argparse.Namespace:
    parser = Parser("scrub", __doc__)
    what = (
        "an nsys export (.sqlite) or a trace of torch.profiler (.json), each also as .gz, or a "
        "run's folder: its newest capture"
    )
    parser.add_argument("captures", nargs="+", type=Path, metavar="CAPTURE", help=what)
    places = parser.add_mutually_exclusive_group()
    flag(places, "-o --output FILE", "the copy to write, of one CAPTURE", Path)
    flag(places, "--in-place", "change each CAPTURE itself")
    asked = parser.parse_args(words)
    if not (asked.output or asked.in_place):
        parser.error("give -o FILE for a copy, or --in-place to change the capture itself")
    if asked.output and len(asked.captures) > 1:
        parser.error("-o: takes one capture; --in-place changes each of several")
    return asked


def check_copy(capture: Path, copy: Path) -> None:
    """Raise ValueError unless the copy is of the capture's own kind, and no file of a run."""
    kind = Path(capture.name.removesuffix(".gz")).suffix
    check_new(copy, kind, f"{kind}.gz")
    check_output(copy, capture)
