"""Tests of what capturing is estimated to have added, against programs simulated without it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.gpu_time.profiler_cost import (
    LEAST,
    LIKELY,
    MOST,
    SLOWEST_PACE,
    back_to_back_ns,
    graph_node_times,
    host_costs,
    pace,
    recorded_overhead,
)
from profiling.analysis.summary import summarize
from profiling.report.single.document import report_document
from profiling.shared.causes import VERDICT
from profiling.shared.profiler_costs import COSTS, DRIVER_LAUNCH_US, GRAPH_NODES, LAUNCH_US
from profiling.timeline.opening import open_capture
from profiling.timeline.trace import COPY, GRAPH, HostEvents, Ranges, Trace
from tests.helpers.programs import MAIN, MS, PROCESS, TO_HOST, US, Builder, Program, columns

(CALL,) = [cost for cost in COSTS if (cost.tool, cost.event) == ("nsys", "calls")]
CALL_NS = int(1e3 * CALL.likely_us)
(NODE,) = [cost for cost in COSTS if (cost.tool, cost.event) == ("nsys", GRAPH_NODES)]
LAUNCHES, STEPS, NODES = 200, 8, 100
FETCHING = MAIN + 5  # a thread


def ran(make_step, added_ns: int) -> Trace:
    """A program whose launches take `added_ns` longer."""
    program = Program(dispatch_ns=10 * US + added_ns)
    for _ in range(STEPS):
        with program.step(), program.phase("forward"):
            make_step(program)
    return program.trace()


def launch_bound(program: Program) -> None:
    program.launch(2 * US, LAUNCHES)


def hidden(program: Program) -> None:
    program.launch(40 * US, LAUNCHES)


def waiting(program: Program) -> None:
    """The GPU hides the launches before the wait, and those behind it come late."""
    program.launch(40 * US, LAUNCHES)
    program.wait()
    program.launch(2 * US, LAUNCHES)


def slow_loader(program: Program) -> None:
    """A loader of 5 ms from outside behind launches that it hides."""
    program.launch(2 * US, LAUNCHES)
    with program.phase("data"):
        program.work(5 * MS)
    program.launch(40 * US, LAUNCHES)
    program.wait()


def replays(program: Program) -> None:
    """Graphs of many nodes, each awaited, whose launches take longer where they are captured."""
    captured = program.dispatch_ns > 10 * US
    node_ns = int(1e3 * NODE.likely_us) if captured else 0
    for _ in range(5):  # too few calls to tell the host's pace
        program.graph(2 * US, NODES, call_ns=20 * US + NODES * node_ns)
        program.wait()


def fetching(program: Program) -> None:
    """Half of the calls are another thread's, which copies results to the host."""
    program.launch(2 * US, LAUNCHES // 2)
    program.thread = FETCHING
    program.launch(2 * US, LAUNCHES // 2, TO_HOST, kind=COPY, bytes=4)
    program.thread = MAIN


@pytest.mark.parametrize(
    "make_step", [launch_bound, hidden, waiting, slow_loader, replays, fetching]
)
def test_the_estimate_is_what_the_program_gains_without_it(make_step):
    captured, free = (Analysis(ran(make_step, added)) for added in (CALL_NS, 0))
    mean_ms = [np.diff(each.bounds_ns)[1:].mean() / 1e6 for each in (captured, free)]
    estimated = captured.profiler_cost.step_ns[:, 1:].mean(axis=1) / 1e6
    assert estimated[LIKELY] == pytest.approx(mean_ms[0] - mean_ms[1], rel=0.05, abs=0.02)
    assert estimated[LEAST] <= estimated[LIKELY] <= estimated[MOST]


def test_no_part_becomes_shorter_than_nothing():
    analysis = Analysis(ran(waiting, CALL_NS))
    for cause, ns in analysis.profiler_cost.cause_ns.items():
        step = np.searchsorted(analysis.bounds_ns, analysis.gaps.start_ns, side="right") - 1
        row = list(analysis.profiler_cost.cause_ns).index(cause)
        part = np.bincount(step, analysis.gaps.cause_ns[row], STEPS)
        assert np.all((ns >= 0) & (ns <= part + 1))


def test_what_jax_records_besides_calls_costs_time():
    """Ten events before each launch."""
    (each,) = [cost for cost in COSTS if (cost.tool, cost.event) == ("jax", "host_events")]
    captured, free = (ran(launch_bound, ns) for ns in (CALL_NS + int(1e4 * each.likely_us), 0))
    starts_ns = np.sort(np.concatenate([captured.calls.start_ns - n for n in range(1, 11)]))
    events = HostEvents(starts_ns, np.full(len(starts_ns), MAIN))
    captured = Analysis(replace(captured, kind="jax", host_events=events))
    mean_ms = [np.diff(one.bounds_ns)[1:].mean() / 1e6 for one in (captured, Analysis(free))]
    estimated_ms = captured.profiler_cost.step_ns[LIKELY, 1:].mean() / 1e6
    assert estimated_ms == pytest.approx(mean_ms[0] - mean_ms[1], rel=0.05)


def test_a_verdict_that_hangs_on_the_estimate_has_both_readings():
    """The host is late for a quarter of the step; capturing may have added most of that."""
    report = summarize(Analysis(ran(lambda program: program.launch(12 * US, LAUNCHES), CALL_NS)))
    least, most = report.bottleneck.readings
    assert (least.verdict, VERDICT[most.verdict].waiting) == ("launch", None)
    assert [least.added_ms, most.added_ms] == pytest.approx(report.health.recording_ms[::2])
    (line,) = [
        line for line in report.bottleneck.evidence if "depends on how much idle time" in line
    ]
    assert f"with {least.added_ms:.2f} ms it is kernel launches" in line
    assert report_document(report)


def test_a_verdict_that_does_not_hang_on_it_has_one():
    assert not summarize(Analysis(ran(launch_bound, CALL_NS))).bottleneck.readings


def test_the_pace_of_the_host_is_read_from_events_that_follow_at_once():
    usual, slow = Builder(), Builder()
    for build, gap in ((usual, 80), (slow, 160)):
        for number in range(200):
            build.call(number * 10 * US, number * 10 * US + 10 * US - gap)
    assert pace(usual.trace(), [MAIN]) == pytest.approx(1.0)
    assert pace(slow.trace(), [MAIN]) == pytest.approx(2.0)
    assert back_to_back_ns(usual.trace().calls.rows(np.arange(50)), [MAIN]) is None


def launching(us: float, count: int = 200, name: str = "cudaLaunchKernel") -> Builder:
    """Launches of a thread that does other work between any two."""
    build = Builder()
    for number in range(count):
        build.call(number * 20 * US, number * 20 * US + int(us * US), name)
    return build


def test_the_pace_of_the_host_is_read_from_launches_where_gaps_are_the_programs_own():
    assert pace(launching(2 * LAUNCH_US).trace(), [MAIN]) == pytest.approx(2.0)
    assert pace(launching(2 * LAUNCH_US, name="cudaLaunchKernelExC_v11060").trace(), [MAIN]) == 2.0
    assert pace(launching(2 * LAUNCH_US, name="cuLaunchKernel").trace(), [MAIN]) is None
    driver = launching(2 * DRIVER_LAUNCH_US, name="cuLaunchKernelEx")
    assert pace(driver.trace(), [MAIN]) == pytest.approx(2.0)
    assert pace(launching(2 * LAUNCH_US, count=50).trace(), [MAIN]) is None
    assert pace(launching(2 * LAUNCH_US).trace(), [MAIN + 1]) is None


def test_waits_in_launches_and_work_in_gaps_do_not_slow_the_pace():
    """Each makes one of the two longer: the smaller counts, and none that no host has."""
    fast = launching(LAUNCH_US)
    for number in range(50):  # waits behind launches that follow at once: a gap of twice the usual
        end = number * 20 * US + int(LAUNCH_US * US)
        fast.call(end + 160, end + 1 * US, "cudaStreamSynchronize")
    assert pace(fast.trace(), [MAIN]) == pytest.approx(1.0)
    full = Builder()  # a queue that is full holds up each launch
    for number in range(200):
        full.call(number * 10 * US, number * 10 * US + 10 * US - 120)
    assert pace(full.trace(), [MAIN]) == pytest.approx(1.5)
    assert pace(launching(4 * LAUNCH_US).trace(), [MAIN]) == SLOWEST_PACE
    assert pace(launching(5 * LAUNCH_US).trace(), [MAIN]) is None


def test_a_node_of_a_cuda_graph_counts_in_the_call_that_launched_it():
    build = Builder()
    graph = build.call(1 * MS, 1 * MS + 40 * US, "cudaGraphLaunch_v10000")
    single, whole = build.call(2 * MS, 3 * MS), build.call(4 * MS, 5 * MS, "cuGraphLaunch")
    foreign = build.call(6 * MS, 7 * MS, "cudaGraphLaunch", thread=99)
    for number in range(4):
        start = (10 + number) * MS
        build.operation(start, start + 1 * US, call=graph, graph_node=number)
    build.operation(20 * MS, 21 * MS, call=single)
    build.operation(30 * MS, 31 * MS, call=whole, kind=GRAPH)  # its nodes were not recorded
    build.operation(40 * MS, 41 * MS, call=foreign, graph_node=1)
    times_ns = graph_node_times(build.trace(), [MAIN])
    assert times_ns.tolist() == [1 * MS + number * 10 * US for number in range(4)]


def test_a_graph_that_only_recording_its_nodes_delays_is_not_bound_by_launches():
    """The GPU is busy for 0.3 ms after each launch, of 26 us without a profiler and 86 with it."""
    report = summarize(Analysis(ran(replays, CALL_NS)))
    (likely,) = report.typical.added_ms[LIKELY:MOST]
    assert sum(likely.values()) == pytest.approx(5 * 0.062, rel=0.1)
    assert VERDICT[report.bottleneck.verdict].waiting is None


def test_overhead_counts_unless_it_is_there_without_a_profiler():
    build = Builder()
    build.call(1 * MS, 9 * MS)
    names = ["Buffer Flush", "Command Buffer Full", "Lazy Function Loading"]
    nobody = -(1 << 32)  # torch.profiler does not know the thread
    rows = [(2 * MS, 3 * MS, True, build.name(name), -1, -1, nobody) for name in names]
    rows[1:] = [(start + 3 * MS, end + 3 * MS, *rest) for start, end, *rest in rows[1:]]
    rows.append((12 * MS, 13 * MS, True, build.name(names[0]), -1, -1, nobody))  # in no call
    trace = build.trace(overhead=Ranges(*columns(rows, 7)))
    assert recorded_overhead(trace, [MAIN]).total_ns() == 1 * MS


def test_stacks_and_shapes_cost_more(tmp_path):
    """10 operators of the main thread, and 20 Python functions in them."""
    event = {"ph": "X", "pid": PROCESS, "tid": MAIN, "dur": 5, "name": "aten::add"}
    operators = [event | {"cat": "cpu_op", "ts": 10 * i} for i in range(10)]
    frames = [event | {"cat": "python_function", "ts": 5 * i, "name": "f"} for i in range(20)]
    costs = {}
    for settings in ({}, {"record_shapes": 1, "with_stack": 1}):
        file = tmp_path / "trace.json"
        held = operators + (frames if settings else [])
        file.write_text(json.dumps(settings | {"traceEvents": held}))
        analysis = Analysis(open_capture(file))
        found = host_costs(analysis.trace, analysis.steps, {analysis.trace.operators.thread[0]})
        costs[bool(settings)] = found.until(np.array([1 * MS]))[:, 0]
    assert np.all(costs[True] > costs[False])
    each = {(c.event, c.setting): c.likely_us for c in COSTS if c.tool == "kineto"}
    longer_us = 10 * (each["operators", "record_shapes"] + each["operators", "with_stack"])
    longer_us += 20 * each["frames", None]
    assert (costs[True] - costs[False])[LIKELY] == pytest.approx(1e3 * longer_us)
