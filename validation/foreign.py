"""Planted faults in programs of torchvision, timm and transformers: does the verdict find them?

    python -m validation foreign series=1 out=out-foreign
    python -m validation foreign series=6 out=out-frameworks
    python -m validation foreign repeats=5 out=out-repeated \\
        programs=bert_grad_norms,vit_gc,resnet50_empty_cache,mobilenet_small_batch

Times each program with its fault and without, captures it with the fault by nsys and by
torch.profiler, and diagnoses both captures. Prints a row for each program, a confusion table and
the counts; OUT/results.json has the evidence. With repeats, says whether a verdict is the same each
time. With `reread=true` an earlier series is diagnosed again, without a GPU. A program that failed
is named at the end, with exit code 1.

Needs CUDA, nsys, and three packages that this project itself does not need: pip install torchvision
timm transformers. validation/foreign_programs/series.py lists the programs.

Series 6 and later have programs of many frameworks (validation/framework_programs/series.py), with
faults and without, and more packages, which are named where they are missing. Each goes on where it
was stopped, prints each verdict's grade, promised beside measured gains and the profiler's
estimated beside its real cost; with `small=true` it tries its programs on the CPU, without nsys.

In a row, a verdict in capitals is wrong. The gain is the time by which a step was shorter without
the fault; the gain by a capture is the time that the report says would be saved, beside the step's
time in that capture, whose steps may be parts of the program's or several at once.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch

from benchmarks.measuring import Keys, key, run_process
from cli.files import write_text
from profiling.shared.json_records import read_json, to_json
from profiling.tools import nsight, nsys_tool
from profiling.tools.nsys_tool import Nsys
from validation import frameworks, judged
from validation.diagnoses import (
    TOOLS,
    Result,
    Times,
    check_kept,
    choose,
    diagnose_all,
    end_where_failed,
    markdown_row,
    print_counts,
    print_header,
)
from validation.foreign_programs.series import PROGRAMS, RANGES, SERIES, TIMES, Program
from validation.framework_programs import series as of_frameworks
from validation.framework_programs.program import Program as FrameworkProgram

PACKAGES = ("torchvision", "timm", "transformers")
FOLDERS = dict(zip(TOOLS, ("nsys", "torch"), strict=True))  # folders of captures, in OUT


@dataclass
class ForeignConfig(Keys):
    series: int = key(1, f"from 1 to {max(SERIES | of_frameworks.SERIES)}", least=1)
    programs: str = key("all", "of the series; or names of any, by comma")
    repeats: int = key(1, "captures of each program by each tool", least=1)
    out: str = key("out-foreign", "folder of captures, times.json and results.json")
    rounds: int = key(5, "timed turns of each program, in series 6 and later", least=1)
    small: bool = key(False, "try series 6 and later on the CPU, in small sizes")
    nsys: str = key("", "this nsys; else the one that is found")
    reread: bool = key(False, "diagnose the captures in OUT again")


def main(config: ForeignConfig) -> None:
    series = {
        n: [program.name for program in programs]
        for n, programs in (SERIES | of_frameworks.SERIES).items()
    }
    names = choose("programs", config.programs, config.series, series)
    out = Path(config.out).resolve()
    if chosen := [each for each in of_frameworks.PROGRAMS if each.name in names]:
        if len(chosen) < len(names):
            raise ValueError("programs: those of series 6 and later run by themselves")
        return judge_frameworks(config, chosen, out)
    programs = [PROGRAMS[name] for name in names]
    if config.reread:
        check_kept(out, FOLDERS.values())
    else:
        record(programs, config.repeats, out, find_nsys(config.nsys, out))
    times = read_json(out / TIMES, dict[str, Times]) if (out / TIMES).exists() else {}
    print_header()
    results = []
    for program in programs:
        results.append(read(program, times.get(program.name), out))
        print(markdown_row(results[-1]), flush=True)
    write_text(out / "results.json", to_json(results))
    end_where_failed("foreign", print_counts(results, config.repeats), out)


def judge_frameworks(
    config: ForeignConfig, programs: Sequence[FrameworkProgram], out: Path
) -> None:
    """Measure the programs as far as it was not done, and print what came of it all."""
    failed: list[str] = []
    if not config.reread:
        nsys = None if config.small else frameworks.find_nsys(config.nsys, programs)
        failed = frameworks.record(programs, config.rounds, out, nsys)
    known = frameworks.read_measured(programs, out)
    rows = judged.judge_all(programs, known, out, by_nsys=not config.small)
    write_text(out / "results.json", to_json(rows))
    judged.print_table(rows)
    judged.print_counts(rows)
    end_where_failed("foreign", failed, out)


def find_nsys(given: str, out: Path) -> Nsys:
    """The nsys to capture with. Raises ValueError where a requirement of the passes is missing."""
    if missing := " ".join(name for name in PACKAGES if not find_spec(name)):
        raise ValueError(f"foreign: its programs need more packages: pip install {missing}")
    if not torch.cuda.is_available():
        raise ValueError("foreign: needs a CUDA GPU; PyTorch sees none here")
    if any((out / name).exists() for name in (*FOLDERS.values(), TIMES)):
        raise ValueError(f"out={out}: holds a series; name another folder, or reread=true")
    return nsys_tool.find(given or None)


def record(programs: Sequence[Program], repeats: int, out: Path, nsys: Nsys) -> None:
    """Make three passes over all programs, each pass in a process of its own."""
    for folder in FOLDERS.values():
        (out / folder).mkdir(parents=True)
    names = ",".join(program.name for program in programs)
    run_pass("time", names, repeats, out)
    run_pass("torch", names, repeats, out)
    # one more than there are: nsys numbers the reports, and the program goes on after the last
    at_end = f"--capture-range-end=repeat:{len(programs) * repeats + 1}"
    target = ["-o", str(out / "nsys" / "range")]
    run_pass(
        "nsys",
        names,
        repeats,
        out,
        [nsys.path, "profile", *frameworks.NSYS_OPTIONS, at_end, *target],
    )
    export_ranges(nsys, out)


def run_pass(task: str, names: str, repeats: int, out: Path, profiler: Sequence[str] = ()) -> None:
    """Run one pass in a process, with its output in OUT/TASK.log."""
    log = out / f"{task}.log"
    print(f"{task}: see {log}", flush=True)
    program = [sys.executable, "-m", "validation.foreign_programs", task]
    environ, _ = nsight.without_secrets()  # which nsys would keep
    with open(log, "wb") as file:
        ended = run_process(
            [*profiler, *program, str(out), str(repeats), names], file, environ=environ
        )
    if ended.status:
        print(f"{task}: ended with {ended.status}")


def export_ranges(nsys: Nsys, out: Path) -> None:
    """Name the report of each range after its program, and export each to .sqlite."""
    captured = read_json(out / RANGES, list[str | None]) if (out / RANGES).exists() else []
    named = []
    for number, stem in enumerate(captured, 1):
        report = out / "nsys" / f"range.{number}.nsys-rep"
        if stem and report.exists():
            named.append(report.rename(report.with_name(f"{stem}.nsys-rep")))
    frameworks.export_reports(nsys, named, out / "export.log")


def read(program: Program, times: Times | None, out: Path) -> Result:
    name, planted = program.name, program.planted
    by_tool = {
        tool: diagnose_all(name, planted, captures_of(name, out / folder))
        for tool, folder in FOLDERS.items()
    }
    return Result(name, planted, times, by_tool)


def captures_of(name: str, folder: Path) -> list[Path]:
    """Captures of one program in the folder, by their number."""
    pattern = re.compile(rf"{name}-(\d+)\.(sqlite|json)(\.gz)?")
    paths = folder.iterdir() if folder.is_dir() else ()
    numbered = {int(match[1]): path for path in paths if (match := pattern.fullmatch(path.name))}
    return [numbered[number] for number in sorted(numbered)]
