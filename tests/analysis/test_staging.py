"""Idle time of copies from and to pageable memory, staged by the host: the cause `staging`."""

import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.gpu_time.host_activity import STAGED_BYTES
from profiling.analysis.open_report import open_report
from profiling.analysis.summary import summarize
from profiling.timeline.trace import COPY
from tests.helpers.programs import MS, TO_DEVICE, TO_HOST, US, Builder, Program
from tests.helpers.written import write_as

HOME = {"name": TO_HOST, "behind_ns": 2 * MS}
THERE = {"name": TO_DEVICE, "before_ns": 2 * MS}
either = pytest.mark.parametrize("copy", [HOME, THERE], ids=["to the host", "to the GPU"])


def copying(steps: int = 6, phase: str = "optimizer", launched: int = 5, **copy) -> Program:
    """Steps of kernels of 1 ms, a copy of 1 ms in that phase, and a kernel behind it."""
    program = Program()
    for _ in range(steps):
        with program.step():
            with program.phase("forward"):
                program.launch(1 * MS, launched)
            with program.phase(phase):
                program.pageable_copy(1 * MS, **copy)
            program.launch(20 * US)
    return program


def causes(program: Program) -> dict[str, float]:
    """Milliseconds a step."""
    return summarize(Analysis(program.trace())).idle.by_cause


@either
def test_the_call_waits_for_kernels_first_and_only_the_rest_is_the_copys(copy):
    """The call takes 8 ms, of which the GPU computes for 5 and copies for 1."""
    found = causes(copying(**copy))
    assert found["staging"] == pytest.approx(2, abs=0.01)
    assert sum(found.values()) - found["staging"] < 0.05


@either
@pytest.mark.parametrize("tool", ["nsys", "kineto"])
def test_both_tools_captures_tell_it(tmp_path, tool, copy):
    trace = copying(**copy).trace()
    report = open_report(write_as(trace, tool, tmp_path)).report
    assert report.capture.kind == tool and report.window.steps == 6
    assert report.idle.by_cause == pytest.approx(summarize(Analysis(trace)).idle.by_cause, abs=1e-6)
    assert report.idle.by_cause["staging"] == pytest.approx(2, abs=0.01)
    assert report.bottleneck.verdict == "copies"
    assert "copies, up to 3.0" in report.bottleneck.most_to_gain
    assert not any(line.startswith("Join small copies") for line in report.bottleneck.next)


@either
def test_in_the_data_phase_it_stays_datas(copy):
    found = causes(copying(phase="data", **copy))
    assert found["staging"] == 0
    assert found["data"] == pytest.approx(2, abs=0.05)


@either
def test_a_small_copy_is_a_latency_and_none_of_it_is_staging(copy):
    small = causes(copying(bytes=STAGED_BYTES, **copy))
    large = causes(copying(bytes=STAGED_BYTES + 1, **copy))
    assert small["staging"] == 0 and large["staging"] > 1.9
    reason = "synchronization" if copy is HOME else "data"  # it brings a batch, for all one knows
    assert small[reason] == pytest.approx(2, abs=0.05) and large[reason] < 0.05


def test_what_is_before_a_copy_to_the_host_is_a_wait():
    found = causes(copying(name=TO_HOST, before_ns=3 * MS))
    assert found["staging"] == 0
    assert found["synchronization"] == pytest.approx(3, abs=0.05)


def test_pauses_of_kernels_that_a_copy_waits_for_are_the_queues():
    program = Program()
    for _ in range(6):
        with program.step():
            with program.phase("forward"):
                program.graph(100 * US, 20, gap_ns=100 * US)
            with program.phase("optimizer"):
                program.pageable_copy(1 * MS, **THERE)
    found = causes(program)
    assert found["queue"] == pytest.approx(1.9, abs=0.01)
    assert found["staging"] == pytest.approx(2, abs=0.01)


def one_by_one(phase: str = "optimizer", pause_ns: int = 0, **copy) -> Program:
    """Steps of a kernel and, behind it, 100 small copies to the GPU one after the other."""
    program = Program(dispatch_ns=20 * US)
    for _ in range(6):
        with program.step():
            program.launch(1 * MS)
            program.wait()
            with program.phase(phase):
                for _ in range(100):
                    program.work(20 * US + pause_ns)
                    program.pageable_copy(1 * US, bytes=64, **copy)
                    program.wait()
            program.launch(20 * US)
    return program


def test_what_lies_between_copies_to_the_gpu_is_theirs():
    report = summarize(Analysis(one_by_one().trace()))
    found = report.idle.by_cause
    assert found["staging"] > 0.9 * sum(found.values())
    assert report.bottleneck.verdict == "copies"
    assert report.bottleneck.next[0].startswith("Join small copies: ")


def test_it_is_not_in_the_data_phase_nor_long_without_a_call_nor_between_copies_to_the_host():
    assert causes(one_by_one("data"))["staging"] == 0
    assert causes(one_by_one(name=TO_HOST))["staging"] == 0
    slow = causes(one_by_one(pause_ns=1 * MS))
    assert slow["data"] > 98  # it brings a batch, for all one knows
    assert 1 < slow["staging"] < 5


def test_queued_time_between_copies_to_the_host_is_theirs():
    """JAX launches a host function behind each copy, which empties the buffer for the next."""
    build = Builder()
    for step in range(6):
        at = step * 20 * MS
        build.range(at, at + 19 * MS, f"iteration {step}")
        build.launched(at, at + 1 * MS, at + 2 * MS)
        for row, name in enumerate((TO_HOST, TO_HOST, TO_HOST, TO_DEVICE)):
            begin = at + (row + 1) * 4 * MS
            asked = at + (row + 1) * 10 * US
            call = build.call(asked, asked + 5 * US, "cudaMemcpyAsync")
            build.operation(begin, begin + 1 * MS, name, call, COPY, bytes=16 << 20)
        build.launched(at + 100 * US, at + 17 * MS, at + 18 * MS)
    report = summarize(Analysis(build.trace()))
    found = report.idle.by_cause
    assert found["staging"] == pytest.approx(6, abs=0.1)  # two gaps of three
    assert found["queue"] > 4
    assert report.bottleneck.verdict == "copies"


def test_what_the_host_does_behind_the_call_is_no_copy():
    program = Program()
    for _ in range(6):
        with program.step(), program.phase("optimizer"):
            program.launch(1 * MS)
            program.pageable_copy(1 * MS, **HOME)
            program.work(5 * MS)
            program.launch(20 * US)
    assert causes(program)["staging"] == pytest.approx(2, abs=0.01)


def test_a_wait_before_a_copy_does_not_pay_for_it():
    """A copy without the wait would wait for the same kernels, and move its bytes behind them."""
    program = Program()
    for _ in range(6):
        with program.step(), program.phase("optimizer"):
            program.launch(1 * MS, 8)
            program.wait()
            program.pageable_copy(1 * MS, **THERE)
    found = causes(program)
    assert found["staging"] == pytest.approx(2, abs=0.01)
    assert found["synchronization"] < 0.1
