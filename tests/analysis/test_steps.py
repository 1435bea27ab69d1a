"""Process, steps and phases that a report is about."""

from dataclasses import replace

import numpy as np
import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.steps.find import find_steps
from profiling.analysis.summary import summarize
from profiling.timeline.trace import ANY_THREAD, Ranges
from tests.helpers.captures import own, report_of, trace_of
from tests.helpers.programs import AUTOGRAD, MAIN, MS, US, Builder, Program, training


def steps_and_names(build: Builder, step=None, phases=None, device=None, **fields):
    trace = build.trace(**fields)
    steps = find_steps(trace, step, phases, device)
    ranges = steps.ranges
    names = [(trace.names[n], d) for n, d in zip(ranges.name, ranges.depth, strict=True)]
    return steps, names


def test_the_projects_ranges():
    build = training(steps=3)
    build.range(int(2.3 * MS), int(2.4 * MS), "clip")  # inside optimizer
    build.range(int(1.5 * MS), int(1.6 * MS), "cub::Scan", domain="CCCL")
    steps, names = steps_and_names(build)
    assert (steps.name, steps.first_iteration, steps.thread) == ("iteration", 40, MAIN)
    assert steps.start_ns.tolist() == [0, 10 * MS, 20 * MS]
    phases = [("data", 0), ("forward", 0), ("backward", 0), ("optimizer", 0)]
    assert names == [*phases, ("clip", 1), *phases, *phases]
    assert steps.phases_from == "ranges"


def test_micro_steps_lie_between_and_phases_stay_phases():
    build = Builder()
    for i in range(2):
        build.range(10 * i, 10 * i + 9, f"micro_step {i}")
        build.range(10 * i + 1, 10 * i + 3, "data")
        build.range(10 * i + 3, 10 * i + 5, "forward")
        build.range(10 * i + 5, 10 * i + 9, "backward")
    build.range(20, 25, "optimizer")
    build.range(0, 30, "iteration 5")
    build.range(31, 35, "log")  # between the iterations: a phase too
    build.range(40, 60, "iteration 6")
    steps, names = steps_and_names(build)
    assert [name for name, _ in names] == [*["data", "forward", "backward"] * 2, "optimizer", "log"]
    assert {depth for _, depth in names} == {0}
    assert steps.first_iteration == 5


@pytest.mark.parametrize(
    ("ranges", "steps"),
    [
        ([(0, 128), (1175, 1176), (1179, 1180)], 1),  # three calls of a layer in a test of layers
        ([(0, 90), (100, 110), (150, 190)], 3),  # restless, but they fill the time
        ([(0, 900), (1000, 1010), (1100, 1110), (1190, 1200)], 4),  # the first compiles
        ([(0, 9), (100, 101), (200, 250), (300, 301)], 4),  # a loader, once in each iteration
    ],
)
def test_a_range_that_comes_again_by_chance_is_no_step(ranges, steps):
    build = Builder()
    for start, end in ranges:
        build.range(start * MS, end * MS, "layer", domain=None)
        build.call(start * MS, start * MS + 10)
    assert len(steps_and_names(build)[0].start_ns) == steps


def test_what_follows_the_last_step_belongs_to_it_only_if_it_came_between_steps_before():
    build = Builder()
    for i in range(3):
        build.range(10 * i, 10 * i + 5, f"iteration {i}")
    build.range(6, 7, "log")
    build.range(26, 28, "log")
    build.range(30, 90, "generate")
    steps, _ = steps_and_names(build)
    assert steps.host_end_ns() == 28


def test_ranges_of_other_programs():
    build = Builder()
    for i in range(3):
        build.range(10 * i, 10 * i + 9, "train_batch", domain=None)
        build.range(10 * i + 1, 10 * i + 4, "fwd", domain=None)
        build.range(10 * i + 4, 10 * i + 9, "bwd", domain=None)
    build.range(100, 200, "save", domain=None)
    steps, names = steps_and_names(build)
    assert (steps.name, len(steps.start_ns)) == ("train_batch", 3)
    assert names[:2] == [("fwd", 0), ("bwd", 0)]
    steps, names = steps_and_names(build, step="fwd", phases=["bwd"])
    assert (steps.name, len(steps.start_ns), len(names)) == ("fwd", 3, 3)


def test_torch_profilers_steps_and_a_prefix_that_is_asked_for():
    build = Builder()
    for i in range(2):
        build.range(10 * i, 10 * i + 9, f"ProfilerStep#{i + 3}", domain=None)
        build.range(10 * i, 10 * i + 8, f"batch_{i}", domain=None)
    assert steps_and_names(build)[0].name == "ProfilerStep"
    steps, _ = steps_and_names(build, step="batch_")
    assert (steps.name, steps.first_iteration) == ("batch", 0)


@pytest.mark.parametrize("choice", [{"step": "epoch"}, {"phases": ["fwd"]}, {"device": 3}])
def test_what_is_asked_for_and_not_there_is_said(choice):
    (key, value), *_ = choice.items()
    value = value[0] if isinstance(value, list) else value
    with pytest.raises(ValueError, match=f"^{key}={value}: ") as error:
        steps_and_names(training(), **choice)
    assert "\n" not in str(error.value)


def test_without_ranges_the_whole_capture_is_one_step():
    build = training()
    build.ranges.clear()
    steps, names = steps_and_names(build)
    assert (steps.name, len(steps.start_ns), steps.phases_from) == (None, 1, None)
    assert names == []


def test_steps_with_nothing_inside_are_phases_themselves():
    build = Builder()
    for i in range(3):
        build.range(30 * i, 30 * i + 9, "forward", domain=None)
        build.range(30 * i + 9, 30 * i + 20, "backward", domain=None)
    steps, names = steps_and_names(build)
    assert steps.name == "forward"
    assert names == [("forward", 0), ("backward", 0)] * 3
    assert steps.host_end_ns() == 80


def test_an_empty_capture_is_refused():
    with pytest.raises(ValueError, match="hand.sqlite: the file contains no events"):
        steps_and_names(Builder())


def test_the_process_with_steps_wins_and_of_its_devices_the_busiest():
    build = training(steps=2)
    build.process, build.device = 9, 0
    build.operation(0, 900 * MS, "other_process")
    build.process, build.device = 7, 1
    build.operation(0, 1 * MS, "other_device")
    steps, _ = steps_and_names(build)
    assert (steps.process, steps.device) == (7, 0)
    assert steps_and_names(build, device=1)[0].device == 1


def test_phases_of_ranges_that_no_thread_owns():
    build = Builder()
    for i in range(2):
        build.range(10 * i, 10 * i + 9, f"iteration {i}", thread=ANY_THREAD)
        build.range(10 * i + 1, 10 * i + 4, "forward", thread=ANY_THREAD)
    build.call(1, 2, thread=MAIN)
    steps, names = steps_and_names(build)
    assert steps.thread == MAIN
    assert names == [("forward", 0), ("forward", 0)]


def test_another_threads_ranges_are_no_phases():
    build = training(steps=2)
    build.range(1 * MS, 2 * MS, "hook", thread=AUTOGRAD)
    assert ("hook", 1) in steps_and_names(build)[1]


def kineto() -> Builder:
    build = Builder()
    for i in range(3):
        at = 100 * i
        build.operator(at, at + 20, "aten::linear")
        build.operator(at + 30, at + 50, "autograd::engine::evaluate_function: A", AUTOGRAD)
        build.operator(at + 50, at + 70, "autograd::engine::evaluate_function: B", AUTOGRAD)
        build.operator(at + 72, at + 75, "aten::clip")
        build.range(at + 80, at + 95, "Optimizer.step#AdamW.step", domain=None)
    return build


def test_phases_guessed_from_operators():
    steps, names = steps_and_names(kineto(), kind="kineto")
    assert (steps.name, steps.phases_from) == ("Optimizer.step", "operators")
    assert steps.end_ns.tolist() == [95, 195, 295]
    assert [name for name, _ in names] == ["forward", "backward", "optimizer"] * 3
    assert steps.ranges.start_ns.tolist()[:4] == [0, 30, 70, 95]
    assert steps.ranges.end_ns.tolist()[:3] == [30, 70, 95]


def test_phases_guessed_from_operators_alone():
    build = kineto()
    build.ranges.clear()
    build.operation(20, 280)  # whose call was not captured
    steps, names = steps_and_names(build, kind="kineto")
    assert (steps.name, steps.thread, len(steps.start_ns)) == (None, None, 1)
    assert [name for name, _ in names] == ["forward", "backward", "optimizer"]


@own
def test_the_real_captures_have_twenty_iterations(capture):
    window = report_of(capture).window
    assert (window.steps, window.first_iteration) == (20, 100)
    assert window.step_name == "iteration"


def test_phases_of_a_real_capture_guessed_from_operators():
    """Guessed phases agree with the ranges that are taken away here."""
    trace, told = trace_of("flash_eager.trace"), report_of("flash_eager.trace")
    names = [trace.names[name] for name in trace.ranges.name.tolist()]
    torchs_own = np.array([name.startswith("Optimizer.") for name in names])
    columns = {column: rows[torchs_own] for column, rows in vars(trace.ranges).items()}
    guessed = summarize(Analysis(replace(trace, ranges=Ranges(**columns))))
    assert (guessed.window.steps, guessed.window.phases_from) == (5, "operators")
    gpu_ms = {row.name: row.gpu_ms for row in told.ranges}
    gpu_ms["forward"] += gpu_ms["data"]  # it begins with the step
    for row in guessed.ranges:
        assert row.gpu_ms == pytest.approx(gpu_ms[row.name], rel=0.001)


def closure_program(domain: str | None, closed: bool = True) -> Builder:
    """Steps of an optimizer whose closure does forward and backward; the hook names the phases."""
    build = Builder()
    for number in range(3):
        at = number * 100
        build.range(at, at + 99, f"iteration {number}", domain=domain)
        build.range(at + 2, at + 98, "Optimizer.step#AdamW.step", domain=domain)
        build.range(at + 4, at + 6, "Optimizer.zero_grad#AdamW.zero_grad", domain=domain)
        build.range(at + 10, at + 40, "forward", domain=domain)
        build.range(at + 12, at + 30, "DistributedDataParallel.forward", domain=domain)
        build.range(at + 40, at + 80, "backward", domain=domain)
        if closed:
            build.range(at + 81, at + 97, "optimizer", domain=domain)
        build.operation(at + 20, at + 30)
    return build


def test_torchs_range_of_an_optimizer_is_a_wrapper_where_the_phase_inside_is_named():
    _, names = steps_and_names(closure_program(None), kind="kineto")
    assert names[:4] == [
        *[("forward", 0), ("DistributedDataParallel.forward", 1)],
        *[("backward", 0), ("optimizer", 0)],
    ]
    _, names = steps_and_names(closure_program(None, closed=False), kind="kineto")
    assert names[0] == ("Optimizer.step#AdamW.step", 0), "nothing else says what it is"


def test_phases_of_the_hook_are_the_same_under_nsys_and_own_backwards_kernels():
    """Autograd's thread launches them, and has no ranges."""
    build = Builder()
    for number in range(3):
        at = number * 100 * US
        build.range(at, at + 99 * US, f"iteration {number}", domain=None)
        for name, start, end, thread in (
            ("data", 1, 9, MAIN),
            ("forward", 10, 40, MAIN),
            ("backward", 40, 80, AUTOGRAD),
            ("optimizer", 80, 97, MAIN),
        ):
            build.range(at + start * US, at + end * US, name, domain=None)
            launch = at + (start + 1) * US
            build.launched(launch, launch + 6 * US, launch + 7 * US, thread=thread)
    report = summarize(Analysis(build.trace()))
    assert [(row.name, row.depth, row.kernels) for row in report.ranges] == [
        (name, 0, 3) for name in ("data", "forward", "backward", "optimizer")
    ]
    assert report.attribution.coverage == 1.0
    assert report.attribution.by_time_ns == 3 * US


def test_a_step_that_is_one_replay_of_a_graph_has_no_phases_and_all_its_kernels():
    program = Program()
    for _ in range(6):
        with program.step():
            program.graph(1 * MS, 5)
    report = summarize(Analysis(program.trace()))
    assert (report.window.steps, report.window.step_name) == (6, "iteration")
    assert report.ranges == [] and report.families[0].count == 30
