"""Verdicts of the report on runs with a planted bottleneck, beside what its removal gained.

Used by planted and foreign, whose tables are made here, and by planted_ranks.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measuring import print_markdown_table
from cli.errors import suggestion
from profiling.analysis.open_report import open_report
from profiling.analysis.ranks.found import captures_of_run
from profiling.analysis.records import Bottleneck
from profiling.shared.units import ABSENT, milliseconds

TOOLS = ("nsys", "torch.profiler")  # profilers that capture


@dataclass(frozen=True, kw_only=True)
class Diagnosis(Bottleneck):
    """Verdict of the report on one capture of a run with a planted fault."""

    plant: str
    planted: str  # the verdict that would be right
    step_ms: float
    idle_ms: float | None  # None without GPU activity


@dataclass(frozen=True)
class Times:
    """Step times of the same work with and without the fault, measured without a profiler."""

    with_ms: float
    without_ms: float


@dataclass(frozen=True)
class Result:
    """Times and diagnoses of one program with a planted fault."""

    program: str
    planted: str  # the verdict that would be right
    times: Times | None  # None where it failed
    by_tool: dict[str, list[Diagnosis]]  # one diagnosis for each capture


def choose(key: str, names: str, number: int, series: Mapping[int, Iterable[str]]) -> list[str]:
    """Names given by comma, each once, or `all` of the series of this number.

    Raises ValueError for another series, and for a name that is in none.
    """
    if number not in series:
        raise ValueError(f"series={number}: there are {', '.join(map(str, series))}")
    known = {name: None for every in series.values() for name in every}
    chosen = list(series[number]) if names == "all" else names.split(",")
    for name in chosen:
        if name not in known:
            near = suggestion(name, known) or f"; there are {', '.join(known)}"
            raise ValueError(f"{key}={name}: no such name{near}")
    return list(dict.fromkeys(chosen))


def check_kept(out: Path, runs: Iterable[str]) -> None:
    """Check that reread=true has captures to read.

    Raises ValueError where no folder of these runs in `out` has one.
    """
    if not any(captures_of_run(out / run) for run in runs):
        raise ValueError(f"out={out}: has no captures; leave reread=true away to make them")


def diagnose(name: str, planted: str, capture: Path) -> Diagnosis:
    report = open_report(capture).plain_report
    return Diagnosis(
        **vars(report.bottleneck),
        plant=name,
        planted=planted,
        step_ms=report.window.step_ms.median,
        idle_ms=report.breakdown.idle_ms if report.breakdown else None,
    )


def diagnose_all(name: str, planted: str, captures: Iterable[Path]) -> list[Diagnosis]:
    """Diagnose each capture; print the error of one that cannot be read, and leave it out."""
    diagnoses = []
    for capture in captures:
        try:
            diagnoses.append(diagnose(name, planted, capture))
        except ValueError as error:
            print(error, file=sys.stderr)
    return diagnoses


def print_confusion(rows: Sequence[Diagnosis]) -> None:
    """Print the confusion table: planted classes down, verdicts across."""
    pairs = Counter((row.planted, row.verdict) for row in rows)
    classes = sorted({name for pair in pairs for name in pair})
    table = [
        [planted, *(str(pairs[planted, verdict] or "") for verdict in classes)]
        for planted in sorted({row.planted for row in rows})
    ]
    print_markdown_table(["planted \\ verdict", *classes], table)
    right = sum(row.verdict == row.planted for row in rows)
    print(f"\n{right} of {len(rows)} verdicts are right")


def print_header() -> None:
    columns = ["program", "planted", *TOOLS, "with, without the fault", "gain"]
    columns += [f"gain by {tool}" for tool in TOOLS]
    print_markdown_table(columns, [])


def markdown_row(result: Result) -> str:
    times = result.times
    cells = [result.program, result.planted]
    cells += [verdicts(result.by_tool[tool]) for tool in TOOLS]
    if times:
        both = f"{milliseconds(times.with_ms)}, {milliseconds(times.without_ms)} ms"
        cells += [both, f"{milliseconds(times.with_ms - times.without_ms)} ms"]
    else:
        cells += [ABSENT, ABSENT]
    cells += [predicted_gain(result.by_tool[tool]) for tool in TOOLS]
    return f"| {' | '.join(cells)} |"


def verdicts(diagnoses: Sequence[Diagnosis]) -> str:
    """Cell such as `launch`, or `launch 4, host 1` of several captures; wrong ones in capitals."""
    counts = Counter(
        diagnosis.verdict if diagnosis.verdict == diagnosis.planted else diagnosis.verdict.upper()
        for diagnosis in diagnoses
    )
    if len(diagnoses) == 1:
        return next(iter(counts))
    return ", ".join(f"{verdict} {count}" for verdict, count in counts.most_common()) or ABSENT


def predicted_gain(diagnoses: Sequence[Diagnosis]) -> str:
    """Gain that the first capture predicts; ABSENT for classes without one, such as gpu_latency."""
    for diagnosis in diagnoses[:1]:
        for gain in diagnosis.ranked:
            if gain.verdict == diagnosis.planted:
                ms = milliseconds(gain.recoverable_ms_per_step)
                return f"{ms} of {milliseconds(diagnosis.step_ms)} ms"
    return ABSENT


def print_counts(results: Sequence[Result], repeats: int = 1) -> list[str]:
    """Print the confusion table and the counts of each tool; a failed capture is not right.

    Returns the programs that lack one of `repeats` captures.
    """
    print_confusion(
        [each for result in results for found in result.by_tool.values() for each in found]
    )
    failed: list[str] = []
    for tool in TOOLS:
        found = {result.program: result.by_tool[tool] for result in results}
        every = [diagnosis for each in found.values() for diagnosis in each]
        right = sum(diagnosis.verdict == diagnosis.planted for diagnosis in every)
        print(f"{tool}: {right} of {sum(max(repeats, len(each)) for each in found.values())}")
        if missing := [name for name, each in found.items() if len(each) < repeats]:
            print(f"{tool}: no capture of {', '.join(missing)}")
            failed += missing
        if repeated := [each for each in found.values() if len(each) > 1]:
            same = sum(len({diagnosis.verdict for diagnosis in each}) == 1 for each in repeated)
            print(f"{tool}: the same verdict each time for {same} of {len(repeated)} programs")
    return failed


def end_where_failed(command: str, failed: Iterable[str], out: Path) -> None:
    """Raises SystemExit, for exit code 1, that names what failed."""
    if names := ", ".join(dict.fromkeys(failed)):
        raise SystemExit(f"{command}: failed: {names}; the logs are in {out}")
