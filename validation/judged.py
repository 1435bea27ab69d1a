"""Verdicts of the report on captures of series 6 and later, graded and counted beside the truth."""

import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from benchmarks.measuring import print_markdown_table
from profiling.analysis.open_report import open_report
from profiling.analysis.records import Report
from profiling.analysis.summary import summarize
from profiling.shared.causes import VERDICT
from profiling.shared.manifest import CapturedWindow, Laps, Manifest, WindowSteps
from profiling.shared.units import ABSENT
from validation.framework_programs.program import Program
from validation.frameworks import Measured

GRADES = ("right", "debatable", "vague", "wrong", "none")
SAME_STEP = 1.4  # a report's step within this factor of the program's is the same step
CLOSE = 0.12  # share of the measured gain by which a promised one may be off
COLUMNS = (
    "program, framework, planted, tool, verdict, judged, with and without, measured gain, "
    "promised gain, ratio, profiler's cost estimated, real"
)


@dataclass(frozen=True)
class Judged:
    """The report on one capture beside the truth; times in ms a step of the program."""

    program: str
    framework: str
    planted: str
    control: bool
    same_work: bool  # in a step without the fault; else the gains are of different things
    tool: str
    problem: str | None  # why there is no report
    verdict: str | None
    grade: str  # one of GRADES
    with_ms: float | None  # this and the next: medians without a profiler
    without_ms: float | None
    promised_ms: float | None  # for what is planted; None: the report promises nothing for it
    # the same of a report that knows the time of a step without a profiler, as `run` tells it
    informed_ms: float | None
    scale: float  # the report's steps in one of the program's; 1 where they are the same
    estimated_cost_ms: float | None  # this and the next: what the profiler adds to a step
    real_cost_ms: float | None
    most_to_gain: str | None
    least_share: float = 0  # of the step, below which a fault is not counted

    @property
    def counted(self) -> bool:
        """Whether the fault takes so much of the step, without a profiler, that it bounds it."""
        if self.control or not self.with_ms or self.gain_ms is None:
            return True
        return self.gain_ms >= self.least_share * self.with_ms

    @property
    def gain_ms(self) -> float | None:
        if self.with_ms is None or self.without_ms is None:
            return None
        return self.with_ms - self.without_ms

    @property
    def ratio(self) -> float | None:
        return self.ratio_of(self.promised_ms)

    @property
    def informed_ratio(self) -> float | None:
        return self.ratio_of(self.informed_ms)

    def ratio_of(self, promised_ms: float | None) -> float | None:
        """Promised over measured gain; None for controls, and where the verdict is not right."""
        gain_ms, compared = self.gain_ms, self.same_work and not self.control
        if not compared or self.grade != "right" or promised_ms is None or not gain_ms:
            return None
        return promised_ms / gain_ms

    @property
    def waits(self) -> bool:
        """Whether what is planted makes the GPU wait."""
        return bool(VERDICT[self.planted].waiting)


def grade_of(verdict: str | None, program: Program) -> str:
    """The grade of a verdict. `host`, `gpu` and `unknown` name no class: vague, if no more."""
    if verdict is None:
        return "none"
    if verdict == program.planted:
        return "right"
    if verdict in program.debatable.split(","):
        return "debatable"
    waiting = VERDICT[program.planted].host
    vague = verdict == "unknown" or verdict == ("host" if waiting else "gpu")
    return "vague" if vague else "wrong"


def judge_all(
    programs: Sequence[Program], known: dict[str, Measured], out: Path, by_nsys: bool
) -> list[Judged]:
    """Judge all captures of the programs, several at a time: by nsys, and by their own profiler."""
    tasks = []
    for program in programs:
        measured = known.get(program.name)
        if by_nsys:
            capture = out / "nsys" / f"{program.name}-1.sqlite"
            tasks.append((program, "nsys", measured, capture, measured and measured.nsys_ms))
        if tool := program.own_profiler:
            capture = out / "own" / f"{program.name}-1.json.gz"
            tasks.append((program, tool, measured, capture, measured and measured.own_ms))
    with ProcessPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(judge, *zip(*tasks, strict=True)))


def judge(
    program: Program, tool: str, measured: Measured | None, capture: Path, captured_ms: float | None
) -> Judged:
    """Judge one capture; one that is missing or refused has the grade `none`."""
    problem, opened = None, None
    try:
        opened = open_report(capture)
    except (ValueError, OSError) as error:
        problem = str(error)
    report = opened.report if opened else None
    with_ms = median(measured.with_ms) if measured else None
    scale = scale_of(report, captured_ms) if report and captured_ms else 1.0
    informed_ms = None
    if opened and with_ms and captured_ms:
        known = manifest_of(with_ms / scale, captured_ms / scale)
        informed_ms = promised_ms(summarize(opened.analysis, known), program.planted, scale)
    verdict = report.bottleneck.verdict if report else None
    free_ms = report.estimated_free_ms if report else None
    captured = report.what_if.captured_ms if report and report.what_if else None
    estimated = captured - free_ms if captured is not None and free_ms is not None else None
    return Judged(
        program=program.name,
        framework=program.framework,
        planted=program.planted,
        control=program.control,
        same_work=program.work_without == 1,
        tool=tool,
        problem=problem,
        verdict=verdict,
        grade=grade_of(verdict, program),
        with_ms=with_ms,
        without_ms=median(measured.without_ms) if measured else None,
        promised_ms=promised_ms(report, program.planted, scale) if report else None,
        informed_ms=informed_ms,
        scale=scale,
        estimated_cost_ms=None if estimated is None else estimated * scale,
        real_cost_ms=captured_ms - with_ms if captured_ms and with_ms else None,
        most_to_gain=report.bottleneck.most_to_gain if report else None,
        least_share=program.least_share,
    )


def manifest_of(free_ms: float, captured_ms: float) -> Manifest:
    """The manifest of a window whose steps take so long without and with the profiler."""
    free, captured = Laps(free_ms, [free_ms]), Laps(captured_ms, [captured_ms])
    return Manifest(
        schema_version=1,
        kind="foreign",
        window=CapturedWindow(),
        step_ms=WindowSteps(before=free, captured=captured),
        overhead_percent=100 * (captured_ms / free_ms - 1),
    )


def scale_of(report: Report, captured_ms: float) -> float:
    """The program's step over the report's, whose steps may be parts of it or several at once."""
    scale = captured_ms / report.window.step_ms.mean
    return 1.0 if 1 / SAME_STEP < scale < SAME_STEP else scale


def promised_ms(report: Report, planted: str, scale: float) -> float | None:
    promised = [g.recoverable_ms_per_step for g in report.bottleneck.ranked if g.verdict == planted]
    return promised[0] * scale if promised else None


def print_table(rows: Sequence[Judged]) -> None:
    print_markdown_table(COLUMNS.split(", "), map(cells, rows))
    for row in rows:
        if row.problem:
            print(f"{row.program}, {row.tool}: {row.problem}")


def cells(row: Judged) -> list[str]:
    planted = f"none; {row.planted}" if row.control else row.planted
    promised = figure(row.promised_ms) + (f" (x {row.scale:.3g})" if row.scale != 1 else "")
    both = f"{figure(row.with_ms)}, {figure(row.without_ms)}"
    grade = row.grade if row.counted else f"{row.grade}, not counted"
    words = [row.program, row.framework, planted, row.tool, row.verdict or ABSENT, grade, both]
    costs = [figure(row.estimated_cost_ms), figure(row.real_cost_ms)]
    return [*words, figure(row.gain_ms), promised, figure(row.ratio), *costs]


def figure(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def print_counts(rows: Sequence[Judged]) -> None:
    """Print the grades by tool, and the errors of promised gains, of those that are counted."""
    left = dict.fromkeys(row.program for row in rows if not row.counted)
    rows = [row for row in rows if row.counted]
    print_grades([(row.tool, row.grade, row.control) for row in rows])
    if left:
        print(f"not counted, as the fault takes too little of the step: {', '.join(left)}")
    for name, waits in (("waits", True), ("GPU", False)):
        mine = [row for row in rows if row.waits == waits]
        print(gains_sentence(name, [row.ratio for row in mine if row.ratio is not None]))
        informed = [row.informed_ratio for row in mine if row.informed_ratio is not None]
        print(gains_sentence(f"{name}, with the step's time without a profiler", informed))


def print_grades(answers: Sequence[tuple[str, str, bool]]) -> None:
    """Print how often each tool has each grade; `answers` are (tool, grade, is of a control)."""
    counts = Counter((tool, grade) for tool, grade, _ in answers)
    alarms = Counter(tool for tool, grade, control in answers if control and grade == "wrong")
    rows = [
        [tool, *(str(counts[tool, grade]) for grade in GRADES), str(alarms[tool])]
        for tool in dict.fromkeys(tool for tool, *_ in answers)
    ]
    print_markdown_table(["tool", *GRADES, "controls with a false alarm"], rows)


def gains_sentence(name: str, ratios: Sequence[float]) -> str:
    """Sentence on how far promised gains are from measured ones, where the verdict is right."""
    errors = [100 * abs(ratio - 1) for ratio in ratios]
    if len(errors) < 2:
        return f"gains, {name}: {len(errors)} known"
    tenths = quantiles(errors, n=10, method="inclusive")
    close = sum(error <= 100 * CLOSE for error in errors)
    return (
        f"gains, {name}: off by {median(errors):.0f} % in the median, {tenths[-1]:.0f} % at the "
        f"90th percentile; median ratio {median(ratios):.2f}; "
        f"{close} of {len(errors)} within {100 * CLOSE:.0f} %"
    )
