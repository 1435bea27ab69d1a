"""Tests of the time taken off for capturing, where the step without a profiler is known."""

from dataclasses import replace

import numpy as np
import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.records import TypicalStep
from profiling.analysis.summary import summarize
from profiling.analysis.verdict.capturing import scaled_to
from profiling.shared.causes import VERDICT
from profiling.shared.manifest import CapturedWindow, Laps, Manifest, WindowSteps
from tests.helpers.programs import MS, US, Program

FREE_MS = 15.0


def uneven_steps(work_ms: tuple[int, ...]) -> Analysis:
    """Steps with 400 launches, slower than their kernels of 8 ms, and so much other work each."""
    program = Program(dispatch_ns=36 * US)
    for ms in work_ms:
        with program.step(), program.phase("forward"):
            program.launch(20 * US, 200)
            program.work(ms * MS)
            program.launch(20 * US, 200)
    return Analysis(program.trace())


def manifest(captured_ms: list[float], free_ms: float) -> Manifest:
    steps = WindowSteps(before=Laps(free_ms, [free_ms]))
    percent = 100 * (float(np.median(captured_ms)) / free_ms - 1)
    return Manifest(1, "nsys", CapturedWindow(), steps, overhead_percent=percent)


def test_no_more_is_taken_off_than_the_mean_step_is_longer():
    """The median of these steps is 11 ms above their mean."""
    analysis = uneven_steps((42, 10, 38, 48, 4))
    laps_ms = (np.diff(analysis.bounds_ns) / 1e6).tolist()
    report = summarize(analysis, manifest(laps_ms, FREE_MS))
    step, found = report.typical, report.bottleneck
    assert np.median(laps_ms) - step.ms > 9
    (line,) = [line for line in found.evidence if "not counted as the program's" in line]
    assert f" {step.ms - FREE_MS:.2f} ms of the idle time" in line
    assert VERDICT[found.verdict].host
    late_ms = sum(
        gain.recoverable_ms_per_step for gain in found.ranked if VERDICT[gain.verdict].host
    )
    assert late_ms == pytest.approx(FREE_MS - step.busy_ms, abs=0.05)


def test_a_mean_step_that_is_shorter_than_the_free_one_loses_nothing():
    report = summarize(uneven_steps((0, 0, 0, 0)), manifest([30.0], 20.0))
    assert report.health.measured_added_ms == pytest.approx(10)
    assert FREE_MS < report.typical.ms < 20
    assert not any("not counted as" in line for line in report.bottleneck.evidence)
    assert report.bottleneck.verdict == "launch"


def test_a_step_known_from_before_the_window_alone_takes_off_what_the_mean_step_is_longer():
    """A killed program's manifest has no overhead, which is written once steps behind are known."""
    killed = replace(manifest([30.0], 12.0), overhead_percent=None)
    report = summarize(uneven_steps((4, 4, 4, 4)), killed)
    assert report.health.measured_added_ms is None, "unknown, not 0"
    assert report.health.recording_ms is not None
    (line,) = [line for line in report.bottleneck.evidence if "not counted as" in line]
    off = f"{report.typical.ms - 12:.2f} ms of the idle time"
    assert line.startswith(f"Capturing made a step longer (12.00 ms without it): {off}")


def test_no_cause_loses_more_than_its_events_cost_before_the_others_lose_in_proportion():
    parts_ms = {"compute": 7.0, "launch": 16.0, "data": 3.0, "cpu": 20.0}
    added_ms = [{"launch": 3.0}, {"launch": 5.0, "cpu": 0.0}, {"launch": 7.0, "cpu": 0.5}]
    step = TypicalStep(5, 46.0, parts_ms, {}, 0.0, added_ms)
    off = scaled_to(33.0, step)
    share = (33 - 7) / (16 - 7 + 20)
    assert off == pytest.approx(
        {"compute": 0, "launch": 7 + share * 9, "data": 0, "cpu": share * 20}
    )
    assert scaled_to(4.0, step) == pytest.approx({"compute": 0, "launch": 4, "data": 0, "cpu": 0})
    assert scaled_to(38.0, step)["data"] == pytest.approx(2)  # all else of the host's is gone


def test_a_longer_wait_for_workers_takes_no_part_in_scaling():
    parts_ms = {"compute": 7.0, "launch": 16.0, "data": 3.0}
    added_ms = [{"launch": 5.0, "data": -5.0}] * 3
    off = scaled_to(4.0, TypicalStep(5, 26.0, parts_ms, {}, 0.0, added_ms))
    assert off == pytest.approx({"compute": 0, "launch": 4, "data": 0})
