"""First screen of a report: its length, its order, and what it leaves to --full."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from profiling.analysis.analysis import Analysis
from profiling.analysis.open_report import open_report
from profiling.analysis.records import Finding
from profiling.analysis.summary import summarize
from profiling.analysis.verdict.health import PERSONAL
from profiling.report.document import Document
from profiling.report.renderers import terminal
from profiling.report.single.document import report_document
from profiling.report.single.screen import findings, first_screen
from profiling.report.single.verdict_line import verdict_line
from profiling.report.whatif import best_line
from profiling.shared.causes import PARTS
from profiling.shared.units import milliseconds
from tests.helpers.captures import report_of
from tests.helpers.programs import training
from tests.helpers.reports import report_with_manifest
from tests.paths import CAPTURES

OWN_CAPTURES = ("flash_attr_false", "flash_compile", "flash_eager", "slow_compile", "slow_eager")


def text_of(document: Document, width: int = 80) -> str:
    out = io.StringIO()
    terminal.show(document, Console(file=out, width=width, highlight=False))
    return out.getvalue()


@pytest.mark.parametrize("name", OWN_CAPTURES)
def test_it_fits_a_screen_with_the_verdict_once_more(name):
    report = report_of(name)
    predicted = best_line(report.what_if)
    lines = text_of(first_screen(report)).splitlines()
    assert max(map(len, lines)) <= 80
    assert 24 <= len(lines) + 3 <= 40  # --full, a blank, the verdict
    said = " ".join(" ".join(lines).split())
    for part in (
        *report.bottleneck.evidence[:2],
        report.bottleneck.most_to_gain,
        *([predicted] if predicted else []),
        "The typical step",
    ):
        assert part in said, part
    assert said.index(verdict_line(report)) < said.index("Next") < said.index("█")
    place = next(i for i, line in enumerate(lines) if line.startswith(" kernel "))
    shares = [f"{kernel.percent:.1f} %" for kernel in report.kernels[:5]]
    assert [line[-6:].strip() for line in lines[place + 2 :]] == shares
    assert "CUDA API calls" not in said and "Idle gaps" not in said


def test_what_helps_most_is_one_line():
    report = report_of("flash_eager")
    line = best_line(report.what_if)
    figures = r"([\d.]+) ms \(([\d.]+) to ([\d.]+)\) instead of ([\d.]+)"
    bound = r"up to [\d.]+ ms \(\d+ %\) less per step"  # graphs leave what may take longer
    found = re.fullmatch(f"Predicted with CUDA graphs: {bound}, {figures}", line)
    assert found, line
    step, low, high, now = map(float, found.groups())
    assert low < step < high < now
    said = text_of(first_screen(report))
    assert f"(about {now:.2f} without capturing)" in said  # and no other estimate of that step
    assert "added" not in said
    assert len(re.findall(r"without (capturing|a profiler)", said)) == 1


def test_an_estimated_step_stands_beside_the_mean_where_steps_vary():
    report = report_of("flash_eager")
    step, times = report.typical, report.window.step_ms
    long = replace(report, window=replace(report.window, step_ms=replace(times, mean=2 * step.ms)))
    free = f"about {report.estimated_free_ms:.2f} without capturing"
    beside = f"step {step.ms:.2f} ms (mean {2 * step.ms:.2f}, {free})"
    assert beside in " ".join(text_of(first_screen(long)).split())


def test_of_a_capture_without_steps_no_figure_is_one_of_a_step():
    build = training()
    build.ranges.clear()
    report = summarize(Analysis(build.trace()))
    assert report.window.step_name is None and report.attention_backend is None
    said = text_of(first_screen(report)).split("Kernels that")[0]
    assert (
        "The whole capture" in said
        and f"whole capture {milliseconds(report.window.wall_ms)}" in said
    )
    assert not re.search(
        r"per step|typical|attention|\bstep\b(?! (found|from))", said.split("counts as one step")[1]
    )


def test_the_step_of_a_cpu_is_the_one_of_the_evidence():
    report = open_report(CAPTURES / "own_program" / "mine.trace.json.gz").plain_report
    mean, median = report.window.step_ms.mean, report.window.step_ms.median
    assert report.on_cpu and milliseconds(mean) != milliseconds(median)
    said = text_of(first_screen(report))
    assert f"step {milliseconds(mean)} ms (median {milliseconds(median)})" in said
    assert f"of {milliseconds(mean)} ms per step" in said


@pytest.mark.parametrize("made", [first_screen, report_document])
def test_no_line_ends_in_blanks(made):
    for width in (60, 80, 100):
        lines = text_of(made(report_with_manifest()), width).splitlines()
        assert [line for line in lines if line != line.rstrip()] == []


def test_each_part_of_the_bar_has_a_glyph_of_its_own():
    """Parts that stand beside each other differ: `idle` is there where causes are not known."""
    shades = [part.colours.shade for part in PARTS]
    assert len(set(shades)) == len(shades) and all(len(shade) == 1 for shade in shades)
    lines = text_of(first_screen(report_of("flash_eager"))).splitlines()
    assert any("█" in line and "/" in line and "-" in line for line in lines)


def test_the_parts_that_are_not_told_are_summed_up():
    lines = text_of(first_screen(report_of("flash_eager"))).splitlines()
    told = [line.split() for line in lines if line.endswith(" %") and " ms " in line]
    rows = [float(words[-2]) for words in told if "share" not in words]
    place = next(i for i, line in enumerate(lines) if "everything else" in line)
    legend = [float(line.split()[-2]) for line in lines[place - 3 : place + 1]]
    assert sum(legend) == pytest.approx(100, abs=0.2) and len(rows) >= 5


def test_what_changes_the_figures_stays_in_a_line_for_each_level():
    report = report_with_manifest()
    health = replace(
        report.health,
        findings=[
            Finding("warning", PERSONAL, "scrub"),
            Finding("warning", "capturing made a step 69 % longer: 34.67 ms here", "read"),
            Finding("warning", "the step times vary a lot: the fastest quarter took at most 1 ms"),
            Finding("note", "this report is about GPU 0 of process 7, one of 2 GPUs in the capture"
                    " (process 7 on GPU 0, process 7 on GPU 1); sums are of all"),
            Finding("note", "only 3 steps: their spread is not reliable"),
        ],
    )  # fmt: skip
    assert list(findings(replace(report, health=health))) == [
        "warning: capturing made a step 69 % longer; the step times vary a lot; 1 more (--full)",
        "note: this report is about GPU 0 of process 7, one of 2 GPUs in the capture",
    ]
    alone = replace(health, findings=health.findings[:1])
    (line,) = findings(replace(report, health=alone))
    assert line == f"warning: {PERSONAL}"
