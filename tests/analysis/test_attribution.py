"""Attribution of GPU operations to phases, steps and ranges."""

import numpy as np
import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.gpu_time.attribution import coverage
from profiling.analysis.records import RangeTotal
from profiling.analysis.summary import range_totals
from profiling.timeline.trace import ANY_THREAD
from tests.helpers.captures import apart, own, report_of
from tests.helpers.programs import AUTOGRAD, MAIN, MS, US, Builder, training


def attributed(build: Builder):
    analysis = Analysis(build.trace())
    rows = {row.name: row for row in range_totals(analysis)}
    covered = None if analysis.owned is None else coverage(analysis.owned)
    return rows, covered, analysis.bounds_ns, analysis.owned


def test_backward_owns_what_autograds_thread_launches():
    rows, covered, _, _ = attributed(training(steps=3, kernels=20))
    assert rows["backward"].kernels == 60
    assert rows["backward"].gpu_ms == pytest.approx(6.0)
    assert rows["forward"].kernels == 60
    assert rows["data"].count == 3
    assert covered.coverage == 1.0
    assert covered.by_time_ns == 60 * 100 * US
    assert covered.same_thread_ns == covered.kernel_ns - covered.by_time_ns


def one_step(build: Builder | None = None) -> Builder:
    build = build or Builder()
    build.range(0, 100 * US, "iteration 1")
    build.range(0, 50 * US, "forward")
    build.range(50 * US, 90 * US, "optimizer")
    return build


def test_a_launch_and_not_the_execution_decides():
    build = one_step()
    build.launched(10 * US, 60 * US, 70 * US)  # runs when the optimizer is open
    rows, _, _, _ = attributed(build)
    assert (rows["forward"].kernels, rows["optimizer"].kernels) == (1, 0)


def test_a_range_of_the_launching_thread_comes_before_time():
    build = one_step()
    build.range(45 * US, 80 * US, "forward", thread=AUTOGRAD)
    build.launched(60 * US, 70 * US, 75 * US, thread=AUTOGRAD)
    build.launched(62 * US, 80 * US, 85 * US, thread=MAIN)
    rows, covered, _, _ = attributed(build)
    assert (rows["forward"].kernels, rows["optimizer"].kernels) == (1, 1)
    assert covered.by_time_ns == 0


def test_inner_ranges_own_what_their_thread_launches():
    build = one_step()
    build.range(52 * US, 60 * US, "clip")
    build.launched(55 * US, 70 * US, 75 * US)
    build.launched(65 * US, 80 * US, 85 * US)
    rows, _, _, _ = attributed(build)
    single = {"min_ms": 0.008, "median_ms": 0.008, "max_ms": 0.008, "stddev_ms": 0.0}
    clip = RangeTotal("clip", 1, 1, host_ms=0.008, gpu_ms=0.005, kernels=1, **single)
    assert rows["clip"] == clip
    assert rows["optimizer"].kernels == 2


def test_all_kernels_of_a_cuda_graph_belong_to_its_one_call():
    build = one_step()
    call = build.call(10 * US, 20 * US, "cudaGraphLaunch")
    for i in range(5):
        build.operation((60 + i) * US, (61 + i) * US, call=call)
    rows, covered, _, _ = attributed(build)
    assert rows["forward"].kernels == 5
    assert covered.coverage == 1.0


def test_an_operation_without_a_call_belongs_to_no_phase_and_shows_in_the_coverage():
    build = one_step()
    build.launched(10 * US, 20 * US, 30 * US)
    build.operation(40 * US, 70 * US)
    rows, covered, _, _ = attributed(build)
    assert covered.coverage == 0.25
    assert sum(row.kernels for row in rows.values()) == 1


def test_another_processs_kernels_are_not_in_it():
    build = one_step()
    build.launched(10 * US, 20 * US, 30 * US)
    build.process = 8
    build.launched(10 * US, 20 * US, 25 * US, thread=99)
    _, covered, _, _ = attributed(build)
    assert covered.kernel_ns == 10 * US


def test_ranges_that_no_thread_owns():
    build = Builder()
    build.range(0, 100 * US, "iteration 1", thread=ANY_THREAD)
    build.range(0, 50 * US, "forward", thread=ANY_THREAD)
    build.launched(10 * US, 20 * US, 30 * US)
    rows, covered, _, _ = attributed(build)
    assert rows["forward"].kernels == 1
    assert covered.coverage == 1.0


def test_steps_end_with_their_last_operation():
    build = Builder()
    for i in range(3):
        build.range(i * 100, i * 100 + 50, f"iteration {i}")
    build.operation(20, 170, call=build.call(10, 12))  # of step 0, ends in step 1
    build.operation(170, 180, call=build.call(110, 112))  # of step 1
    _, _, bounds, _ = attributed(build)  # step 2 owns nothing
    assert bounds.tolist() == [0, 170, 180, 250]


def test_without_a_gpu_steps_end_on_the_host():
    build = Builder()
    for i in range(2):
        build.range(i * 100, i * 100 + 50, f"iteration {i}")
    rows, covered, bounds, owned = attributed(build)
    assert owned is None and covered is None
    assert bounds.tolist() == [0, 50, 150]


@pytest.mark.parametrize("seed", range(5))
def test_what_the_phases_own_adds_up(seed):
    random = np.random.default_rng(seed)
    build = training(steps=4)
    for _ in range(200):
        at = int(random.integers(0, 40 * MS))
        build.launched(at, at + 9 * US, at + 9 * US + 1, thread=int(random.choice([MAIN, 71, 72])))
    rows, covered, bounds, owned = attributed(build)
    total_ms = sum(row.gpu_ms for row in rows.values() if row.depth == 0)
    assert total_ms * 1e6 == pytest.approx(covered.attributed_ns)
    assert covered.attributed_ns <= covered.kernel_ns
    assert np.all(np.diff(bounds) >= 0)
    assert np.all((owned.step >= 0) & (owned.step < 4))


@own
def test_all_kernel_time_of_our_captures_is_owned(capture):
    attribution = report_of(capture).attribution
    assert attribution.coverage >= 0.99
    assert attribution.by_time_ns == 0  # autograd was kept on the main thread


@apart
def test_backward_is_found_where_another_thread_launched_it(capture):
    report = report_of(capture)
    assert report.attribution.coverage >= 0.99
    phases = {row.name: row for row in report.ranges if row.depth == 0}
    assert phases["backward"].gpu_ms > 0.5 * report.gpu.busy_ms
