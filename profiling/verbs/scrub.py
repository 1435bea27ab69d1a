"""\
Removes the environment, the folders and tokens from captures so that they can be shared. All
numbers and the names of kernels and ranges stay. Tokens are known by their shape, such as ghp_...,
hf_... or sk-...

nsys stores the environment of the traced program and of all its parent processes, including the
shell and its secrets, even if the program itself did not get them. It also lists every process and
thread of the machine; those without recorded events are removed too. A .nsys-rep cannot be edited:
scrub its export, and do not share the report. The command line of the program stays, without its
folders.

Removed data cannot be restored, so use -o to write a copy; the file itself is changed only with
--in-place.

{flags}

examples
  python -m profiling scrub nsys.sqlite -o passed-on.sqlite
  python -m profiling scrub --in-place out-slow/profile/*.sqlite

exit code: 0; 2 for a mistake or for a file that is not a capture, which is left unchanged
"""

import argparse
from pathlib import Path

from cli.parser import Parser, flag
from cli.plain import without_controls
from profiling.shared.run_files import check_output
from profiling.timeline.opening import newest
from profiling.timeline.scrub import check_kind, scrub
from profiling.verbs.results import check_new


def main(words: list[str]) -> int:
    """Scrub the captures; return the exit code. Raises ValueError for a mistake, and for a file
    that cannot be scrubbed."""
    asked = parse(words)
    captures = [newest(path) if path.is_dir() else path for path in asked.captures]
    if asked.output:
        check_kind(captures[0])
        check_copy(captures[0], asked.output)
    for path in captures:
        scrub(path, asked.output)
        done = f"{asked.output}: scrubbed copy of {path}" if asked.output else f"{path}: scrubbed"
        print(without_controls(done))
    return 0


def parse(words: list[str]) -> argparse.Namespace:
    parser = Parser("scrub", __doc__)
    what = (
        "an nsys export (.sqlite) or a trace of torch.profiler (.json), each also as .gz, or a "
        "run's folder: its newest capture"
    )
    parser.add_argument("captures", nargs="+", type=Path, metavar="CAPTURE", help=what)
    places = parser.add_mutually_exclusive_group()
    flag(places, "-o --output FILE", "write a scrubbed copy of one CAPTURE to FILE", Path)
    flag(places, "--in-place", "change each CAPTURE itself")
    asked = parser.parse_args(words)
    if not (asked.output or asked.in_place):
        parser.error("give -o FILE for a copy, or --in-place to change the capture itself")
    if asked.output and len(asked.captures) > 1:
        parser.error("-o: works on one capture only; use --in-place to change several")
    return asked


def check_copy(capture: Path, copy: Path) -> None:
    """Raise ValueError unless the copy is of the capture's own kind, and no file of a run."""
    kind = Path(capture.name.removesuffix(".gz")).suffix
    check_new(copy, kind, f"{kind}.gz")
    check_output(copy, capture)
