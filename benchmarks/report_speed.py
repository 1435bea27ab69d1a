"""Time and memory that `report` takes on large captures, beside the tools that exist.

    python -m benchmarks report_speed [hta_python=PYTHON] [KEY=VALUE ...]

- an nsys export of a million kernels: `report --json` against `nsys stats` with three reports,
  where there is an nsys
- a Chrome trace of 100,000 kernels: `report --json` against HolisticTraceAnalysis in an interpreter
  that has it (hta_python=), which loads it and breaks down time and kernels

Whole processes, in turns: wall seconds, and the peak memory of the largest process of each
(getrusage). A first round warms the caches and does not count. Prints a Markdown table. Captures
that are not given are made by `repeat_capture` from those of the tests.
"""

import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.measuring import (
    PROJECT,
    Keys,
    Process,
    key,
    measure_in_turns,
    run_successfully,
    spread,
)
from profiling.tools import nsight

CAPTURES = PROJECT / "tests" / "captures"
LONG = {  # file -> (capture of the tests to repeat, number of kernels)
    "long.sqlite": ("slow_eager.sqlite.gz", 1_000_000),
    "long.json": ("flash_eager.trace.json.gz", 100_000),
}
STOCK = ("cuda_gpu_kern_sum", "cuda_api_sum", "cuda_gpu_mem_time_sum")
HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]})
analysis.get_temporal_breakdown(visualize=False)
analysis.get_gpu_kernel_breakdown(visualize=False)
"""


@dataclass
class SpeedConfig(Keys):
    sqlite: str = key("", "nsys export; empty: made, a million kernels", file=True)
    trace: str = key("", "Chrome trace; empty: made, 100,000 kernels", file=True)
    hta_python: str = key("", "interpreter that has HTA", file=True)
    repeats: int = key(3, "runs of each program", least=1)


def main(config: SpeedConfig) -> None:
    with tempfile.TemporaryDirectory(prefix="report-speed-") as name:
        folder = Path(name)
        sqlite = Path(config.sqlite) if config.sqlite else make_capture("long.sqlite", folder)
        trace = Path(config.trace) if config.trace else make_capture("long.json", folder)
        contests = {
            path: {"report --json": report_command(path, folder)} for path in (sqlite, trace)
        }
        left_out = []
        for path, others in ((sqlite, stock_programs), (trace, hta_programs)):
            try:
                contests[path] |= others(path, config)
            except ValueError as error:
                left_out.append(str(error))
        load = os.getloadavg()[0]
        runs = {
            path: measure_programs(programs, config.repeats) for path, programs in contests.items()
        }
    print(f"{platform.machine()}, {os.cpu_count()} cores, load before {load:.1f}; medians\n")
    print("| capture | program | wall s (least, most) | peak MB | of report's time, memory |")
    print("|---|---|---:|---:|---:|")
    for path, results in runs.items():
        print_rows(path.name, results)
    for why in left_out:
        print(f"\nleft out: {why}")


def make_capture(name: str, folder: Path) -> Path:
    """Make a long capture in another process: a child's peak memory starts at its parent's."""
    source, kernels = CAPTURES / LONG[name][0], LONG[name][1]
    if not source.is_file():
        raise ValueError(f"{source}: no such file; give sqlite= and trace=")
    command = [sys.executable, "-m", "benchmarks", "repeat_capture"]
    command += [f"capture={source}", f"out={folder / name}", f"kernels={kernels}"]
    subprocess.run(command, cwd=PROJECT, stdout=sys.stderr, check=True)
    return folder / name


def report_command(path: Path, folder: Path) -> list[str]:
    words = ["report", str(path.resolve()), "--json", str(folder / "report.json")]
    return [sys.executable, "-m", "profiling", *words]


def stock_programs(path: Path, _: SpeedConfig) -> dict[str, list[str]]:
    """Name -> command. Raises ValueError where there is no nsys."""
    nsys = nsight.find("nsys")
    reports = [word for name in STOCK for word in ("--report", name)]
    command = [nsys.path, "stats", "--format", "csv", *reports, str(path.resolve())]
    return {f"nsys {nsys.version} stats, {len(STOCK)} reports": command}


def hta_programs(path: Path, config: SpeedConfig) -> dict[str, list[str]]:
    """Name -> command. Raises ValueError where no interpreter with HTA is given."""
    python = config.hta_python
    if not python:
        raise ValueError("HolisticTraceAnalysis: hta_python= is not given")
    asked = "from importlib.metadata import version; print(version('HolisticTraceAnalysis'))"
    answer = subprocess.run([python, "-c", asked], capture_output=True, text=True)
    if answer.returncode:
        raise ValueError(f"HolisticTraceAnalysis: {python} has none")
    command = [str(Path(python).absolute()), "-c", HTA, str(path.resolve())]
    return {f"HolisticTraceAnalysis {answer.stdout.strip()}": command}


def measure_programs(programs: dict[str, list[str]], repeats: int) -> dict[str, list[Process]]:
    """Name -> runs of each program in turns, without a first one that warms the caches."""
    measures = {
        name: partial(measure_and_print, name, command) for name, command in programs.items()
    }
    return {name: runs[1:] for name, runs in measure_in_turns(measures, repeats + 1).items()}


def measure_and_print(name: str, command: list[str]) -> Process:
    run = run_successfully(command)
    print(f"{name}: {run.wall_s:.1f} s, {run.peak_bytes / 1e6:.0f} MB", file=sys.stderr)
    return run


def print_rows(capture: str, results: dict[str, list[Process]]) -> None:
    ours = next(iter(results.values()))
    for name, runs in results.items():
        wall_s = [run.wall_s for run in runs]
        peak = median(run.peak_bytes for run in runs)
        times = median(wall_s) / median(run.wall_s for run in ours)
        memory = peak / median(run.peak_bytes for run in ours)
        cells = [capture, name, spread(wall_s, 2), f"{peak / 1e6:.0f}"]
        print(f"| {' | '.join(cells)} | {times:.2f}, {memory:.2f} |")
