"""Programs that train without a GPU: does the report name what is planted in them?

    OMP_NUM_THREADS=1 python -m validation on_cpu out=out-on-cpu
    python -m validation on_cpu out=out-on-cpu reread=true

Times each program with its fault and without, each in a process of its own, in turns and without a
profiler; then captures the one with the fault by `profiling run --kind torch`, which also measures
its steps, and reads the report. Prints a row for each program, and OUT/results.json has the rest. A
command that was stopped goes on where it is typed again; `reread=true` reads the same captures.

validation/framework_programs/on_cpu/series.py says what is planted, and what was expected.
"""

import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.measuring import Keys, key, print_markdown_table, run_process
from cli.files import write_text
from profiling.analysis.open_report import open_report
from profiling.shared.json_records import read_json, to_json
from validation import frameworks
from validation.diagnoses import end_where_failed
from validation.framework_programs.on_cpu.series import SERIES
from validation.framework_programs.program import Program
from validation.frameworks import Measured
from validation.started_programs import chosen_names

STEPS = 150  # of a captured program: until its steps are steady, 20 in the window, and some more
COLUMNS = (
    *("program", "planted", "verdict", "judged", "advice"),
    *("with and without", "measured gain", "largest possible gain"),
)


@dataclass
class OnCpuConfig(Keys):
    series: int = key(1, "1, 2, 3 or 4, each written after the mending behind the one before")
    programs: str = key("all", "or names of the series, by comma")
    rounds: int = key(10, "timed turns of each program", least=1)
    out: str = key("out-on-cpu", "folder of measured times, runs and results.json")
    reread: bool = key(False, "read the captures in OUT again")


@dataclass(frozen=True)
class Read:
    """The report on one program beside what was expected; times in ms a step."""

    program: str
    planted: str
    verdict: str
    grade: str  # right, debatable, vague (the class, without the words) or wrong
    evidence: list[str]
    next: list[str]
    advised: bool  # the advice is as expected
    with_ms: float
    without_ms: float
    spread_ms: tuple[float, float]  # least and most of the rounds' differences
    captured_ms: float | None
    most_to_gain: str | None


def main(config: OnCpuConfig) -> None:
    if config.series not in SERIES:
        raise ValueError(f"series={config.series}: one of {', '.join(map(str, SERIES))}")
    known = {program.name: program for program in SERIES[config.series]}
    programs = [known[name] for name in chosen_names(config.programs, known)]
    out, failed = Path(config.out).resolve(), list[str]()
    if not config.reread:
        if missing := frameworks.missing_packages(programs):
            raise ValueError(f"on_cpu: its programs need more packages: {missing}")
        failed = record(programs, config.rounds, out)
    rows = [read(each, out) for each in programs if each.name not in failed]
    write_text(out / "results.json", to_json(rows))
    print_table(rows)
    end_where_failed("on_cpu", failed, out)


def record(programs: Sequence[Program], rounds: int, out: Path) -> list[str]:
    """Measure and capture as far as it was not done; return the names of what failed."""
    for folder in ("measured", "runs", "logs"):
        (out / folder).mkdir(parents=True, exist_ok=True)

    def measure(program: Program) -> None:
        file = out / "measured" / f"{program.name}.json"
        if not file.exists():
            write_text(file, to_json(timed(program, rounds, out)))
        if not (out / "runs" / program.name).exists():
            capture(program, out)

    return frameworks.measure_each(programs, measure)


def timed(program: Program, rounds: int, out: Path) -> Measured:
    """Time both sides in turns, and end them."""
    with (
        frameworks.asked_process(program, "fault", out, on_gpu=False) as faulty,
        frameworks.asked_process(program, "without", out, on_gpu=False) as sound,
    ):
        laps = frameworks.time_in_turns(program, faulty, sound, rounds)
        for child in (faulty, sound):
            child.end("end")
    return Measured(laps[faulty], laps[sound])


def capture(program: Program, out: Path) -> None:
    """Capture a window of the program as a user does. Raises ValueError where it fails."""
    log = out / "logs" / f"{program.name}-run.log"
    environ = frameworks.environ_of(program, "fault", on_gpu=False)
    run = [sys.executable, "-m", "profiling", "run", "--kind", "torch"]
    run += ["--out", str(out / "runs" / program.name), "--", *frameworks.CHILD]
    with open(log, "wb") as file:
        ended = run_process([*run, program.name, "fault", f"time {STEPS} 0"], file, environ)
    if ended.status:
        raise ValueError(f"{program.name}: ended with {ended.status}; see {log}")


def read(program: Program, out: Path) -> Read:
    """The report on one program's run."""
    measured = read_json(out / "measured" / f"{program.name}.json", Measured)
    report = open_report(out / "runs" / program.name).report
    found = report.bottleneck
    pairs = zip(measured.with_ms, measured.without_ms, strict=True)
    gains = [a - b for a, b in pairs]
    return Read(
        program=program.name,
        planted=program.planted,
        verdict=found.verdict,
        grade=grade_of(found.verdict, found.evidence, program),
        evidence=found.evidence,
        next=found.next,
        advised=bool(re.search(program.advice, "\n".join(found.next), re.I)),
        with_ms=median(measured.with_ms),
        without_ms=median(measured.without_ms),
        spread_ms=(min(gains), max(gains)),
        captured_ms=report.what_if.captured_ms if report.what_if else None,
        most_to_gain=found.most_to_gain,
    )


def grade_of(verdict: str, evidence: Sequence[str], program: Program) -> str:
    said = bool(re.search(program.words, "\n".join(evidence)))
    if verdict == program.planted:
        return "right" if said else "vague"
    return "debatable" if verdict in program.debatable.split(",") and said else "wrong"


def print_table(rows: Sequence[Read]) -> None:
    print_markdown_table(
        COLUMNS,
        [
            (
                row.program,
                row.planted,
                row.verdict,
                row.grade,
                "fits" if row.advised else "does not",
                f"{row.with_ms:.1f}, {row.without_ms:.1f}",
                f"{row.with_ms - row.without_ms:.1f}",
                row.most_to_gain or "–",
            )
            for row in rows
        ],
    )
    print(dict(Counter(row.grade for row in rows)))
