"""Waits for the GPU that give memory of CUDA's pool back to the system."""

import numpy as np
import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.gpu_time.pool_releases import release_begins_ns
from profiling.analysis.summary import summarize
from profiling.analysis.whatif.changes import NO
from profiling.analysis.whatif.replay import steady_ms
from profiling.analysis.whatif.work import ALLOCATION, WAITING
from tests.helpers.programs import MS, US, Program
from tests.helpers.whatif import Call, Op, made_work

FREE, WAIT = "cudaFreeAsync_v11020", "cudaStreamSynchronize"
NAMES = ["cudaLaunchKernel", FREE, WAIT]


def program_of(frees: str | None, wait: str, behind_ns: int) -> Program:
    """Steps of 1 ms on the GPU, and a wait that returns `behind_ns` after it."""
    program = Program()
    for _ in range(8):
        with program.step(), program.phase("forward"):
            program.launch(1 * MS)
            if frees:
                program.call(2 * US, frees)
            begin, program.host = program.host, program.gpu + behind_ns
            program.build.call(begin, program.host, wait)
    return program


@pytest.mark.parametrize(
    ("frees", "wait", "behind_ns", "cause"),
    [
        (FREE, WAIT, 5 * MS, "allocation"),
        ("cuMemFreeAsync_ptsz", "cudaEventSynchronize", 5 * MS, "allocation"),
        (None, WAIT, 5 * MS, "synchronization"),
        (FREE, "cudaMemcpy", 5 * MS, "synchronization"),  # the host may still move bytes
        (FREE, WAIT, 100 * US, "synchronization"),  # it only wakes
    ],
)
def test_a_wait_behind_frees_that_outlasts_the_gpu_gives_memory_back(frees, wait, behind_ns, cause):
    report = summarize(Analysis(program_of(frees, wait, behind_ns).trace()))
    found = report.idle.by_cause
    of_gap_ms = 7 / 8 * behind_ns / MS  # behind the last step there is no gap
    assert found[cause] == pytest.approx(of_gap_ms, abs=0.03)
    assert sum(found.values()) == pytest.approx(found[cause], abs=0.03)
    if behind_ns > 1 * MS:
        assert report.bottleneck.verdict == cause


@pytest.mark.parametrize(
    ("busy_until_ns", "begins_ns"),
    [
        ([3 * MS], 3 * MS),  # in the wait
        ([1 * MS], 2 * MS),  # before it
        ([3 * MS, 9 * MS], 8 * MS),  # another stream still works: it may be what is waited for
    ],
)
def test_it_begins_where_neither_gpu_nor_wait_was_earlier(busy_until_ns, begins_ns):
    name, start_ns, end_ns = (
        np.array(column) for column in ([1, 2], [1 * MS, 2 * MS], [0, 8 * MS])
    )
    busy_ns = np.zeros(len(busy_until_ns), int), np.array(busy_until_ns)
    found = release_begins_ns(NAMES, name, start_ns, end_ns, *busy_ns)
    assert found[1] == begins_ns


@pytest.mark.parametrize("frees", [True, False])
def test_without_allocation_waits_end_with_the_gpu(frees):
    launches = [Call(5, 5, [Op(2, 6)]) for _ in range(3)]
    freed = [Call(5, 2, kind=ALLOCATION, name=1)] if frees else []
    calls = [*launches, *freed, Call(5, 1_000, kind=WAITING, awaited=2, wait_lag=990, name=2)]
    work = made_work(calls, names=tuple(NAMES))
    assert steady_ms(work) > 1
    assert (steady_ms(NO["allocation"].apply(work)) < 0.05) == frees
