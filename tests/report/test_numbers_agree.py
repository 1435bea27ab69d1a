"""Numbers that agree: on one screen, and between terminal, Markdown, page and JSON.

All captures, examples and goldens of the project are searched for figures that contradict others.
"""

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from profiling.analysis.analysis import Analysis
from profiling.analysis.difference.comparison_records import Comparison
from profiling.analysis.open_report import open_report
from profiling.analysis.ranks.files import StepNames
from profiling.analysis.records import Report
from profiling.analysis.summary import summarize
from profiling.report.renderers import markdown, page, terminal
from profiling.report.single.document import report_document
from profiling.report.single.key_figures import key_figures
from profiling.report.single.screen import first_screen
from profiling.shared.causes import VERDICT
from profiling.shared.json_records import to_json
from profiling.shared.units import milliseconds, percent
from profiling.verbs.ranks import read_folder
from tests.helpers.programs import MS, Program
from tests.paths import CAPTURES, GOLDENS, PROJECT

EXAMPLES = PROJECT / "profiling" / "examples"
FILES = sorted(
    {
        path.name: path
        for ending in ("sqlite.gz", "trace.json.gz")
        for folder in (EXAMPLES, CAPTURES, CAPTURES / "own_program")
        for path in folder.glob(f"*.{ending}")
    }.values()
)
ROUNDING = 0.0051  # of figures with two decimals
BUSY = re.compile(r"The GPU is busy (\d+) % of the time: ([\d.]+) of ([\d.]+) ms per step\.")
UP_TO = re.compile(r", (?:up to )?([\d.]+) of ([\d.]+) ms per step")
FREE = re.compile(r"step ([\d.]+) ms \(about ([\d.]+) without capturing\)")
COST = re.compile(r"([\d.,]+) ms per step")


def contradictions(report: Report) -> list[str]:
    """Lines that say what contradicts itself in the texts and records of a report."""
    return [
        *parts_that_do_not_add_up(report),
        *costs_above_the_step(report),
        *gains_above_the_free_step(report),
        *figures_of_another_step(report),
    ]


def parts_that_do_not_add_up(report: Report) -> list[str]:
    found = []
    step, whole = report.typical, report.window.step_ms
    if report.parts_ms and sum(report.parts_ms.values()) != pytest.approx(whole.mean):
        found.append("the parts of the mean step")
    if report.idle and report.breakdown:
        by_cause = sum(report.idle.by_cause.values())
        if by_cause != pytest.approx(report.breakdown.idle_ms):
            found.append("the causes of idle time")
    if step is None:
        return found
    if sum(step.parts_ms.values()) != pytest.approx(step.ms):
        found.append("the parts of the typical step")
    if not whole.min <= step.ms * (1 + 1e-9) <= whole.max * (1 + 2e-9):
        found.append("the typical step is not among the steps")
    if step.of_steps == report.window.steps and step.ms != pytest.approx(whole.mean):
        found.append("all steps are typical, and their mean is another")
    return found


def costs_above_the_step(report: Report) -> list[str]:
    step, told = report.typical, report.bottleneck
    if step is None or report.health.no_verdict:
        return []
    found = [
        f"{ms} ms of {step.ms:.2f}: {line}"
        for line in told.evidence
        for ms in COST.findall(line)
        if float(ms.replace(",", "")) > step.ms + ROUNDING
    ]
    found += [
        f"gain {gain.verdict} {gain.recoverable_ms_per_step} of {step.ms}"
        for gain in told.ranked
        if gain.recoverable_ms_per_step > step.ms + 1e-6
    ]
    if said := UP_TO.search(told.most_to_gain or ""):
        gain_ms, step_ms = map(float, said.groups())
        waits = VERDICT[told.verdict].waiting is not None
        computes_ms = step.parts_ms["compute"] if waits else 0.0
        if gain_ms > step_ms - computes_ms + 2 * ROUNDING:
            found.append(f"{told.most_to_gain}, and {computes_ms:.2f} ms compute")
        explained = any("apturing" in line for line in told.evidence)
        if step_ms > step.ms + ROUNDING or (step_ms < step.ms - ROUNDING and not explained):
            found.append(f"{told.most_to_gain} of a step of {step.ms:.2f} ms")
    return found


def gains_above_the_free_step(report: Report) -> list[str]:
    """Gains that are more than the step without a profiler less the GPU's other busy time."""
    step, told = report.typical, report.bottleneck
    free_ms = report.health.free_step_ms or report.estimated_free_ms
    if step is None or report.health.no_verdict or free_ms is None:
        return []
    own = {"copies": "copy", "communication": "communication"}
    idle_ms = max(0.0, free_ms - step.busy_ms)
    rooms = {
        name: idle_ms + step.parts_ms.get(own.get(name, ""), 0.0)
        for name, row in VERDICT.items()
        if row.waiting or name == "gpu_gaps"
    }
    found = [
        f"gain {gain.verdict} {gain.recoverable_ms_per_step} of {free_ms} ms without a profiler"
        for gain in told.ranked
        if gain.recoverable_ms_per_step > rooms.get(gain.verdict, step.ms) + 1e-6
    ]
    said = UP_TO.search(told.most_to_gain or "")
    if said and float(said[1]) > rooms.get(told.verdict, step.ms) + ROUNDING:
        found.append(f"{told.most_to_gain}, and {free_ms:.2f} ms without a profiler")
    return found


def figures_of_another_step(report: Report) -> list[str]:
    """Step and busy share in all texts against those of the record."""
    step = report.typical
    if step is None or report.health.no_verdict:
        return []
    step_text, busy_text = f"{milliseconds(step.ms)} ms", percent(step.busy_percent)
    short, whole = printed(first_screen(report)), printed(report_document(report))
    found = [
        f"{where}: no {text!r}"
        for where, text, said in [
            ("screen", f"step {step_text}", short),
            ("screen", f"GPU busy {busy_text}", short),
            ("screen", f"the step {step_text}", short),
            ("--full", f"the step {step_text}", whole),
            ("--full", f"typical step while captured {step_text}", whole),
            ("--full", f"GPU busy {busy_text}", whole),
        ]
        if text not in said
    ]
    text = markdown.markdown(report_document(report))
    beside = FREE.search(short)
    if beside and float(beside[2]) > 1.1 * float(beside[1]):
        found.append(f"screen: {beside[0]}")
    if f"**the typical step** | **{milliseconds(step.ms)}**" not in text:
        found.append("Markdown: another step")
    figures = dict(key_figures(report))  # also the cards of a page
    if (figures["GPU busy"], figures["typical step while captured"]) != (busy_text, step_text):
        found.append("page: other cards")
    share, busy_ms, step_ms = map(float, BUSY.search(report.bottleneck.evidence[0]).groups())
    if abs(share - step.busy_percent) > 0.51 or abs(step_ms - step.ms) > ROUNDING:
        found.append("evidence: another share or step")
    if abs(busy_ms - step.busy_ms) > ROUNDING:
        found.append("evidence: another busy time")
    return found


def printed(document) -> str:
    out = io.StringIO()
    terminal.show(document, Console(file=out, width=200, highlight=False))
    return " ".join(out.getvalue().split())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_capture_contradicts_itself(path):
    assert contradictions(open_report(path).report) == []


def planted(longest: int, slow_phase: str, share: float) -> Report:
    """A program with one phase in which the host is late, and a step that is far longer."""
    program = Program()
    for number in range(12):
        with program.step():
            for phase in ("data", "forward", "backward", "optimizer"):
                with program.phase(phase):
                    for _ in range(5):
                        program.launch(int(MS * (1 - share)))
                    if phase == slow_phase:
                        program.wait()
                        program.call(int(MS * 40 * share), "cudaMalloc")
            if number == longest:
                program.call(200 * MS, "cudaMalloc")
    return summarize(Analysis(program.trace()))


@pytest.mark.parametrize("longest", [-1, 0, 5])
@pytest.mark.parametrize("phase", ["data", "forward", "optimizer"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_no_planted_fault_contradicts_itself(longest, phase, share):
    assert contradictions(planted(longest, phase, share)) == []


def test_a_contradiction_is_found():
    report = planted(0, "forward", 0.5)
    step = replace(report.typical, ms=2 * report.typical.ms)
    assert len(contradictions(replace(report, typical=step))) >= 4
    told = replace(report.bottleneck, most_to_gain="x, up to 900.00 of 901.00 ms per step")
    assert len(contradictions(replace(report, bottleneck=told))) == 2
    free = replace(report.health, free_step_ms=report.typical.ms / 2)
    assert len(gains_above_the_free_step(replace(report, health=free))) >= 2


def test_json_and_page_have_the_same_step():
    report = planted(5, "forward", 0.5)
    assert msgspec.json.decode(to_json(report), type=Report).typical == report.typical
    text = page.page(report_document(report))
    assert f"{milliseconds(report.typical.ms)} ms" in text
    assert percent(report.typical.busy_percent) in text


@pytest.mark.parametrize("path", sorted(GOLDENS.glob("compare-*.json")), ids=lambda path: path.stem)
def test_no_golden_comparison_contradicts_itself(path):
    found = msgspec.convert(json.loads(path.read_text()), Comparison)
    step = found.step_ms
    assert step.ratio == pytest.approx(step.candidate / step.baseline)
    times = f"{milliseconds(step.baseline)} -> {milliseconds(step.candidate)} ms per step"
    assert times in found.sentence
    if step.ci95:
        assert step.ci95[0] <= step.ratio <= step.ci95[1]
    captured = found.captured_step_ms or step
    if found.buckets:
        whole = sum(row.delta_ms for row in found.buckets)
        assert whole == pytest.approx(captured.candidate_mean - captured.baseline_mean)
    for row in found.kernels.changed:
        assert row.delta_ms == pytest.approx(row.candidate_ms - row.baseline_ms)
        assert row.percent == pytest.approx(100 * row.delta_ms / row.baseline_ms)
    assert {row.name for row in found.kernels.added}.isdisjoint(
        row.name for row in found.kernels.removed
    )


@pytest.mark.parametrize("path", sorted(GOLDENS.glob("report-*.json")), ids=lambda path: path.stem)
def test_no_golden_report_contradicts_itself(path):
    made = json.loads(path.read_text())
    for report in made.values() if path.stem == "report-outlines" else [made]:
        step = report["typical"]
        busy = sum(step["parts_ms"][name] for name in ("compute", "communication", "copy"))
        said = BUSY.search(report["bottleneck"]["evidence"][0])
        assert float(said[2]) == pytest.approx(busy, abs=ROUNDING)
        assert float(said[3]) == pytest.approx(step["ms"], abs=ROUNDING)


@pytest.mark.parametrize("folder", [EXAMPLES / "late_rank", CAPTURES / "ranks" / "hidden_waits"])
def test_no_cost_of_ranks_is_above_their_step(folder: Path):
    analysis = read_folder([folder], sorted(folder.glob("*.gz")), StepNames(None, None))
    assert analysis is not None
    report = analysis.report
    longest_ms = max(max(row) for row in report.steps.step_ms)
    mean_ms = [sum(ms) / len(ms) for ms in zip(*report.steps.step_ms, strict=True)]
    for rank, step_ms in zip(report.ranks, mean_ms, strict=True):
        assert sum(rank.parts_ms.values()) == pytest.approx(step_ms)
        assert (rank.communication.exposed_wait_ms or 0.0) <= step_ms
    if report.straggler:
        assert 0 < report.straggler.costs_ms_per_step < longest_ms
