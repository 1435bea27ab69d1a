"""median_step: one step event by event, in agreement with the report's sums."""

from dataclasses import replace

import numpy as np
import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import union
from profiling.analysis.gpu_time import median_step as module
from profiling.analysis.gpu_time.median_step import median_step
from profiling.analysis.kernels.families import FAMILIES
from profiling.causes import CAUSES
from tests.helpers.captures import report_of, trace_of

NAMES = ("slow_eager", "flash_compile")


@pytest.fixture(scope="module", params=NAMES)
def made(request):
    return median_step(Analysis(trace_of(request.param))), report_of(request.param)


def test_it_is_the_step_whose_time_is_nearest_to_the_median(made):
    step, report = made
    times = report.window.step_ms
    assert step.step_ms == pytest.approx(times.values[step.number - 100])
    assert abs(step.step_ms - times.median) == min(abs(v - times.median) for v in times.values)


def test_operations_and_gaps_tile_the_step(made):
    step, _ = made
    busy = union(step.operations.start_ns, step.operations.end_ns)
    gaps = union(step.gaps.start_ns, step.gaps.end_ns)
    assert busy.total_ns() + gaps.total_ns() == step.end_ns - step.start_ns
    assert not busy.common(gaps, step.start_ns, step.end_ns).total_ns()
    assert set(step.causes) <= set(CAUSES) and len(step.causes) == len(step.gaps.start_ns)


def test_everything_lies_within_the_step(made):
    step, _ = made
    for slices in (step.ranges, step.projected, step.calls, step.operations, step.gaps):
        assert np.all(slices.start_ns >= step.start_ns) and np.all(slices.end_ns <= step.end_ns)
        assert np.all(slices.end_ns >= slices.start_ns)


def test_operations_have_families_and_owners(made):
    step, report = made
    assert len(step.families) == len(step.owners) == len(step.operations.start_ns)
    assert {"gemm", "norm", "optimizer"} <= set(step.families) <= set(FAMILIES)
    assert set(step.owners) >= {"forward", "backward", "optimizer"} and None not in step.owners
    kernels = sum(row.kernels for row in report.ranges if row.depth == 0) / 20
    assert len(step.operations.start_ns) >= 0.95 * kernels


def test_the_phases_follow_each_other_on_the_gpu(made):
    step, _ = made
    names = [step.names[name] for name in step.projected.name]
    assert [n for n in names if n in ("forward", "backward", "optimizer")] == [
        "forward",
        "backward",
        "optimizer",
    ]


def test_an_eager_step_shows_its_host_ranges_and_calls():
    step = median_step(Analysis(trace_of("slow_eager")))
    names = {step.names[name] for name in step.ranges.name}
    assert {"data", "forward", "backward", "optimizer", "clip"} <= names
    assert len(step.calls.start_ns) > 500 and set(step.ranges.lane.tolist()) == {0, 1}
    waiting = {step.names[name] for name in step.calls.name[step.waits]}
    assert all("Synchronize" in name or "Memcpy" in name or "Free" in name for name in waiting)


def test_the_shortest_are_left_out_of_a_step_that_is_too_long_to_draw(monkeypatch):
    whole = median_step(Analysis(trace_of("slow_eager")))
    monkeypatch.setattr(module, "MOST_ROWS", 100)
    step = median_step(Analysis(trace_of("slow_eager")))
    assert len(step.operations.start_ns) == len(step.calls.start_ns) == 100
    assert step.left_out == len(whole.operations.start_ns) + len(whole.calls.start_ns) - 200
    shortest = (step.operations.end_ns - step.operations.start_ns).min()
    assert shortest >= np.median(whole.operations.end_ns - whole.operations.start_ns)
    assert np.all(np.diff(step.operations.start_ns) >= 0)


def test_no_gpu_activity_no_step():
    assert median_step(Analysis(replace(trace_of("slow_eager"), operations=None))) is None
