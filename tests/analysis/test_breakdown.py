"""Split of a step into compute, communication, copy and idle: disjoint, and adding up."""

import numpy as np
import pytest

from profiling.analysis.gpu_time import breakdown
from profiling.analysis.gpu_work.families import families_of
from tests.helpers.captures import own, report_of
from tests.helpers.programs import COPY, MEMSET, TO_DEVICE, Builder

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def parts(build: Builder, bounds: list[int]) -> dict[str, list[int]]:
    trace = build.trace()
    rows = np.arange(len(trace.operations.start_ns))
    family = families_of(trace.names, trace.operations.name)
    bounds_ns = np.array(bounds)
    activity = breakdown.activity_of(trace.operations, rows, family, bounds_ns)
    return {n: v.tolist() for n, v in breakdown.split(activity, bounds_ns).items()}


def test_compute_hides_communication_which_hides_copies():
    build = Builder()
    build.operation(10, 30)
    build.operation(20, 50, NCCL)
    build.operation(40, 70, TO_DEVICE, kind=COPY)
    build.operation(80, 85, "[CUDA memset]", kind=MEMSET)
    assert parts(build, [0, 100]) == {
        "compute": [20],
        "communication": [20],
        "copy": [25],
        "idle": [35],
    }


def test_an_operation_across_a_boundary_counts_on_both_sides():
    build = Builder()
    build.operation(10, 30)
    assert parts(build, [0, 15, 100])["compute"] == [5, 15]


@pytest.mark.parametrize("seed", range(10))
def test_the_parts_add_up_to_each_step_exactly(seed):
    random = np.random.default_rng(seed)
    build = Builder()
    for _ in range(300):
        start, length = int(random.integers(0, 10**6)), int(random.integers(0, 10**4))
        name = str(random.choice(["nvjet", NCCL]))
        build.operation(start, start + length, name, kind=int(random.choice([0, 1, 2])))
    bounds = np.sort(random.integers(0, 10**6, 8))
    found = parts(build, bounds.tolist())
    assert np.array_equal(sum(np.array(v) for v in found.values()), np.diff(bounds))
    assert min(min(values) for values in found.values()) >= 0


@own
def test_the_parts_of_a_real_capture_add_up_to_its_wall(capture):
    report = report_of(capture)
    step = report.window.step_ms
    assert sum(vars(report.breakdown).values()) == pytest.approx(step.mean, rel=1e-9)
    assert sum(step.values) == pytest.approx(report.window.wall_ms, rel=1e-9)
    gpu = report.gpu
    assert gpu.busy_ms + gpu.idle_ms == pytest.approx(report.window.wall_ms, rel=1e-9)
