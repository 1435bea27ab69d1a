"""Memory snapshots of programs that are not ours, judged by what is known of each beforehand.

    python -m validation memory_judged out=out-memory-judged
    python -m validation memory_judged out=out-memory-judged nanogpt=../nanoGPT limit_s=200
    python -m validation memory_judged out=out-memory-judged small=true

A language model of transformers, a convolutional one of torchvision, nanoGPT, an error for want of
memory that is caught, a planted leak, planted fragmentation, FSDP on one GPU, a compiled model,
expandable segments, and graphs that a list keeps: validation/memory_programs.py. Each runs in a
process of its own, which writes a snapshot, kept compressed in OUT/snapshots, and OUT/NAME.json,
what is true of it. A command that was stopped goes on where it is typed again; `limit_s` ends it
between programs.

Then each snapshot is read, and judged: whether the report's answer, the kind with the most bytes
and the line are those that are known, whether kinds, lines and modules add up to what was
allocated, and whether the peak is torch.cuda.max_memory_allocated(), each to the byte. That part
needs no GPU, and is done anew by each command. `small=true` tries the programs on the CPU, which
has no snapshots.

Needs CUDA, transformers and torchvision. A program whose packages are missing is left out.
"""

import os
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from benchmarks.measuring import Keys, key, print_markdown_table
from profiling.analysis.memory.analysis import memory_report
from profiling.analysis.memory.memory_records import MemoryReport, Place
from profiling.shared.json_records import read_json
from profiling.shared.units import ABSENT
from validation.framework_programs.parts import SMALL
from validation.frameworks import install_command
from validation.memory_programs import NANOGPT, PROGRAMS, Truth
from validation.packed_snapshots import pack, unpacked
from validation.started_programs import chosen_names, run_each, run_logged, runnable

EACH_S, LONGEST_S = 30.0, 120.0  # a program is expected to take, with its start, and takes at most
SNAPSHOTS = "snapshots"  # folder in `out`
COLUMNS = (
    "program",
    "answer",
    "most at the peak",
    "planted line",
    "sums",
    "peak, bytes",
    "max_memory_allocated",
    "MB",
    "read, s",
)


@dataclass
class JudgedConfig(Keys):
    out: str = key("out-memory-judged", "folder of the snapshots")
    programs: str = key("all", "or names, by comma")
    nanogpt: str = key("", "a checkout of nanoGPT")
    limit_s: float = key(0, "start no program that would end later than this; 0: no limit", least=0)
    small: bool = key(False, "try the programs on the CPU")


@dataclass(frozen=True)
class Judged:
    """A snapshot's report beside what is true."""

    truth: Truth
    answer: str
    kind: str | None  # with the most bytes
    line: str | None  # FILE:LINE that the report names first
    allocated_bytes: int
    sums: tuple[int, ...]  # of the kinds, of the lines, of the modules
    peak_bytes: int | None
    reaches_back: bool
    notes: list[str]
    snapshot_bytes: int
    read_s: float

    @property
    def faults(self) -> list[str]:
        """Sentences on what is not as it is known to be."""
        truth, said = self.truth, []
        if self.answer != truth.answer:
            said.append(f"the answer is {self.answer}, not {truth.answer}")
        if truth.kind and self.kind != truth.kind:
            said.append(f"most is {self.kind}, not {truth.kind}")
        if truth.planted and self.line != truth.planted:
            said.append(f"the line is {self.line}, not {truth.planted}")
        if set(self.sums) != {self.allocated_bytes}:
            said.append(f"sums {self.sums} of {self.allocated_bytes} bytes allocated")
        if self.peak_bytes != truth.peak_bytes:
            why = "" if self.reaches_back else f" ({' '.join(self.notes)})"
            said.append(f"the peak is {self.peak_bytes}, not {truth.peak_bytes}{why}")
        return said


def main(config: JudgedConfig) -> None:
    out = Path(config.out).resolve() / ("small" if config.small else "")
    out.mkdir(parents=True, exist_ok=True)
    names = chosen_names(config.programs, PROGRAMS)
    left = [name for name in names if not (out / f"{name}.json").exists()]
    left = runnable(left, lambda name: missing_requirement(name, config))
    programs = [(name, partial(make, name, out, config)) for name in left]
    failed = run_each(programs, config.limit_s, EACH_S)
    made = [name for name in names if snapshot_at(out, name).exists()]
    judged = [judge(out, name) for name in made if (out / f"{name}.json").exists()]
    print_table(judged)
    if failed or any(row.faults for row in judged):
        sys.exit(f"memory_judged: {len(failed)} programs failed; not all is as it is known to be")


def snapshot_at(out: Path, name: str) -> Path:
    return out / SNAPSHOTS / f"{name}.pickle.xz"


def missing_requirement(name: str, config: JudgedConfig) -> str:
    """Words for what the program needs and there is not; no text where there is all."""
    if not config.small and not torch.cuda.is_available():
        return "PyTorch sees no GPU"
    if name == "nanogpt" and not config.nanogpt:
        return "give nanogpt=FOLDER"
    return install_command(PROGRAMS[name].packages)


def make(name: str, out: Path, config: JudgedConfig) -> str:
    """Run the program in a process of its own. Raises ValueError with its last words."""
    environ = dict(os.environ) | dict(PROGRAMS[name].environ)
    environ |= {SMALL: "1", "CUDA_VISIBLE_DEVICES": ""} if config.small else {}
    environ |= {NANOGPT: str(Path(config.nanogpt).resolve())} if config.nanogpt else {}
    command = [sys.executable, "-m", "validation.memory_programs", name, str(out)]
    run_logged(command, out / f"{name}.log", environ, LONGEST_S)
    snapshot = out / f"{name}.pickle"
    if snapshot.exists():  # there is none on a CPU
        pack(snapshot, out / SNAPSHOTS)
    return "made"


def judge(out: Path, name: str) -> Judged:
    with unpacked([snapshot_at(out, name)]) as (path,):
        snapshot_bytes = path.stat().st_size
        start = time.perf_counter()
        report = memory_report([path])
        read_s = time.perf_counter() - start
    parts = (report.kinds, report.lines, report.modules)
    first = place_named(report)
    return Judged(
        truth=read_json(out / f"{name}.json", Truth),
        answer=report.answer,
        kind=report.kinds[0].kind if report.kinds else None,
        line=first.line.replace("\\", "/").rpartition("/")[2] if first and first.line else None,
        allocated_bytes=report.at.allocated_bytes,
        sums=tuple(sum(row.bytes for row in rows) for rows in parts),
        peak_bytes=report.peak.allocated_bytes if report.peak else None,
        reaches_back=report.reaches_back,
        notes=report.notes,
        snapshot_bytes=snapshot_bytes,
        read_s=read_s,
    )


def place_named(report: MemoryReport) -> Place | None:
    """The line that the report's answer is about, or the one with the most bytes."""
    if report.answer == "out_of_memory" and report.out_of_memory:
        return report.out_of_memory.place
    if report.answer == "leak":
        return report.leaks[0].place
    if report.answer == "fragmented":
        return report.pinned[0].place if report.pinned else None
    return next((row.place for row in report.lines if row.place.own), None)


def print_table(rows: list[Judged]) -> None:
    """Print a row for each snapshot, and what is wrong with it."""
    if not rows:
        return
    print(f"torch {rows[0].truth.torch}, {rows[0].truth.device}")
    print_markdown_table(COLUMNS, map(cells, rows))
    for row in rows:
        for fault in row.faults:
            print(f"{row.truth.program}: {fault}")


def cells(row: Judged) -> list[str]:
    planted = row.truth.planted
    return [
        row.truth.program,
        row.answer,
        row.kind or ABSENT,
        f"{row.line}{'' if row.line == planted else ' (wrong)'}" if planted else "none",
        "equal" if set(row.sums) == {row.allocated_bytes} else "differ",
        figure(row.peak_bytes),
        figure(row.truth.peak_bytes),
        f"{row.snapshot_bytes / 1e6:.2f}",
        f"{row.read_s:.2f}",
    ]


def figure(size: int | None) -> str:
    return ABSENT if size is None else f"{size:,}"
