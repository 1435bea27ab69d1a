"""`python -m profiling ncu`: what single kernels reach on the GPU, and what holds them back.

Nsight Compute runs each chosen kernel again and again to read all counters, so its program is slow
under it; the kernels' own times are right.
"""

import argparse
import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from cli.files import write_text
from profiling.launch import reports
from profiling.launch.process import stream
from profiling.report import ncu_page
from profiling.tools import nsight
from profiling.tools.ncu_csv import ProfiledKernel, read_pages
from profiling.verbs.run import refuse

HELP = """\
Profiles single kernels of a program with Nsight Compute, or reads what it has recorded.

usage: python -m profiling ncu [FLAGS] -- COMMAND
       python -m profiling ncu [FLAGS] FILE.ncu-rep | FILE.csv

which kernels
  --kernel REGEX      those whose function name it matches; all
  --range NAME        those launched in the trainer's range NAME: forward (default), backward,
                      optimizer ...; none: wherever launched, in any program
  --skip N            leave out the first N of them (0)
  --count N           then profile N (5), and end the program

how
  --set NAME          full (default), detailed or basic: how much is measured of each
  --clock-control W   none (default): clocks as in training; base: locked at the base clock, which
                      repeats better and is slower than training
  --ncu PATH          this ncu; else the one on PATH, else the newest in /opt/nvidia/nsight-compute
                      and in the CUDA toolkit
  --dry-run           print the command and stop

results
  --out FOLDER        where ncu.ncu-rep goes (out-ncu); an older one is kept as ncu.previous-N
  --json FILE  --html FILE

examples
  python -m profiling ncu --kernel flash -- python train.py config/shakespeare_char.yaml \\
      attention=flash compile=false max_iters=12 profile=nsys profile.start=10 profile.steps=1
  python -m profiling ncu --kernel ^triton --count 3 -- python train.py \\
      config/shakespeare_char.yaml cuda_graphs=false profile=nsys profile.start=10 profile.steps=1
  python -m profiling ncu --range none --kernel gemm -- python my_program.py
  python -m profiling ncu out-ncu/ncu.ncu-rep --html ncu.html

Ranges are pushed with profile=nsys, and looked at inside its window alone: there backward runs on
the thread that pushed its range. Kernels inside CUDA graphs are profiled one by one.

exit code: ncu's own where it fails; 1 where no kernel was profiled; 2 for a mistake in the command
line
"""
# (what ncu prints, why there is no report, how to go on)
CAUSES = (
    (
        r"ERR_NVGPUCTRPERM",
        "the driver keeps performance counters for the administrator (ERR_NVGPUCTRPERM)",
        "run as root (a container: with --cap-add=SYS_ADMIN), or load the driver with "
        "NVreg_RestrictProfilingToAdminUsers=0",
    ),
    (
        r"MULTIPLE_SUBSCRIBERS|river resource was unavailable|already (being )?profiled|"
        r"[Aa]nother (\w+ )?(profiler|tool)",
        "another profiler holds the GPU's counters",
        "end it: nsys, torch.profiler, or dcgm (`dcgmi profile --pause`)",
    ),
    (
        r"unrecogni[sz]ed option|invalid value|option .* is ambiguous",
        "ncu refused an option; it says which above",
        "--dry-run prints the command",
    ),
)
NO_KERNEL = r"No kernels were profiled"
AVAILABLE = re.compile(r"^\d+\. (.+)$", re.M)  # below ncu's line "Available Kernels:"


def main(argv: list[str]) -> int:
    """Runs it and returns the exit code. Raises ValueError for a mistake, before it starts."""
    if {"-h", "--help"} & set(argv):
        print(HELP, end="")
        return 0
    flags, program = parse(argv)
    if flags.report:
        return show(read(flags.report, flags.ncu), flags)
    check_program(program, flags.range)
    ncu = nsight.find("ncu", flags.ncu)
    partial = flags.out / "ncu.partial" / "ncu.ncu-rep"
    words = command(ncu, flags, partial, program)
    environ, removed = nsight.without_secrets()
    # ncu attaches to every child process, and inductor's compile workers can crash of it
    environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    if removed:
        told = ", ".join(removed)
        print(f"profiling ncu: kept out of the report: {told}", file=sys.stderr)
    print(shlex.join(words), flush=True)
    if flags.dry_run:
        return 0
    reports.empty(partial.parent)
    status, output = stream(words, environ)
    if not partial.exists():
        why, cure = explain(output, flags)
        print(f"\nno report: {why}\n  {cure}")
        return status or 1
    report = reports.move(partial, flags.out)
    partial.parent.rmdir()
    print(f"\nreport  {report} ({report.stat().st_size / 1e6:.1f} MB); ncu-ui opens it")
    return show(read(report, flags.ncu), flags) or status


def parse(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The flags and the command behind `--`."""
    place = argv.index("--") if "--" in argv else len(argv)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.error = refuse
    parser.add_argument("--kernel")
    parser.add_argument("--range", default="forward")
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--set", default="full", choices=("full", "detailed", "basic"))
    parser.add_argument("--clock-control", default="none", choices=("none", "base"))
    parser.add_argument("--out", type=Path, default=Path("out-ncu"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--html", type=Path)
    parser.add_argument("--ncu")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("report", nargs="?", type=Path)
    flags, program = parser.parse_args(argv[:place]), argv[place + 1 :]
    if bool(flags.report) == bool(program):
        raise ValueError("ncu: give a command behind --, or one report to read; see --help")
    if flags.skip < 0 or flags.count < 1:
        raise ValueError(f"--skip {flags.skip} --count {flags.count}: from 0 and from 1 up")
    return flags, program


def check_program(program: list[str], range_name: str) -> None:
    """Refuses what could only end without a kernel."""
    if "NSYS_PROFILING_SESSION_ID" in os.environ:
        raise ValueError("ncu: nsys is attached to this shell, and only one can be; start it alone")
    has_ranges = any(word.lstrip("-") == "profile=nsys" for word in program)
    if range_name != "none" and not has_ranges:
        raise ValueError(
            f"--range {range_name}: the trainer pushes ranges with profile=nsys, which the command "
            "lacks; add profile=nsys profile.start=10 profile.steps=1, or give --range none"
        )


def command(
    ncu: nsight.Program, flags: argparse.Namespace, report: Path, program: list[str]
) -> list[str]:
    words = [ncu.path, "--force-overwrite", "--export", str(report), "--set", flags.set]
    words += ["--clock-control", flags.clock_control, "--graph-profiling", "node"]
    if flags.range != "none":
        # DOMAIN@NAME/ is a push/pop range; without the slash it would be a start/end range
        words += ["--nvtx", "--nvtx-include", f"nanogpt@{flags.range}/"]
        words += ["--profile-from-start", "off"]
    if flags.kernel:
        words += ["--kernel-name", f"regex:{flags.kernel}"]
    words += ["--launch-skip", str(flags.skip), "--launch-count", str(flags.count)]
    return [*words, "--kill", "yes", *program]


def explain(output: str, flags: argparse.Namespace) -> tuple[str, str]:
    """(why, how to go on) of a program that left no report."""
    for pattern, why, cure in CAUSES:
        if re.search(pattern, output):
            return why, cure
    if not re.search(NO_KERNEL, output):
        return "the program or ncu failed", "its last lines are above"
    wanted = f"in the range {flags.range}" if flags.range != "none" else "in the program"
    wanted += f" and called like {flags.kernel}" if flags.kernel else ""
    wanted += f" and behind the first {flags.skip}" if flags.skip else ""
    there = AVAILABLE.findall(output.split("Available Kernels:")[-1])
    why = f"no kernel was {wanted}"
    if there:
        return why, f"there were {', '.join(there)}"
    return why, "was the window opened (profile.start below max_iters)? --range none looks anywhere"


def read(report: Path, given: str | None) -> list[ProfiledKernel]:
    """The kernels of a .ncu-rep, which takes ncu, or of a page that ncu wrote as CSV."""
    if not report.is_file():
        raise ValueError(f"{report}: no such file")
    if report.suffix != ".ncu-rep":
        return parsed(report.read_text(encoding="utf-8", errors="replace"), report)
    words = [nsight.find("ncu", given).path, "--import", str(report)]
    words += ["--page", "details", "--csv", "--print-units", "base"]  # base: without rounding
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-300:]
        raise ValueError(f"{report}: ncu --import failed: {said}")
    return parsed(done.stdout, report)


def parsed(text: str, report: Path) -> list[ProfiledKernel]:
    try:
        return read_pages(text)
    except ValueError as error:
        raise ValueError(f"{report}: {error}") from error


def show(kernels: list[ProfiledKernel], flags: argparse.Namespace) -> int:
    records = [record(kernel) for kernel in kernels]
    ncu_page.print_kernels(records)
    if flags.json:
        write_text(flags.json, json.dumps({"kernels": records}, indent=1) + "\n")
    if flags.html:
        write_text(flags.html, ncu_page.page(records))
    return 0 if records else 1


def record(kernel: ProfiledKernel) -> dict[str, Any]:
    """A kernel as in the JSON: its metrics by name, and what follows from them."""
    return {
        "name": kernel.name,
        "ranges": kernel.ranges,
        "grid": kernel.grid,
        "block": kernel.block,
        **kernel.metrics,
        "tail_percent": kernel.tail_percent,
        "blocks_per_sm": kernel.block_limits,
        "limited_by": kernel.limited_by,
        "advice": [dataclasses.asdict(advice) for advice in kernel.advice],
    }
