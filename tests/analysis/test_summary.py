"""Whole reports: their fields as documented, for captures of every kind."""

import time
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.records import Report
from profiling.analysis.sum_records import CounterMean
from profiling.analysis.summary import summarize
from profiling.shared.causes import CAUSES, PART, VERDICT
from profiling.shared.json_records import to_json
from profiling.timeline.trace import Calls, CounterSamples, Operations
from tests.helpers.captures import apart, own, report_of, trace_of
from tests.helpers.programs import MS, Builder, training


def check(report: Report) -> None:
    """JSON's own types alone, and parts of the step that add up to it."""
    again = msgspec.json.decode(to_json(report).encode(), type=Report)
    assert again == report
    assert report.bottleneck.verdict in VERDICT
    if report.parts_ms is not None:
        assert set(report.parts_ms) <= set(PART)
        assert sum(report.parts_ms.values()) == pytest.approx(report.window.step_ms.mean, rel=1e-9)
    if report.idle is not None:
        assert tuple(report.idle.by_cause) == CAUSES


@own
def test_reports_of_real_captures(capture):
    report = report_of(capture)
    check(report)
    assert sum(report.family_ms.values()) * 20 == pytest.approx(report.attribution.kernel_ns / 1e6)


@apart
def test_reports_of_captures_with_backward_apart(capture):
    report = report_of(capture)
    check(report)
    assert (report.operators is None) == capture.startswith("flash_attr")


def test_what_is_not_in_the_capture_is_null_and_never_zero():
    build = training()
    build.operations.clear()
    report = summarize(Analysis(build.trace()))
    check(report)
    for field in ("gpu", "breakdown", "idle", "attribution", "attention_backend", "roofline"):
        assert getattr(report, field) is None, field
    for field in ("gpu_metrics", "operators", "allocations", "run"):
        assert getattr(report, field) is None, field
    assert all(row.gpu_ms is None for row in report.ranges)


def test_a_capture_with_a_single_event():
    build = Builder()
    build.operation(0, 1 * MS)
    report = summarize(Analysis(build.trace()))
    check(report)
    assert report.window.step_name is None
    assert report.window.wall_ms == 1.0


def test_operations_without_length_and_steps_without_time():
    build = Builder()
    build.range(5, 5, "iteration 0")
    build.range(5, 5, "iteration 1")
    build.range(5, 9, "iteration 2")  # all of no time is refused: test_analysis
    build.operation(5, 5, call=build.call(5, 5))
    build.operation(8, 9, call=build.call(6, 7))
    check(summarize(Analysis(build.trace())))


def test_gpu_metrics_inside_busy_time_and_in_the_window():
    build = Builder()
    build.range(0, 100, "iteration 0")
    build.operation(0, 50, call=build.call(0, 1))
    build.operation(90, 100, call=build.call(1, 2))
    times = np.array([-10, 10, 60, 95, 200])
    metric = CounterSamples("SMs Active", 0, times, np.array([9.0, 80.0, 0.0, 40.0, 9.0]))
    other = replace(metric, device=1)
    (row,) = summarize(Analysis(build.trace(counters=[metric, other]))).gpu_metrics
    assert row == CounterMean("SMs Active", mean_busy=60.0, mean_window=40.0)


def test_steps_and_phases_as_asked_for():
    report = summarize(Analysis(training().trace(), step="forward", phases=["backward"]))
    assert report.window.step_name == "forward"
    assert {row.name for row in report.ranges} == {"backward"}


def repeated(table, times: int, shift_ns: int):
    """The table `times` after one another."""
    made = {}
    for name in table.__dataclass_fields__:
        column = getattr(table, name)
        rows = np.tile(column, times)
        if name in ("start_ns", "end_ns"):
            rows = rows + np.repeat(np.arange(times) * shift_ns, len(column))
        made[name] = rows
    return type(table)(**made)


def test_two_hundred_thousand_kernels_in_half_a_second():
    trace = trace_of("flash_eager")
    times = 200_000 // len(trace.operations.start_ns) + 1
    shift = int(trace.operations.end_ns.max() - trace.ranges.start_ns.min()) + MS
    operations: Operations = repeated(trace.operations, times, shift)
    calls: Calls = repeated(trace.calls, times, shift)
    offset = np.repeat(np.arange(times) * len(trace.calls.start_ns), len(trace.operations.call))
    operations = replace(operations, call=operations.call + offset)
    ranges = repeated(trace.ranges, times, shift)
    begun = time.process_time()
    long = replace(trace, operations=operations, calls=calls, ranges=ranges)
    report = summarize(Analysis(long))
    assert time.process_time() - begun < 1.5  # 0.3 s on one free core
    assert report.window.steps == 20 * times
    assert report.attribution.coverage == 1.0
