"""step_events: the events of each step, in agreement with the report's sums."""

from dataclasses import replace

import numpy as np
import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import union
from profiling.analysis.gpu_time import step_events as module
from profiling.analysis.gpu_time.step_events import chosen_steps, shown_steps, step_events
from profiling.analysis.gpu_work.families import FAMILIES
from profiling.shared.causes import CAUSES
from profiling.timeline.trace import Ranges
from tests.helpers.captures import report_of, trace_of

NAMES = ("slow_eager", "flash_compile")


@pytest.fixture(scope="module", params=NAMES)
def events_and_report(request):
    return step_events(Analysis(trace_of(request.param))), report_of(request.param)


def test_it_knows_the_median_and_the_slowest_step(events_and_report):
    events, report = events_and_report
    times = report.window.step_ms
    for index, value in enumerate(times.values):
        assert events.step_ms(index) == pytest.approx(value)
    near = abs(times.values[events.median] - times.median)
    assert near == min(abs(value - times.median) for value in times.values)
    assert times.values[events.slowest] == times.max
    assert events.first_number == 100 and events.shown.all() and events.left_out == 0


def test_operations_and_gaps_tile_the_window(events_and_report):
    events, report = events_and_report
    begin, end = int(events.bounds_ns[0]), int(events.bounds_ns[-1])
    busy = union(events.operations.start_ns, events.operations.end_ns).clip(begin, end)
    gaps = union(events.gaps.start_ns, events.gaps.end_ns)
    assert busy.total_ns() + gaps.total_ns() == end - begin
    assert busy.total_ns() / 1e6 == pytest.approx(report.gpu.busy_ms, rel=1e-6)
    assert not busy.intersection(gaps, begin, end).total_ns()


def test_gaps_have_the_causes_of_the_report(events_and_report):
    events, report = events_and_report
    for gap in report.idle.gaps:
        start_ns = events.gaps.start_ns - events.bounds_ns[0]
        row = int(np.argmin(abs(start_ns - gap.start_ms * 1e6)))
        assert CAUSES[events.gaps.name[row]] == gap.cause
        assert events.gaps.end_ns[row] - events.gaps.start_ns[row] == round(gap.ms * 1e6)


def test_operations_have_families_phases_and_launches(events_and_report):
    events, report = events_and_report
    families = {FAMILIES[family] for family in set(events.launched.family.tolist())}
    assert {"gemm", "norm", "optimizer"} <= families
    phases = {events.names[name] for name in set(events.launched.phase.tolist()) if name >= 0}
    assert {"forward", "backward", "optimizer"} <= phases
    kernels = events.launched.blocks > 0
    assert kernels.sum() >= sum(row.kernels for row in report.ranges if row.depth == 0)
    for launch in report.launches[:20]:
        alike = (events.launched.blocks == launch.blocks) & kernels
        alike &= events.launched.registers == launch.registers
        alike &= events.launched.threads == launch.threads
        alike &= events.launched.shared_bytes == launch.shared_bytes
        alike &= np.array([events.names[name] == launch.name for name in events.operations.name])
        assert alike.sum() == launch.count


def test_a_launch_begins_before_what_it_launched(events_and_report):
    events, _ = events_and_report
    known = events.launched.call >= 0
    assert known.mean() > 0.99
    call = events.launched.call[known]
    assert np.all(events.calls.start_ns[call] <= events.operations.start_ns[known])
    names = {events.names[name] for name in set(events.calls.name[call].tolist())}
    assert all("Launch" in name or "Mem" in name for name in names), names


def test_the_phases_follow_each_other_on_the_gpu(events_and_report):
    events, _ = events_and_report
    names = [events.names[name] for name in events.projected.name]
    phases = [name for name in names if name in ("forward", "backward", "optimizer")]
    assert phases == ["forward", "backward", "optimizer"] * 20


def test_an_eager_step_shows_its_host_ranges_and_what_waits():
    events = step_events(Analysis(trace_of("slow_eager")))
    names = {events.names[name] for name in events.ranges.name}
    assert {"data", "forward", "backward", "optimizer", "clip"} <= names
    named = zip(events.ranges.name.tolist(), events.ranges.lane.tolist(), strict=True)
    level = {events.names[name]: lane for name, lane in named}
    assert (level["iteration 105"], level["optimizer"], level["clip"]) == (0, 1, 2)
    waiting = {events.names[name] for name in events.calls.name[events.waits]}
    assert all("Synchronize" in name or "Memcpy" in name or "Free" in name for name in waiting)


def test_a_torch_capture_names_the_operator_that_launched():
    events = step_events(Analysis(trace_of("flash_eager.trace")))
    operators = {events.names[name] for name in set(events.launched.operator.tolist())}
    assert np.all(events.launched.operator >= 0) and {"aten::mm", "aten::copy_"} <= operators


def test_the_innermost_operator_of_the_thread_is_the_one_that_is_open():
    starts, ends, threads = [0, 10, 12, 30, 0], [100, 20, 14, 40, 100], [1, 1, 1, 1, 2]
    columns = {"start_ns": starts, "end_ns": ends, "thread": threads, "name": [0, 1, 2, 3, 4]}
    operators = Ranges.from_columns({name: np.array(column) for name, column in columns.items()})
    times, on = np.array([5, 13, 15, 25, 35, 13, 200, 5]), np.array([1, 1, 1, 1, 1, 2, 1, 3])
    assert module.open_operators(operators, times, on).tolist() == [0, 2, 1, 0, 3, 4, -1, -1]


def test_of_too_many_events_the_steps_around_the_median_and_the_slowest_are_shown(monkeypatch):
    counts = np.full(100, 10)
    assert shown_steps(counts, 20, 70).all()
    monkeypatch.setattr(module, "MOST_EVENTS", 65)
    assert np.flatnonzero(shown_steps(counts, 20, 70)).tolist() == [19, 20, 21, 69, 70, 71]
    monkeypatch.setattr(module, "MOST_EVENTS", 5)
    assert np.flatnonzero(shown_steps(counts, 20, 70)).tolist() == [20]


def test_the_reader_chooses_steps_and_is_told_what_does_not_fit(monkeypatch):
    counts = np.full(100, 10)
    assert np.flatnonzero(chosen_steps(counts, 40, 42, 44)).tolist() == [2, 3, 4]
    with pytest.raises(ValueError, match="--steps 30-41: the capture contains steps 40 to 139"):
        chosen_steps(counts, 40, 30, 41)
    monkeypatch.setattr(module, "MOST_EVENTS", 35)
    with pytest.raises(ValueError, match="have 100 events.* at most 35; .*such as 50-52$"):
        chosen_steps(counts, 40, 50, 59)
    assert chosen_steps(np.full(100, 50), 40, 50, 50).sum() == 1


def test_of_some_steps_only_what_touches_them_is_there(monkeypatch):
    whole = step_events(Analysis(trace_of("slow_eager")))
    monkeypatch.setattr(module, "MOST_EVENTS", 10_000)
    events = step_events(Analysis(trace_of("slow_eager")))
    assert 2 <= events.shown.sum() < 20 and events.shown[[events.median, events.slowest]].all()
    assert events.left_out == 0
    for name in ("operations", "gaps"):
        slices, of_all = getattr(events, name), getattr(whole, name)
        inside = np.zeros(len(of_all.start_ns), bool)
        for step in np.flatnonzero(events.shown):
            begin, end = events.bounds_ns[step : step + 2]
            inside |= (of_all.end_ns > begin) & (of_all.start_ns < end)
        assert slices.start_ns.tolist() == of_all.start_ns[inside].tolist()
    assert np.all(events.launched.call >= -1) and (events.launched.call >= 0).mean() > 0.99


def test_the_shortest_are_left_out_of_a_step_that_is_too_long_to_draw(monkeypatch):
    whole = step_events(Analysis(trace_of("slow_eager")))
    monkeypatch.setattr(module, "MOST_EVENTS", 300)
    events = step_events(Analysis(trace_of("slow_eager")))
    assert events.shown.sum() == 1 and len(events.operations.start_ns) == 100
    assert events.left_out > 1000
    shortest = (events.operations.end_ns - events.operations.start_ns).min()
    assert shortest >= np.median(whole.operations.end_ns - whole.operations.start_ns)
    assert np.all(np.diff(events.operations.start_ns) >= 0)


def test_no_gpu_activity_no_events():
    on_cpu = Analysis(replace(trace_of("slow_eager"), operations=None))
    assert step_events(on_cpu) is None
    with pytest.raises(ValueError, match="^--steps 3-5: the page of .* has no timeline, because"):
        step_events(on_cpu, (3, 5))
