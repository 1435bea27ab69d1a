"""Gains of a step: never more than the step without a profiler has room for."""

from dataclasses import replace

import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.records import Report
from profiling.analysis.summary import summarize
from profiling.analysis.verdict.gains import most_to_gain, possible_gains_ms
from profiling.shared.causes import VERDICT
from profiling.shared.manifest import CapturedWindow, Laps, Manifest, WindowSteps
from tests.helpers.captures import report_of
from tests.helpers.programs import MS, Program


def late_and_copying(free_ms: float | None = None) -> Report:
    """Steps of 10 ms: kernels for 3, a copy for 2, and allocations for 5."""
    program = Program()
    for _ in range(12):
        with program.step():
            program.launch(3 * MS)
            program.copy(2 * MS)
            program.wait()
            program.call(5 * MS, "cudaMalloc")
    if free_ms is None:
        return summarize(Analysis(program.trace()))
    laps = WindowSteps(before=Laps(free_ms))
    return summarize(Analysis(program.trace()), Manifest(1, "nsys", CapturedWindow(), laps))


@pytest.mark.parametrize(("free_ms", "idle_ms"), [(None, 5.0), (8.0, 3.0), (4.0, 0.0)])
def test_a_step_gains_its_idle_time_without_a_profiler_and_its_own_copies(free_ms, idle_ms):
    report = late_and_copying(free_ms)
    step = report.typical
    assert step.busy_ms == pytest.approx(5, abs=0.1)
    lost = {"allocation": 5.0, "launch": 1.0, "copies": 6.0}
    possible = possible_gains_ms(report, step, lost)
    expected = {"allocation": idle_ms, "launch": min(1.0, idle_ms), "copies": idle_ms + 2}
    assert possible == pytest.approx({n: min(lost[n], expected[n]) for n in lost}, abs=0.1)
    gained = {row.verdict: row.recoverable_ms_per_step for row in report.bottleneck.ranked}
    assert gained["allocation"] <= idle_ms + 0.1


def test_several_reasons_of_the_host_together_gain_no_more_than_one():
    report = late_and_copying(8.0)
    possible = possible_gains_ms(report, report.typical, {"allocation": 2.5, "launch": 2.5})
    said = most_to_gain(report, "host", possible, {}, report.typical)
    room_ms = 8.0 - report.typical.busy_ms
    assert f"{VERDICT['host'].title}, up to {room_ms:.2f} of" in said


def test_the_estimated_step_bounds_what_is_promised():
    """Recorded events explain 2 ms of these steps; the replay takes 11 off."""
    report = report_of("flash_eager")
    free_ms = report.estimated_free_ms
    (launches,) = [row for row in report.bottleneck.ranked if row.verdict == "launch"]
    room_ms = free_ms - report.typical.busy_ms
    assert launches.recoverable_ms_per_step == pytest.approx(room_ms)
    unknown = replace(report, what_if=None)
    lost = {"launch": launches.recoverable_ms_per_step + 1}
    assert possible_gains_ms(unknown, report.typical, lost) == lost


@pytest.mark.parametrize(("bytes_", "verdict"), [(4, "synchronization"), (1 << 16, "copies")])
def test_reads_of_single_numbers_cost_the_waits_for_them_and_their_copies(bytes_, verdict):
    program = Program()
    for _ in range(12):
        with program.step():
            program.launch(1 * MS)
            for _ in range(400):
                program.item(bytes_)
    report = summarize(Analysis(program.trace()))
    step, found = report.typical, report.bottleneck
    copied_ms = step.parts_ms["copy"]
    assert copied_ms == pytest.approx(0.4)
    moved_ms = copied_ms if verdict == "synchronization" else 0.0
    gains = {row.verdict: row for row in found.ranked}
    parts_ms = step.parts_ms["synchronization"] - step.added_ms[1].get("synchronization", 0.0)
    assert gains["synchronization"].recoverable_ms_per_step == pytest.approx(parts_ms + moved_ms)
    said = (
        f"{copied_ms:.2f} ms per step of synchronization are copies of single numbers to the host."
    )
    assert (said in found.evidence) == bool(moved_ms)
    assert f"{step.busy_ms:.2f} of {step.ms:.2f} ms per step." in found.evidence[0]
    if moved_ms:
        assert found.verdict == "synchronization"
        assert gains["copies"].why_none.startswith("only single numbers went to the host")
    else:
        assert gains["copies"].recoverable_ms_per_step == pytest.approx(copied_ms)
