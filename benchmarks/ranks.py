"""Time and memory that `report` takes on the captures of many ranks, and what it finds.

    python -m benchmarks ranks [sizes=8x20,64x20,512x1] [hta_python=PYTHON]

RANKSxMB: simulated trainings (benchmarks.fleet), a trace of torch.profiler for each rank, of about
so many MB, on a clock of its own; one rank has a slow loader. Whole processes of `report --json`:
wall seconds, and the most memory that the process and its children held at one time. hta_python
names an interpreter that has HolisticTraceAnalysis, which then reads the same files.
"""

import json
import os
import platform
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.fleet.files import FileFacts, clocks_of_hosts, write_kineto
from benchmarks.fleet.simulation import Fault, Fleet, cost_us, simulate
from benchmarks.measuring import Keys, Process, key, run_successfully

KERNELS_A_MB = 1420  # in a trace with the launch and operator of each
STEPS, LATE, MB = 10, 5, 1e6
HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
files = {int(name.rsplit("rank", 1)[1].split(".")[0]): name for name in sys.argv[1:]}
analysis = TraceAnalysis(trace_files=files, trace_dir="/")
analysis.get_temporal_breakdown(visualize=False)
analysis.get_comm_comp_overlap(visualize=False)
"""


@dataclass
class RanksConfig(Keys):
    sizes: str = key("8x20,64x20,512x1", "RANKSxMB of each, by commas", needed="RANKSxMB")
    hta_python: str = key("", "interpreter that has HTA", file=True)


def main(config: RanksConfig) -> None:
    print(f"{platform.machine()}, {os.cpu_count()} cores\n")
    print("| captures | program | wall s | CPU s | peak MB | load before | found |")
    print("|---|---|---:|---:|---:|---:|---|")
    for size in sizes_of(config.sizes):
        with tempfile.TemporaryDirectory(prefix="ranks-") as name:
            measure(*size, Path(name), config.hta_python)


def sizes_of(text: str) -> list[tuple[int, float]]:
    """(ranks, MB) of each size in the text. Raises ValueError."""
    try:
        sizes = [(int(ranks), float(mb)) for ranks, mb in (x.split("x") for x in text.split(","))]
    except ValueError as error:
        raise ValueError(f"sizes={text}: give RANKSxMB by commas, as 8x20,64x20") from error
    if any(ranks <= LATE or mb <= 0 for ranks, mb in sizes):
        raise ValueError(f"sizes={text}: at least {LATE + 1} ranks, of some MB each")
    return sizes


def measure(ranks: int, mb: float, folder: Path, hta_python: str) -> None:
    fleet = fleet_of_size(ranks, mb)
    captures, report = folder / "captures", folder / "report.json"
    captures.mkdir()
    paths = write_captures(fleet, captures)
    whole = sum(path.stat().st_size for path in paths) / MB
    command = [sys.executable, "-m", "profiling", "report", str(captures), "--json", str(report)]
    load, run = os.getloadavg()[0], measure_command(command)
    late, cost_ms = json.loads(report.read_text("utf-8"))["straggler"], cost_us(fleet) / 1e3
    found = f"rank {late['rank']}: {late['because']}, {late['costs_ms_per_step']:.2f} ms"
    found += f" (true: rank {LATE}, {cost_ms:.2f} ms)"
    what = f"{ranks} ranks, {whole:.0f} MB"
    print_row(what, "report --json", run, load, found)
    if hta_python:
        load = os.getloadavg()[0]
        command = [str(Path(hta_python).absolute()), "-c", HTA, *map(str, paths)]
        print_row(what, "HolisticTraceAnalysis", measure_command(command), load, "-")


def fleet_of_size(ranks: int, mb: float) -> Fleet:
    a_step = round(KERNELS_A_MB * mb / STEPS)
    return Fleet(
        ranks=ranks,
        steps=STEPS,
        buckets=16,
        forward=a_step // 3,
        backward=16 * (a_step // 27),
        optimizer=a_step // 15,
        kernel_us=20.0,
        launch_us=6.0,
        fault=Fault("slow_loader", ranks=(LATE,)),
    )


def write_captures(fleet: Fleet, folder: Path) -> list[Path]:
    simulation, facts = simulate(fleet), FileFacts(clocks_of_hosts(fleet.ranks, 8), operators=True)
    return [
        write_kineto(simulation, rank, folder / f"rank{rank}.trace.json", facts)
        for rank in range(fleet.ranks)
    ]


def print_row(captures: str, program: str, run: Process, load: float, found: str) -> None:
    figures = f"{run.wall_s:.1f} | {run.cpu_s:.1f} | {run.peak_bytes / MB:,.0f} | {load:.1f}"
    print(f"| {captures} | {program} | {figures} | {found} |", flush=True)


def measure_command(command: list[str]) -> Process:
    """Run a command; its peak is that of it and its descendants at one time."""
    peak_bytes = 0

    def watch(process: int) -> None:
        nonlocal peak_bytes
        peak_bytes = max(peak_bytes, held_bytes(process))

    return replace(run_successfully(command, watch), peak_bytes=peak_bytes)


def held_bytes(process: int) -> int:
    """Memory of a process and its descendants: pages shared by N processes count as 1/N in each."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (words := read(folder / "stat").rpartition(")")[2].split()):
            children.setdefault(int(words[1]), []).append(int(folder.name))
    held, waiting = 0, [process]
    while waiting:
        each = waiting.pop()
        waiting += children.get(each, [])
        lines = read(Path("/proc") / str(each) / "smaps_rollup").splitlines()
        held += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return held


def read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the process has ended
        return ""
