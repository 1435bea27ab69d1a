"""\
Takes the environment and the folders out of captures, so that they can be passed on. Every number
stays, and so do the names of kernels and ranges.

nsys stores the environment of the traced program, and that of every process above it: the shell's
too, secrets and all, whatever the program itself was given. It also lists every process and thread
of the machine; those that nothing was recorded of go too. A .nsys-rep cannot be edited: scrub its
export, and keep the report. What the program was told on its command line stays, less its folders.

{flags}

examples
  python -m profiling scrub nsys.sqlite -o passed-on.sqlite
  python -m profiling scrub out-slow/profile/*.sqlite

exit code: 0; 2 for a mistake, and for a file that is no capture, which stays as it was
"""

from pathlib import Path

from cli.parser import Parser, flag
from cli.plain import without_controls
from profiling.timeline.scrub import scrub


def main(words: list[str]) -> int:
    parser = Parser("scrub", __doc__)
    what = "an nsys export (.sqlite) or a trace of torch.profiler (.json), each also as .gz"
    parser.add_argument("captures", nargs="+", type=Path, metavar="CAPTURE", help=what)
    output = "where to write it, of one CAPTURE; without it each is scrubbed in place"
    flag(parser, "-o --output FILE", output, Path)
    asked = parser.parse_args(words)
    if asked.output and len(asked.captures) > 1:
        parser.error("-o: takes one capture; without it each is scrubbed in place")
    for path in asked.captures:
        scrub(path, asked.output)
        print(without_controls(f"{asked.output or path}: scrubbed"))
    return 0
