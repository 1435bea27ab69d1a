"""Columns of made-up programs: what was think, who waited for whom, and what is repeated."""

from dataclasses import replace

import numpy as np
import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.whatif.waits import NEVER
from profiling.analysis.whatif.work import (
    ALLOCATION,
    LAUNCHING,
    OTHER,
    TRANSFER,
    WAITING,
    Work,
    work_of,
)
from profiling.shared.profiler_costs import COSTS
from profiling.timeline.trace import COPY, HostEvents, Trace
from tests.helpers.programs import (
    AUTOGRAD,
    MAIN,
    MS,
    PROCESS,
    TO_DEVICE,
    TO_HOST,
    US,
    Builder,
    Program,
    calls_table,
)


def work(trace: Trace) -> Work:
    assert trace.calls and trace.operations
    return work_of(Analysis(trace), trace.calls, trace.operations)


def one_step(build: Builder, until: int) -> Work:
    build.range(0, until, "iteration 1")
    return work(build.trace())


def test_two_threads_that_take_turns_are_one_host_and_inner_calls_are_part_of_outer_ones():
    build = Builder()
    outer = build.call(10 * US, 20 * US)
    inner = build.call(12 * US, 18 * US, "cuLaunchKernel")
    build.operation(25 * US, 60 * US, call=inner)
    build.launched(30 * US, 60 * US, 90 * US, thread=AUTOGRAD)
    build.call(40 * US, 41 * US, "cuKernelGetName")
    found = one_step(build, 100 * US)
    assert outer == 0 and len(found.host.kind) == 3
    assert found.host.think_ns.tolist() == [0, 10 * US, 5 * US]
    assert found.host.took_ns.tolist() == [10 * US, 5 * US, 1 * US]
    assert found.host.events.tolist() == [1, 2, 1]
    assert found.host.kind.tolist() == [LAUNCHING, LAUNCHING, OTHER]
    assert found.gpu.call.tolist() == [0, 1] and found.first.tolist() == [0, 1, 2, 2]


def test_a_thread_that_hardly_launches_is_none_of_the_host():
    build = Builder()
    for row in range(60):
        build.launched(row * 20 * US, row * 20 * US + 8 * US, row * 20 * US + 10 * US)
    build.launched(500 * US, 1_500 * US, 1_501 * US, thread=99)
    found = one_step(build, 2 * MS)
    assert len(found.gpu.call) == 60 and len(found.host.kind) == 60


def test_other_events_of_jax_hold_up_the_call_behind_them():
    """Three events before the second call, one in it; one of another thread and one too late."""
    build = Builder()
    build.launched(10 * US, 18 * US, 30 * US)
    build.launched(40 * US, 48 * US, 60 * US)
    build.range(0, 100 * US, "iteration 1")
    at, threads = [20, 25, 30, 38, 42, 70], [MAIN, MAIN, 99, MAIN, MAIN, MAIN]
    events = HostEvents(US * np.array(at), np.array(threads))
    found = work(build.trace(kind="jax", host_events=events))
    (each,) = [cost for cost in COSTS if (cost.tool, cost.event) == ("jax", "host_events")]
    assert found.host.held_ns.tolist() == pytest.approx([0, 4 * 1e3 * each.likely_us])


def test_the_lag_that_bound_is_the_captured_one_and_others_are_short():
    build = Builder()
    build.launched(0, 30 * US, 100 * US)  # late behind its call
    build.launched(10 * US, 102 * US, 200 * US)  # behind the first
    found = one_step(build, 300 * US)
    # too few of each to tell a short lag: 6 and 1 us
    assert found.gpu.host_lag_ns.tolist() == [30 * US, 6 * US]
    assert found.gpu.stream_lag_ns.tolist() == [0, 2 * US]


def test_an_operation_that_is_later_than_both_waits_for_another_stream():
    build = Builder()
    copy = build.call(0, 5 * US, "cudaMemcpyAsync")
    build.operation(8 * US, 90 * US, TO_DEVICE, copy, COPY, stream=8, bytes=1 << 20)
    build.launched(10 * US, 92 * US, 120 * US)
    build.launched(20 * US, 121 * US, 150 * US)
    found = one_step(build, 300 * US)
    assert found.gpu.other.tolist() == [-1, 0, -1]
    assert found.gpu.other_lag_ns.tolist() == [0, 2 * US, 0]
    assert found.gpu.host_lag_ns[1] == 6 * US


def test_what_a_call_waits_for():
    program = Program()
    with program.step():
        program.launch(50 * US, 3)
        program.wait()
        program.call(5 * US, "cudaMalloc")
        program.launch(50 * US, 2)
        program.call(2 * MS, "cudaFree")
        program.pageable_copy(20 * US, TO_HOST, bytes=1 << 20)
    found = work(program.trace())
    kinds = found.host.kind.tolist()
    assert kinds == [*[LAUNCHING] * 3, WAITING, ALLOCATION, *[LAUNCHING] * 2, ALLOCATION, TRANSFER]
    # the first cudaMalloc found nothing to wait for; the copy waits for itself
    assert found.host.awaited.tolist() == [-1, -1, -1, 2, -1, -1, -1, 4, 5]
    assert found.host.took_ns[3] == 3 * US and found.host.wait_lag_ns[3] == 8 * US
    assert found.host.took_ns[[4, 8]].tolist() == [5 * US, 3 * US]


def test_launches_wait_for_their_kernels_all_or_none():
    """A slow launch returns behind a short kernel without having waited for it, unless those of
    long kernels wait, too."""
    for returned, waits in ((12, False), (30, True)):  # us behind the begin; the kernels end at 26
        build = Builder()
        for row in range(30):
            at = row * 40 * US
            call = build.call(at, at + returned * US)
            build.operation(at + 6 * US, at + 26 * US, call=call)
        slow = build.call(1_200 * US, 1_212 * US)
        build.operation(1_206 * US, 1_208 * US, call=slow)
        found = one_step(build, 2 * MS)
        assert (found.host.awaited >= 0).tolist() == [waits] * 31
        assert found.host.took_ns[-1] == (3 if waits else 12) * US


def with_system_calls(program: Program, *rows: tuple[int, int, str]) -> Work:
    """The work of a program whose main thread made these calls of the system."""
    for _, _, name in rows:
        program.build.name(name)
    trace = program.trace()
    found = [(start, end, trace.names.index(name), PROCESS, MAIN) for start, end, name in rows]
    return work(replace(trace, os_calls=calls_table(found)))


@pytest.mark.parametrize(
    ("bytes", "kinds"),
    [(4, [LAUNCHING, WAITING, TRANSFER, WAITING]), (1 << 20, [LAUNCHING, TRANSFER])],
)
def test_a_wait_without_a_call_is_one(bytes, kinds):
    """Another thread copies what JAX's waits for by a futex; a large result is the copy's time."""
    program = Program()
    with program.step():
        program.launch(500 * US)
        begun = program.host
        program.host += 300 * US
        program.thread = AUTOGRAD
        copy = program.call(4 * US, "cuMemcpyDtoHAsync_v2")
        program.execute(1 * US, TO_HOST, copy, kind=COPY, bytes=bytes)
        program.thread = MAIN
        program.host = program.gpu + 10 * US
        program.launch(10 * US)
    found = with_system_calls(program, (begun, program.host - 10 * US, "futex")).host
    assert found.kind.tolist() == [*kinds, LAUNCHING]
    assert found.is_stall.any() == (WAITING not in kinds)
    if WAITING in kinds:
        assert found.awaited[3] == 1 and found.wait_lag_ns[3] == 10 * US
        assert found.end_ns[1] == found.start_ns[2] and found.start_ns[3] == found.end_ns[2]


@pytest.mark.parametrize(("name", "stalls"), [("aten::normal_", 1), ("aten::stack", 0)])
def test_noise_that_is_drawn_on_the_host_is_no_batch(name, stalls):
    program = Program()
    with program.step():
        program.launch(10 * US)
        begin = program.host
        program.work(1 * MS)
        program.build.operator(begin, program.host, name)
        program.copy(10 * US)
        program.launch(10 * US)
    found = work(program.trace()).host
    assert np.count_nonzero(found.is_stall) == stalls
    assert (found.data_ns > 0).any() == (not stalls)


@pytest.mark.parametrize(("name", "stalls"), [("poll", 3), ("fsync", 3), ("futex", 0)])
@pytest.mark.parametrize("program_runs", [True, False])
def test_waits_for_programs_and_files_make_no_batch(name, stalls, program_runs):
    """The report's verdict says so, too: the same rule decides. A wait for no program that a step
    starts is one for a loader's process."""
    program, calls = Program(), []
    called, ioctl = program.build.name(name), program.build.name("ioctl")
    for other in range(100, 103):
        with program.step():
            program.launch(10 * US)
            begin = program.host
            calls.append((begin, begin + 3 * MS, called, PROCESS, MAIN))
            if program_runs:
                calls.append((begin + 1 * MS, begin + 2 * MS, ioctl, other, other))
            program.work(3 * MS)
            program.copy(10 * US)
            program.launch(10 * US)
    found = work(program.trace(os_calls=calls_table(calls))).host
    stalls = stalls if program_runs or name != "poll" else 0
    assert np.count_nonzero(found.is_stall) == stalls
    assert np.count_nonzero(found.data_ns > 2 * MS) == 3 - stalls


def test_a_sleep_before_a_batch_is_no_part_of_making_it():
    program = Program()
    with program.step():
        program.launch(10 * US)
        begin = program.host
        program.work(3 * MS)
        program.copy(10 * US)
        program.launch(10 * US)
    found = with_system_calls(program, (begin, begin + 2 * MS, "clock_nanosleep")).host
    assert np.count_nonzero(found.is_stall) == 1
    assert 1 * MS <= found.data_ns.max() < 1.1 * MS


@pytest.mark.parametrize(("name", "stalls"), [("PjitFunction(step)", 0), ("step", 1)])
def test_a_dispatch_of_jax_is_no_pause(name, stalls):
    program = Program()
    with program.step():
        program.launch(10 * US)
        begun = program.host
        program.work(1 * MS)
        program.launch(10 * US)
        program.build.range(begin := begun + 50 * US, program.host, name, domain=None)
    found = work(program.trace()).host
    assert np.count_nonzero(found.is_stall) == stalls
    if not stalls:
        assert found.kind.tolist() == [LAUNCHING, OTHER, LAUNCHING]
        assert found.took_ns[1] == 956 * US and found.think_ns[1] == begin - begun


def test_a_long_launch_waits_only_behind_a_full_queue():
    for queued, waits in ((399, False), (500, True)):
        program = Program(dispatch_ns=1 * US)
        with program.step():
            program.launch(100 * US, queued)
            program.call(40 * MS)  # as a launch: it is given a kernel
            program.execute(1 * US, "last", queued)
        found = work(program.trace())
        assert (found.host.awaited[queued] >= 0) == waits


@pytest.mark.parametrize(("times", "bytes", "batch"), [(4, 1024, 0), (1, 1024, 1), (4, 4, 4)])
def test_numbers_that_are_answered_many_times_a_step_make_no_batch(times, bytes, batch):
    program = Program()
    with program.step():
        for _ in range(times):
            program.item(bytes)
            program.work(1 * MS)
            program.copy(10 * US)
            program.launch(10 * US)
    found = work(program.trace()).host
    assert np.count_nonzero(found.data_ns) == batch
    assert np.count_nonzero(found.is_stall) == times - batch


@pytest.mark.parametrize(
    ("fetched", "brought", "batch"), [(4095, 4096, 0), (64, 4096, 1), (64, 2048, 1)]
)
def test_copies_in_a_row_count_as_one(fetched, brought, batch):
    """Results are as large as a batch together, unless the last is a number; so is a batch."""
    program = Program()
    with program.step():
        program.launch(10 * US)
        program.item(2048)
        program.item(fetched)
        program.work(1 * MS)
        program.copy(10 * US, brought)
        program.copy(10 * US, brought)
        program.launch(10 * US)
    found = work(program.trace()).host
    assert np.count_nonzero(found.data_ns) == batch
    assert np.count_nonzero(found.is_stall) == 1 - batch


def test_stalls_and_batches():
    program = Program()
    with program.step():
        program.launch(10 * US)
        program.work(1 * MS)
        program.launch(10 * US)
        program.work(2 * MS)
        program.copy(10 * US)
        program.launch(10 * US)
    found = work(program.trace())
    assert found.host.is_stall.tolist() == [False, True, False, False]
    assert found.host.data_ns[2] == found.host.think_ns[2] > 2 * MS
    program = Program()
    with program.step():
        program.launch(10 * US)
        program.work(1 * MS)  # before a result is fetched: no batch
        program.item()
        program.work(2 * MS)
        program.copy(10 * US)
        program.launch(10 * US)
    found = work(program.trace())
    assert (found.host.data_ns > 0).tolist() == [False] * 3 + [True, False]
    program = Program()
    with program.step():
        program.launch(10 * US)
        program.item()
        with program.phase("data"):
            program.work(500 * US)
            program.launch(10 * US)
    found = work(program.trace())
    assert not found.host.is_stall.any() and found.host.in_data.tolist() == [False] * 3 + [True]
    assert found.host.data_ns[3] == pytest.approx(506 * US)


def test_the_cycle_waits_for_a_round_before():
    """Each step waits for the kernel that the one before it launched."""
    build = Builder()
    for step in range(5):
        at = step * MS
        build.call(at + 20 * US, at + 300 * US, "cudaStreamSynchronize")
        build.launched(at + 500 * US, at + 510 * US, at + 1_290 * US)
        build.range(at, at + 900 * US, f"iteration {step}")
    found = work(build.trace())
    assert found.host.awaited[2:6].tolist() == [0, -1, 1, -1]
    cycle = found.cycle()
    assert cycle.steps == 3 and cycle.host.awaited.tolist() == [2, -1, 0, -1, 1, -1]
    assert cycle.earlier_ns.tolist() == [NEVER]


def test_a_shift_of_time_changes_nothing():
    def columns(by: int) -> list[np.ndarray]:
        build = Builder()
        for row in range(5):
            at = by + row * MS
            build.launched(at + 10 * US, at + 30 * US, at + 90 * US + 1)
            build.range(at, at + 900 * US, f"iteration {row}")
        found = work(build.trace())
        return [*vars(found.host).values(), *vars(found.gpu).values(), found.first]

    for one, other in zip(columns(0), columns(1_790_000_000_000_000_000), strict=True):
        np.testing.assert_array_equal(one, other)
