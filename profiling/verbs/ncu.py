"""Profiles single kernels of a program with Nsight Compute, or reads an existing report.

{flags}

examples
  python -m profiling ncu --kernel flash -- python train.py config/shakespeare_char.yaml \\
      attention=flash compile=false max_iters=12 profile=nsys profile.start=10 profile.steps=1
  python -m profiling ncu --kernel ^triton --count 3 -- python train.py \\
      config/shakespeare_char.yaml cuda_graphs=false profile=nsys profile.start=10 profile.steps=1
  python -m profiling ncu --range none --kernel gemm -- python my_program.py
  python -m profiling ncu out-ncu/ncu.ncu-rep --html ncu.html

The trainer pushes ranges with profile=nsys, and ncu uses them only inside the window, where
backward runs on the thread that pushed its range. Kernels inside CUDA graphs are profiled one by
one.

exit code: that of ncu if it fails; 1 if no kernel was profiled; 2 for a mistake in the command line
"""

import argparse
import shlex
import sys
from functools import partial
from pathlib import Path

from cli.files import empty_folder, make_folder
from cli.parser import Parser, at_dashes, flag, within
from profiling.launch import reports
from profiling.launch.process import stream
from profiling.launch.under_ncu import Selection, check_program, command, explain
from profiling.report.lab.ncu_document import ncu_document
from profiling.shared.json_records import to_json
from profiling.tools import nsight
from profiling.tools.ncu_csv import ProfiledKernel, read_report
from profiling.verbs.results import check_outputs, output_flags, show, write_outputs

USAGE = """\
%(prog)s [FLAGS] -- COMMAND
       %(prog)s [FLAGS] FILE.ncu-rep | FILE.csv"""


def main(argv: list[str]) -> int:
    """Profile a program, or read a report; return the exit code.

    Raises ValueError for a mistake, before the program starts.

    Nsight Compute runs each chosen kernel again and again to read all counters, so its program is
    slow under it; the kernels' own times are right.
    """
    flags, program = parse(argv)
    if flags.report:
        return deliver(read_report(flags.report, flags.ncu), flags)
    check_program(program, flags.range)
    ncu = nsight.find("ncu", flags.ncu)
    chosen = Selection(
        flags.kernel, flags.range, flags.skip, flags.count, flags.set, flags.clock_control
    )
    partial = flags.out / "ncu.partial" / "ncu.ncu-rep"
    words = command(ncu, chosen, partial, program)
    environ, removed = nsight.without_secrets()
    # ncu attaches to every child process, and inductor's compile workers can crash under it
    environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    if removed:
        names = ", ".join(removed)
        print(f"profiling ncu: kept out of the report: {names}", file=sys.stderr)
    print(shlex.join(words), flush=True)
    if flags.dry_run:
        return 0
    make_folder(flags.out)
    empty_folder(partial.parent)
    ended = stream(words, environ)
    if not partial.exists():
        why, cure = explain(ended.output, chosen)
        print(f"\nno report: {why}\n  {cure}")
        return ended.status or 1
    report = reports.move(partial, flags.out)
    partial.parent.rmdir()
    print(f"\nreport  {report} ({report.stat().st_size / 1e6:.1f} MB); ncu-ui opens it")
    return deliver(read_report(report, flags.ncu), flags) or ended.status


def parse(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Parse the command line into (flags, the program's command after `--`)."""
    before, program = at_dashes(argv)
    parser = Parser("ncu", __doc__, usage=USAGE)
    parser.add_argument("report", nargs="?", type=Path, help="an existing report: .ncu-rep or .csv")
    add = partial(flag, parser.add_argument_group("which kernels"))
    add("--kernel REGEX", "kernels whose function name matches REGEX (default: all)")
    ranges = (
        "kernels launched in the trainer's range NAME: forward (default), backward, optimizer "
        "...; none: all kernels, in any program"
    )
    add("--range NAME", ranges, default="forward")
    add("--skip N", "skip the first N (0)", within(int, 0), default=0)
    add("--count N", "then profile N (5) and end the program", within(int, 1), default=5)
    add = partial(flag, parser.add_argument_group("how"))
    measured = "how much to measure for each kernel (full)"
    add("--set", measured, choices=("full", "detailed", "basic"), default="full")
    clocks = (
        "none (default): clocks as in training; base: locked to the base clock, which is more "
        "repeatable but slower than training"
    )
    add("--clock-control", clocks, choices=("none", "base"), default="none")
    places = (
        "path of ncu (default: ncu on PATH, else the newest in /opt/nvidia/nsight-compute or the "
        "CUDA toolkit)"
    )
    add("--ncu PATH", places)
    add("--dry-run", "print the command and stop")
    results = parser.add_argument_group("results")
    out = "folder for ncu.ncu-rep (out-ncu); an older report is kept as ncu.previous-N"
    flag(results, "--out FOLDER", out, Path, default=Path("out-ncu"))
    output_flags(results, json="all figures", html="one self-contained HTML page")
    flags = parser.parse_args(before)
    if bool(flags.report) == bool(program):
        parser.error("give a command after --, or one report to read")
    check_outputs(flags, *filter(None, [flags.report]))
    return flags, program or []


def deliver(kernels: list[ProfiledKernel], flags: argparse.Namespace) -> int:
    """Print and write the kernels; return the exit code, 1 if there are none."""
    document = ncu_document(kernels)
    show(document)
    write_outputs(flags, to_json({"kernels": kernels}), document)
    return 0 if kernels else 1
