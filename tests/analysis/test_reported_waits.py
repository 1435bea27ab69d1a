"""Waits for the GPU that a function of the host ends, as JAX's under nsys."""

from dataclasses import replace

import numpy as np
import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import union
from profiling.analysis.gpu_time.reported_waits import MOST_WAKE_NS, reported
from profiling.analysis.summary import summarize
from profiling.timeline.trace import Trace
from tests.helpers.programs import MAIN, MS, PROCESS, US, Program, calls_table

REPORT = "cuLaunchHostFunc"


def waiting_program(report: str, behind_ns: int) -> Trace:
    """Steps of 5 ms of products, a futex that ends `behind_ns` after them, and 0.8 ms of Python."""
    program, waited = Program(), []
    for _ in range(8):
        with program.step(), program.phase("forward"):
            program.launch(1 * MS, 5)
            program.call(15 * US, report)
            begin, program.host = program.host + 10 * US, program.gpu + behind_ns
            waited.append((begin, program.host))
            program.work(800 * US)
    futex = program.build.name("futex")
    trace = program.trace()
    rows = [(begin, end, futex, PROCESS, MAIN) for begin, end in waited]
    return replace(trace, os_calls=calls_table(rows))


@pytest.mark.parametrize(
    ("report", "behind_ns", "verdict"),
    [
        (REPORT, 300 * US, "gpu_compute"),  # what the host does later, it would do meanwhile
        ("cudaLaunchHostFunc_v10000", 300 * US, "gpu_compute"),
        ("cuEventRecord", 300 * US, "cpu"),  # nothing reports that the GPU has ended
        (REPORT, 6 * MS, "cpu"),  # it waits for something else
    ],
)
def test_a_host_that_waits_for_a_report_waits_for_the_gpu(report, behind_ns, verdict):
    found = summarize(Analysis(waiting_program(report, behind_ns)))
    assert found.bottleneck.verdict == verdict
    if verdict == "gpu_compute":
        assert found.idle.by_cause["synchronization"] > 0.9
        assert found.idle.by_cause["cpu"] == 0


@pytest.mark.parametrize(
    ("until_ns", "busy_ns", "counts"),
    [
        (6 * MS, [(0, 5 * MS)], True),
        (6 * MS, [(0, 5 * MS), (2 * MS, 9 * MS)], False),  # the GPU has not ended
        (6 * MS, [(0, 1 * MS)], False),  # it had ended before
        (6 * MS, [(0, 3 * MS)], False),  # most of the wait lies behind its end
        (20 * MS, [(0, 18 * MS - 1)], False),
        (20 * MS, [(0, 20 * MS - MOST_WAKE_NS)], True),
        (6 * MS, [], False),
    ],
)
def test_the_gpus_work_takes_most_of_the_wait_and_ends_in_it(until_ns, busy_ns, counts):
    calls = calls_table([(0, 10 * US, 0, PROCESS, MAIN)])
    waits = union(np.array([1 * MS]), np.array([until_ns]))
    starts_ns, ends_ns = np.array(busy_ns, np.int64).reshape(-1, 2).T
    found = reported([REPORT], waits, calls, starts_ns, ends_ns)
    assert len(found.start_ns) == counts


def test_without_calls_nothing_is_reported():
    waits = union(np.array([1 * MS]), np.array([6 * MS]))
    calls = calls_table([(0, 10 * US, 0, PROCESS, MAIN)]).rows(np.zeros(1, bool))
    found = reported([REPORT], waits, calls, np.array([0]), np.array([5 * MS]))
    assert not len(found.start_ns)
