"""Launch queue: number and age of waiting launches, by hand and by walking through a capture."""

import numpy as np
import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.gpu_time.launch_queue import launch_queue
from tests.helpers.captures import capture_of
from tests.helpers.programs import US, Builder, Program


def one_step(end: int = 100 * US) -> Builder:
    build = Builder()
    build.range(0, end, "iteration 0")
    return build


def test_a_launch_waits_from_the_end_of_its_call_to_its_operation():
    build = one_step()
    build.launched(0, 10 * US, 50 * US)  # returned at 5
    build.launched(10 * US, 50 * US, 60 * US)  # at 15
    build.launched(20 * US, 60 * US, 100 * US)  # at 25
    queue = launch_queue(Analysis(build.trace()))
    assert (queue.stream, queue.max_length) == (7, 2)  # from 25 to 50
    assert queue.mean_length == (5 + 35 + 35) / 100
    assert (queue.short_us, queue.median_us, queue.long_us) == pytest.approx((8, 35, 35))


def test_an_operation_that_begins_before_its_call_returned_has_not_waited():
    build = one_step()
    build.launched(0, 2 * US, 100 * US)
    queue = launch_queue(Analysis(build.trace()))
    assert (queue.mean_length, queue.max_length, queue.median_us) == (0, 0, 0)


def test_the_busiest_stream_counts_and_the_delay_is_of_all():
    build = one_step()
    build.launched(0, 10 * US, 100 * US, stream=13)
    for start in (20, 22, 24):
        build.launched(0, start * US, (start + 1) * US, stream=7)
    queue = launch_queue(Analysis(build.trace()))
    assert (queue.stream, queue.max_length) == (13, 1)
    assert queue.median_us == 16  # of 5, 15, 17, 19


def test_a_graph_is_one_launch():
    program = Program()
    with program.step():
        program.graph(10 * US, 50)
        program.graph(10 * US, 50)
    queue = launch_queue(Analysis(program.trace()))
    assert queue.max_length == 1


def test_without_calls_nothing_is_known():
    build = one_step()
    build.operation(10 * US, 20 * US)
    assert launch_queue(Analysis(build.trace())) is None


@pytest.mark.parametrize("capture", ["flash_eager", "slow_compile", "flash_eager.trace"])
def test_a_walk_through_the_events_of_a_capture_finds_the_same(capture):
    report, trace = capture_of(capture).report, capture_of(capture).trace
    analysis = Analysis(trace)
    begun: dict[int, int] = {}
    streams: dict[int, int] = {}
    owned, busy_ns = analysis.owned, {}
    rows = zip(owned.call.tolist(), owned.row.tolist(), owned.start_ns.tolist(), strict=True)
    for call, row, start_ns in rows:
        stream = int(trace.operations.stream[row])
        busy_ns[stream] = busy_ns.get(stream, 0) + int(
            trace.operations.end_ns[row] - trace.operations.start_ns[row]
        )
        if call >= 0 and call not in begun:
            begun[call], streams[call] = start_ns, stream
    busiest = max(busy_ns, key=busy_ns.__getitem__)
    returned = {call: int(trace.calls.end_ns[call]) for call in begun}
    waits = [max(0, begun[call] - returned[call]) for call in begun]
    events = [
        event
        for call in begun
        if streams[call] == busiest and begun[call] > returned[call]
        for event in ((returned[call], 1), (begun[call], -1))
    ]
    length, most, area, last = 0, 0, 0, 0
    for time_ns, change in sorted(events):
        area, last = area + length * (time_ns - last), time_ns
        length += change
        most = max(most, length)
    queue = report.launch_queue
    assert (queue.stream, queue.max_length) == (busiest, most) and most > 0
    wall_ns = analysis.end_ns - analysis.begin_ns
    assert queue.mean_length == pytest.approx(area / wall_ns)
    found = (queue.short_us, queue.median_us, queue.long_us)
    assert found == pytest.approx(tuple(np.percentile(waits, (5, 50, 95)) / 1e3))
