"""Causes of idle GPU time: each by itself, and that all of them add up."""

import numpy as np
import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import union
from profiling.analysis.gpu_time.host_waits import charge
from profiling.analysis.summary import summarize
from profiling.shared.causes import CAUSES
from tests.helpers.captures import apart, own, report_of
from tests.helpers.programs import MS, TO_DEVICE, TO_HOST, US, Program, training


def causes(program: Program, steps: int | None = None) -> dict[str, float]:
    """Milliseconds a step."""
    report = summarize(Analysis(program.trace()))
    found = report.idle.by_cause
    assert sum(found.values()) == pytest.approx(report.breakdown.idle_ms, abs=1e-9)
    assert steps is None or report.window.steps == steps
    return found


def looped(body, steps: int = 10, **options) -> Program:
    program = Program(**options)
    for _ in range(steps):
        with program.step():
            body(program)
    return program


def one_of_each(program: Program) -> None:
    """A gap of each cause."""
    with program.phase("data"):
        program.work(1 * MS)
        program.launch(20 * US)
    with program.phase("forward"):
        program.launch(2 * US, 20)
        program.work(1 * MS)
        program.graph(50 * US, 10, gap_ns=2 * US)
        program.launch(200 * US, 20)
        program.item()
        program.call(1 * MS, "cudaMalloc")
        program.launch(20 * US)
        program.pageable_copy(20 * US, TO_HOST, behind_ns=1 * MS)
        program.launch(20 * US)
        program.launch(20 * US)


def test_every_cause_of_the_table_has_its_rule():
    found = causes(looped(one_of_each))
    assert tuple(found) == CAUSES and min(found.values()) > 0


def test_a_slow_launch_is_a_launch():
    def body(program):
        with program.phase("forward"):
            program.launch(2 * US, 100)

    found = causes(looped(body), 10)
    assert found["launch"] > 0.95 * sum(found.values())


def test_python_work_between_launches_is_the_cpus():
    def body(program):
        with program.phase("forward"):
            program.launch(20 * US, 10)
        with program.phase("optimizer"):
            program.work(5 * MS)
            program.launch(20 * US)

    found = causes(looped(body))
    assert found["cpu"] == pytest.approx(4.9, abs=0.2)


def test_the_same_work_in_the_data_phase_is_datas():
    def body(program):
        with program.phase("data"):
            program.work(5 * MS)
            program.launch(20 * US)
        with program.phase("forward"):
            program.launch(20 * US, 10)

    found = causes(looped(body))
    assert found["data"] == pytest.approx(4.9, abs=0.2)
    assert found["cpu"] == 0


def test_work_that_the_queue_hides_is_no_finding():
    def body(program):
        with program.phase("data"):
            program.work(5 * MS)
        with program.phase("forward"):
            program.launch(1 * MS, 10)

    report = summarize(Analysis(looped(body).trace()))
    assert report.breakdown.idle_ms < 0.6  # the first step's data, before anything runs


def test_a_wait_behind_a_long_queue_owns_the_gap_behind_it():
    """The GPU is slower than the host: without the wait nothing would be idle."""

    def body(program):
        with program.phase("data"):
            program.work(300 * US)
        with program.phase("forward"):
            program.launch(200 * US, 20)
            program.item()

    found = causes(looped(body))
    assert found["synchronization"] > 0.8 * sum(found.values())
    assert found["data"] < 0.1  # the first step's


def test_a_slow_loader_is_not_blamed_on_a_short_wait():
    def body(program):
        with program.phase("data"):
            program.work(8 * MS)
        with program.phase("forward"):
            program.launch(100 * US, 10)
            program.item()

    found = causes(looped(body))
    assert found["data"] > 6
    assert found["synchronization"] < 1.5


def test_a_loader_slower_than_the_wait_before_it_is_not_shortened_by_the_wait():
    """Removing the wait would leave the loader as late; removing the loader leaves nothing late."""

    def body(program):
        with program.phase("data"):
            program.work(12 * MS)
        with program.phase("forward"):
            program.launch(1 * MS, 8)
            program.item()

    found = causes(looped(body))
    assert found["data"] == pytest.approx(12, abs=0.2)
    assert found["synchronization"] < 0.3


def test_a_wait_of_the_warm_up_pays_for_no_later_step_but_the_next():
    """400 ms of waits in the first step, and a loader that is 30 ms late in each of five."""
    bounds = np.arange(6) * 500 * MS
    waits = union(np.array([50 * MS]), np.array([450 * MS]))
    late_ns = np.full(5, 30 * MS)
    paid = charge(waits, waits, bounds[1:] - 40 * MS, late_ns, bounds)
    assert (paid / MS).tolist() == [30, 30, 0, 0, 0]
    whole = charge(waits, waits, bounds[1:] - 40 * MS, late_ns, bounds[[0, -1]])
    assert (whole / MS).tolist() == [30] * 5


@pytest.mark.parametrize(
    "name", ["cudaMallocAsync_v11020", "cudaMallocFromPoolAsync_ptsz_v11020", "cuMemPoolTrimTo"]
)
def test_a_pool_that_asks_the_driver_allocates(name):
    def body(program):
        program.item()
        program.call(1 * MS, name)
        program.launch(20 * US)

    assert causes(looped(body))["allocation"] == pytest.approx(1, abs=0.05)


def test_what_was_late_before_an_allocation_is_not_the_allocations():
    """A first call of the CUDA API, in which a program creates its streams, may take long."""

    def body(program):
        with program.phase("forward"):
            program.call(20 * MS, "cudaStreamCreateWithFlags")
            program.call(1 * MS, "cudaMalloc")
            program.launch(100 * US)

    found = causes(looped(body))
    assert found["launch"] == pytest.approx(20, abs=0.3)
    assert found["allocation"] == pytest.approx(1, abs=0.1)


def test_an_item_after_each_kernel():
    def body(program):
        with program.phase("forward"):
            for _ in range(50):
                program.launch(10 * US)
                program.item()

    found = causes(looped(body))
    assert found["synchronization"] > 0.6 * sum(found.values())


def test_a_copy_from_pageable_memory_in_the_data_phase_makes_the_gap_datas():
    def body(program):
        with program.phase("data"):
            program.pageable_copy(3 * MS)
        with program.phase("forward"):
            program.launch(100 * US, 10)

    found = causes(looped(body))
    assert found["data"] >= 0.9 * (sum(found.values()) - found["launch"])
    assert found["synchronization"] == found["staging"] == 0


@pytest.mark.slow
def test_gaps_inside_a_graph_are_the_queues():
    def body(program):
        with program.phase("forward"):
            program.graph(50 * US, 40, gap_ns=2 * US)

    found = causes(looped(body))
    assert found["queue"] == pytest.approx(39 * 0.002, abs=0.01)


def test_the_longest_gap_says_where_it_is():
    def body(program):
        with program.phase("forward"):
            program.launch(50 * US, 10, name="nvjet_one")
        with program.phase("optimizer"):
            program.work((9 if program.steps == 3 else 1) * MS)
            program.launch(50 * US, name="adam_kernel")

    report = summarize(Analysis(looped(body).trace()))
    gaps = report.idle.gaps
    assert len(gaps) == 10
    assert [gap.ms for gap in gaps] == sorted((gap.ms for gap in gaps), reverse=True)
    longest = gaps[0]
    assert (longest.phase, longest.step, longest.cause) == ("optimizer", 3, "cpu")
    assert (longest.before, longest.after) == ("nvjet_one", "adam_kernel")


def test_the_causes_by_phase_are_those_before_what_the_phase_launches():
    def body(program):
        with program.phase("forward"):
            program.launch(2 * US, 10)
        with program.phase("optimizer"):
            program.work(3 * MS)
            program.launch(2 * US)

    report = summarize(Analysis(looped(body).trace()))
    by_phase = report.idle.by_phase
    assert by_phase["optimizer"]["cpu"] == pytest.approx(report.idle.by_cause["cpu"])
    assert by_phase["forward"].keys() == {"launch"}
    total = sum(sum(causes.values()) for causes in by_phase.values())
    assert total == pytest.approx(report.breakdown.idle_ms)


def test_without_calls_there_are_no_causes():
    build = training()
    build.operations = [row | {"call": -1} for row in build.operations]
    build.calls.clear()
    report = summarize(Analysis(build.trace()))
    assert report.idle is None
    assert report.breakdown.idle_ms > 0


@pytest.mark.parametrize("seed", range(20))
def test_the_causes_of_random_programs_add_up(seed):
    random = np.random.default_rng(seed)

    def body(program):
        for phase in ("data", "forward", "backward", "optimizer"):
            with program.phase(phase):
                for action in random.choice(["launch", "work", "item", "copy", "wait"], 12):
                    if action == "launch":
                        program.launch(int(random.integers(1, 200)) * US, int(random.integers(9)))
                    elif action == "work":
                        program.work(int(random.integers(1, 900)) * US)
                    elif action == "copy":
                        to, size = random.choice([TO_HOST, TO_DEVICE]), random.integers(1 << 18)
                        times = (random.integers(1, 500, 3) * US).tolist()
                        program.pageable_copy(times[0], str(to), *times[1:], bytes=int(size))
                    else:
                        getattr(program, action)()

    found = causes(looped(body, steps=3))
    assert min(found.values()) >= 0


@own
def test_the_causes_of_a_real_capture_add_up(capture):
    report = report_of(capture)
    total = sum(report.idle.by_cause.values())
    assert total == pytest.approx(report.breakdown.idle_ms, rel=1e-9)
    graphs = capture.endswith("compile")
    causes = report.idle.by_cause
    assert (causes["queue"] > causes["launch"]) == graphs


@apart
def test_eager_captures_with_backward_apart_are_launch_bound(capture):
    causes = report_of(capture).idle.by_cause
    assert max(causes, key=causes.get) == "launch"
