"""Programs of many frameworks, timed in turns with their fault and without, and captured.

`python -m validation foreign series=7` ends here. A program has processes of its own: one with the
fault and one without start together and take turns, round by round, without a profiler; then the
one with the fault is captured by its framework's own profiler, and another is by nsys. What was
measured is in OUT/measured as soon as it is there: a command that was stopped goes on where it is
typed again, and tries again what failed.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from benchmarks.answering import AnsweringProcess
from benchmarks.measuring import measure_in_turns, run_process, say
from cli.files import write_text
from profiling.launch import reports
from profiling.shared.json_records import read_json, to_json
from profiling.tools import nsight, nsys_tool
from profiling.tools.nsys_tool import Nsys
from validation.framework_programs.parts import SMALL
from validation.framework_programs.program import FRAMEWORKS, Program

NSYS_OPTIONS = (
    "--trace=cuda,nvtx,osrt",
    "--cuda-graph-trace=node",
    "--sample=none",
    "--cpuctxsw=none",
    "--capture-range=cudaProfilerApi",
    "--wait=primary",
)
ON_CPU = {  # a try there
    SMALL: "1",
    "JAX_PLATFORMS": "cpu",
    "TRITON_INTERPRET": "1",
    "NUMBA_ENABLE_CUDASIM": "1",
}
CHILD = (sys.executable, "-m", "validation.framework_programs")
BLOCK_MS = 300.0  # a timed block takes about so long,
FEWEST, MOST = 3, 300  # or so many steps, in threes: whole rounds of what each third step does


@dataclass(frozen=True)
class Measured:
    """Times in ms a step of one program; None where it was not captured."""

    with_ms: list[float]  # one for each round, without a profiler
    without_ms: list[float]  # of the same work
    own_ms: float | None = None  # while captured by the framework's own profiler
    nsys_ms: float | None = None


def missing_packages(programs: Sequence[Program]) -> str:
    """The command that installs what the programs need and this Python lacks, or no text."""
    return install_command(" ".join(FRAMEWORKS[each.module][1] for each in programs))


def install_command(packages: str) -> str:
    """The command that installs those of the packages that this Python lacks, or no text."""
    missing = [name for name in dict.fromkeys(packages.split()) if not is_installed(name)]
    return f"pip install {' '.join(missing)}" if missing else ""


def is_installed(name: str) -> bool:
    try:
        return bool(version(name))
    except PackageNotFoundError:
        return False


def record(programs: Sequence[Program], rounds: int, out: Path, nsys: Nsys | None) -> list[str]:
    """Measure each program, and return the names of those of which something failed.

    Without `nsys` the programs are tried on the CPU, in small sizes.
    """
    for folder in ("measured", "own", "nsys", "logs"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    failed = measure_each(programs, partial(measure, rounds=rounds, out=out, nsys=nsys))
    if nsys:
        made = sorted((out / "nsys").glob("*.nsys-rep"))
        left = [report for report in made if not report.with_suffix(".sqlite").exists()]
        export_reports(nsys, left, out / "logs" / "export.log")
    return failed


def measure_each(programs: Sequence[Program], measure: Callable[[Program], None]) -> list[str]:
    """Measure the programs one after the other, and return the names of those that failed."""
    failed = []
    for number, program in enumerate(programs, 1):
        say(f"{number} of {len(programs)}: {program.name}")
        try:
            measure(program)
        except ValueError as error:
            say(str(error))
            failed.append(program.name)
    return failed


def measure(program: Program, rounds: int, out: Path, nsys: Nsys | None) -> None:
    """Measure what earlier commands did not. Raises ValueError where a process fails."""
    file = out / "measured" / f"{program.name}.json"
    if file.exists():
        measured = read_json(file, Measured)
    else:
        measured = time_and_capture(program, rounds, out, on_gpu=nsys is not None)
        write_text(file, to_json(measured))
    if nsys and measured.nsys_ms is None:
        measured = replace(measured, nsys_ms=capture_by_nsys(program, out, nsys))
        write_text(file, to_json(measured))


def environ_of(program: Program, side: str, on_gpu: bool) -> dict[str, str]:
    environ, _ = nsight.without_secrets()  # which nsys would keep
    environ |= program.environ if side == "fault" else {}
    environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # two processes share the GPU's memory
    return environ | ({} if on_gpu else ON_CPU)


def asked_process(program: Program, side: str, out: Path, on_gpu: bool) -> AnsweringProcess:
    """Start one side of a program, which does what it is asked."""
    log = out / "logs" / f"{program.name}-{side}.log"
    environ = environ_of(program, side, on_gpu)
    name = f"{program.name}-{side} ({log})"
    return AnsweringProcess(name, [*CHILD, program.name, side], log, environ)


def time_and_capture(program: Program, rounds: int, out: Path, on_gpu: bool) -> Measured:
    """Time both sides in turns; then let the one with the fault be captured."""
    with (
        asked_process(program, "fault", out, on_gpu) as faulty,
        asked_process(program, "without", out, on_gpu) as sound,
    ):
        laps = time_in_turns(program, faulty, sound, rounds)
        sound.kill()
        profiler = (program.own_profiler or "").split(".")[0]  # torch or jax
        file = out / "own" / f"{program.name}-1.json.gz"
        own_ms = faulty.ask(f"{profiler} {program.steps} {file}") if profiler else None
        faulty.end("end")
    without_ms = [ms / program.work_without for ms in laps[sound]]
    return Measured(laps[faulty], without_ms, own_ms)


def time_in_turns(
    program: Program, faulty: AnsweringProcess, sound: AnsweringProcess, rounds: int
) -> dict[AnsweringProcess, list[float]]:
    """Mean ms a step of both sides in each round, once they have warmed up."""
    measures = {}
    for child in (faulty, sound):
        child.answer()  # it has warmed up
    for child in (faulty, sound):
        ms = child.ask(f"time {FEWEST} {program.settle}")
        steps = FEWEST * round(min(max(BLOCK_MS / ms / FEWEST, 1), MOST / FEWEST))
        measures[child] = partial(child.ask, f"time {steps} {program.settle}")
    return measure_in_turns(measures, rounds)


def capture_by_nsys(program: Program, out: Path, nsys: Nsys) -> float:
    """Step time in ms while nsys captured. Raises ValueError where there is no report."""
    report, log = out / "nsys" / f"{program.name}-1", out / "logs" / f"{program.name}-nsys.log"
    answers = log.with_suffix(".answers")
    answers.unlink(missing_ok=True)
    target = [nsys.path, "profile", *NSYS_OPTIONS, "--capture-range-end=stop"]
    target += ["--force-overwrite=true", "-o", str(report), *CHILD]
    environ = environ_of(program, "fault", on_gpu=True) | {"ANSWERS": str(answers)}
    with open(log, "wb") as file:
        run_process([*target, program.name, "fault", "nsys", str(program.steps)], file, environ)
    lines = answers.read_text().split() if answers.exists() else []
    if len(lines) < 2 or not report.with_suffix(".nsys-rep").exists():
        raise ValueError(f"{program.name}-nsys: no report; see {log}")
    return float(lines[1])  # behind "ready"


def export_reports(nsys: Nsys, made: Sequence[Path], log: Path) -> None:
    """Export the reports to .sqlite, with nsys's words in the log."""
    with open(log, "w", encoding="utf-8") as file, redirect_stdout(file):
        reports.export_reports(nsys, made, nullcontext)


def read_measured(programs: Sequence[Program], out: Path) -> dict[str, Measured]:
    """Records of the programs that were measured, by name."""
    files = {each.name: out / "measured" / f"{each.name}.json" for each in programs}
    return {n: read_json(file, Measured) for n, file in files.items() if file.exists()}


def find_nsys(given: str, programs: Sequence[Program]) -> Nsys:
    """The nsys to capture with. Raises ValueError where a requirement is missing."""
    if missing := missing_packages(programs):
        raise ValueError(f"foreign: its programs need more packages: {missing}")
    if not torch.cuda.is_available():
        raise ValueError("foreign: needs a CUDA GPU; PyTorch sees none here")
    return nsys_tool.find(given or None)
