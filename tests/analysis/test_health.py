"""Findings of a report about its own capture."""

from dataclasses import replace

import numpy as np
import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.summary import summarize
from profiling.analysis.verdict.health import free_step_range_ms
from profiling.shared.manifest import CapturedWindow, Laps, Manifest, WindowSteps
from profiling.timeline.trace import GRAPH
from tests.helpers.captures import own, report_of
from tests.helpers.programs import COPY, MS, TO_DEVICE, US, Builder, training

MANIFEST = Manifest(
    1,
    "nsys",
    CapturedWindow(),
    WindowSteps(before=Laps(4.0, [4.0]), captured=Laps(6.0, [6.0]), after=Laps(8.0, [8.0])),
    overhead_percent=0.0,
)


def findings(build: Builder, manifest=None, **fields) -> dict[str, str]:
    health = summarize(Analysis(build.trace(**fields)), manifest).health
    return {row.what: row.level for row in health.findings}


def level_of(found: dict[str, str], part: str) -> str | None:
    """The level of the finding that contains `part`."""
    return next((level for what, level in found.items() if part in what), None)


def test_a_sound_capture_with_its_manifest_has_no_warning():
    assert "warning" not in findings(training(), MANIFEST).values()


STEADY = [10.0, 11.0, 9.0, 10.0, 10.5, 9.5, 40.0, 10.0, 10.0, 10.0, 10.0, 9.0]
BURSTS = [5.0, 77.0, 4.0, 5.0, 6.0, 81.0, 5.0, 4.0, 7.0, 80.0, 5.0, 6.0]  # one of four is long
PAUSED = [10.0, 2000.0, 9.0, 10.0, 11.0, 10.0, 60.0, 10.0, 10.0, 10.0, 10.0, 9.0]
WARM_UP = [900.0, 200.0, 60.0, 10.0, 10.0, 10.0, 11.0, 9.0, 10.0, 10.0, 10.0, 10.0]


@pytest.mark.parametrize(
    ("before", "after", "free_ms", "added"),
    [
        (STEADY, STEADY, 10.0, 90),
        (WARM_UP, STEADY, 10.0, 90),
        (BURSTS, BURSTS, 24.0, 0),  # of whole bursts; medians say 4.2 times as long a step
        (STEADY, BURSTS, 24.0, 0),  # batches in store before the window
        (BURSTS, [40.0] * 4, 32.0, -25),  # slower behind it
        (PAUSED, STEADY, 10.0, 90),  # by the machine, once
    ],
)
def test_steps_that_come_in_bursts_take_their_mean(before, after, free_ms, added):
    captured = [24 + ms for ms in (-20, 50, -18, -12, -16, 49, -17, -16)]
    around = [Laps(float(np.median(ms)), ms) for ms in (before, captured, after)]
    found = WindowSteps(*around)
    assert found.free_ms == pytest.approx(free_ms, rel=0.02)
    wrong = replace(MANIFEST, step_ms=found, overhead_percent=90.0)
    health = summarize(Analysis(training().trace()), wrong).health
    assert health.free_step_ms == found.free_ms
    assert health.overhead_percent == pytest.approx(added, abs=5)


def test_a_manifest_without_its_overhead_has_it_by_its_steps():
    report = summarize(Analysis(training().trace()), replace(MANIFEST, overhead_percent=None))
    assert report.health.overhead_percent == 0


def test_overhead_is_against_the_steps_without_a_profiler():
    report = summarize(Analysis(training().trace()), replace(MANIFEST, overhead_percent=51.3))
    health = report.health
    assert (health.overhead_percent, health.free_step_ms) == (51.3, 6.0)
    assert any("51 % longer" in row.what for row in health.findings)
    assert not level_of(findings(training(), replace(MANIFEST, overhead_percent=5.0)), "longer")


def test_steps_without_a_profiler_bound_a_fault_only_from_both_sides():
    assert free_step_range_ms(MANIFEST) == (4.0, 8.0)
    steps = MANIFEST.step_ms
    assert steps.before is not None
    of_some = replace(steps, before=replace(steps.before, laps=[4.0, 4.0, 30.0, 4.0]))
    found = free_step_range_ms(replace(MANIFEST, step_ms=of_some))
    assert found == (4.0, 10.5), "the mean has a fault of some steps"
    for one_side in (replace(steps, before=None), replace(steps, after=None)):
        assert free_step_range_ms(replace(MANIFEST, step_ms=one_side)) is None


def test_without_a_manifest_the_overhead_is_unknown_and_not_zero():
    report = summarize(Analysis(training().trace()))
    assert report.health.overhead_percent is None
    assert report.run is None
    assert level_of(findings(training()), "no manifest") == "note"


@pytest.mark.parametrize(
    ("facts", "part"),
    [
        (
            {"compiled_inside": replace(MANIFEST.compiled_inside, graphs=3)},
            "torch.compile compiled 3 graphs inside",
        ),
        ({"window": CapturedWindow(ended_by="interrupted")}, "ended early: interrupted"),
        ({"window": CapturedWindow(errors=["OSError: full"])}, "OSError: full"),
    ],
)
def test_what_the_manifest_says_went_wrong(facts, part):
    assert level_of(findings(training(), replace(MANIFEST, **facts)), part) == "warning"


def test_what_the_tool_lost_and_personal_data():
    found = findings(training(), warnings=["12 events were lost"], personal=True)
    assert level_of(found, "12 events were lost") == "warning"
    assert level_of(found, "environment") == "warning"


def test_few_steps_and_a_slow_first_one():
    assert level_of(findings(training(steps=3)), "only 3 steps") == "note"
    build = training(steps=6)
    build.launched(2 * MS, 3 * MS, 28 * MS)  # the first step takes 28 ms
    assert level_of(findings(build), "first step took") == "note"
    assert not level_of(findings(training()), "first step took")


def test_restless_steps():
    build = training(steps=8)
    for step in range(1, 8, 2):  # each second one ends late, so that the next one is short
        begin = step * 10 * MS
        build.launched(begin + 2 * MS, begin + 3 * MS, begin + 9 * MS)
    assert level_of(findings(build), "the step times vary a lot") == "warning"
    assert not level_of(findings(training(steps=8)), "vary a lot")


@pytest.mark.parametrize("name", ["evaluate", "checkpoint"])
def test_what_does_not_belong_into_a_window(name):
    build = training()
    build.range(9 * MS, 9 * MS + 100 * US, name)
    assert level_of(findings(build), f"{name} ran 1 time inside") == "warning"


def test_ranges_that_were_cut_off():
    build = training()
    build.ranges[-2] = (*build.ranges[-2][:2], False, *build.ranges[-2][3:])
    assert level_of(findings(build), "1 ranges were still open") == "note"


def test_low_coverage():
    build = training()
    build.operation(5 * MS, 9 * MS)  # launched by nobody knows whom
    assert level_of(findings(build), "belongs to a phase") == "warning"


def test_what_was_not_captured():
    build = training()
    build.ranges.clear()
    assert level_of(findings(build), "no ranges were captured") == "warning"
    assert level_of(findings(build), "whole capture counts as one step") == "warning"
    build = training()
    build.operations.clear()
    assert level_of(findings(build), "no GPU activity") == "warning"
    build = training()
    call = build.call(5 * MS, 6 * MS, "cudaGraphLaunch")
    build.operation(7 * MS, 8 * MS, "CUDA graph 1", call, kind=GRAPH)
    assert level_of(findings(build), "graphs were captured as a whole") == "warning"
    build = training()
    build.operations = [row | {"call": -1} for row in build.operations]
    build.operation(0, 5, TO_DEVICE, kind=COPY)
    build.calls.clear()
    assert level_of(findings(build), "no CUDA calls") == "warning"


@own
def test_real_captures_are_sound(capture):
    levels = {row.level for row in report_of(capture).health.findings}
    assert levels == {"note"}
