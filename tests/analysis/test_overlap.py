"""Overlap with computing: by hand, by brute force, and as the breakdown has it."""

import numpy as np
import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.gpu_time.breakdown import split
from profiling.analysis.gpu_time.overlap import copy_speeds, overlap
from profiling.analysis.records import Overlap
from profiling.analysis.sum_records import CopySpeed
from tests.helpers.captures import OWN, capture_of, report_of
from tests.helpers.programs import COPY, GEMM, H200, MEMSET, MS, TO_DEVICE, TO_HOST, Builder

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
BETWEEN, PEER = "[CUDA memcpy Device-to-Device]", "[CUDA memcpy Peer-to-Peer]"


def two_steps(length: int = 100 * MS) -> Builder:
    build = Builder()
    build.range(0, length // 2, "iteration 0")
    build.range(length // 2, length, "iteration 1")
    return build


def test_communication_hides_behind_computing_and_copies_behind_either():
    build = two_steps()
    build.operation(10 * MS, 30 * MS)
    build.operation(20 * MS, 50 * MS, NCCL, stream=8)
    build.operation(40 * MS, 70 * MS, TO_DEVICE, kind=COPY, stream=9)
    build.operation(80 * MS, 84 * MS, "[CUDA memset]", kind=MEMSET)
    build.operation(99 * MS, 100 * MS)
    assert overlap(Analysis(build.trace())) == [
        Overlap("communication", 15.0, 5.0, 10.0, pytest.approx(100 / 3), 0.0),
        Overlap("copies", 17.0, 5.0, 12.0, pytest.approx(1000 / 34), None),
    ]


def test_copies_from_gpu_to_gpu_are_communication_and_slow_nothing():
    build = two_steps()
    build.operation(10 * MS, 30 * MS)
    build.operation(20 * MS, 50 * MS, PEER, kind=COPY, stream=8, bytes=9 * 10**9)
    build.operation(40 * MS, 70 * MS, TO_DEVICE, kind=COPY, stream=9)
    build.operation(99 * MS, 100 * MS)
    analysis = Analysis(build.trace())
    assert overlap(analysis) == [
        Overlap("communication", 15.0, 5.0, 10.0, pytest.approx(100 / 3), 0.0),
        Overlap("copies", 15.0, 5.0, 10.0, pytest.approx(100 / 3), None),
    ]
    row = {row.direction: row for row in copy_speeds(analysis, H200)}["Peer-to-Peer"]
    assert (row.ms, row.exposed_ms, row.gb_per_s, row.memory) == (15.0, 10.0, 300.0, None)
    parts = split(analysis.activity, analysis.bounds_ns)
    assert (parts["communication"].sum(), parts["copy"].sum()) == (20 * MS, 20 * MS)


def test_what_hidden_communication_slows_is_told():
    build = two_steps()
    for start in (0, 10, 20, 60):
        build.operation(start * MS, (start + 2) * MS)
    build.operation(29 * MS, 40 * MS, NCCL, stream=8)
    build.operation(30 * MS, 35 * MS)
    build.operation(99 * MS, 100 * MS, name="last")
    (communication,) = overlap(Analysis(build.trace()))
    assert communication.slowed_ms == pytest.approx(1.5)  # 3 ms in two steps


def test_what_there_is_not_has_no_row():
    build = two_steps()
    build.operation(10 * MS, 99 * MS)
    assert overlap(Analysis(build.trace())) == []
    build.operations.clear()
    assert overlap(Analysis(build.trace())) is None
    assert copy_speeds(Analysis(build.trace()), H200) is None


@pytest.mark.parametrize("seed", range(5))
def test_hidden_and_exposed_by_counting_each_nanosecond(seed):
    random = np.random.default_rng(seed)
    build = two_steps(2000)
    ran = {name: np.zeros(2000, bool) for name in (GEMM, NCCL, TO_DEVICE)}
    for _ in range(60):
        start, length = int(random.integers(0, 1900)), int(random.integers(1, 60))
        name = str(random.choice(list(ran)))
        build.operation(start, start + length, name, kind=COPY if name == TO_DEVICE else 0)
        ran[name][start : start + length] = True
    build.operation(1999, 2000, GEMM)
    ran[GEMM][1999] = True
    analysis = Analysis(build.trace())
    inside = slice(analysis.begin_ns, analysis.end_ns)
    computing, talking, copying = (of[inside] for of in ran.values())
    wanted = [
        (talking.sum(), (talking & computing).sum()),
        (copying.sum(), (copying & (computing | talking)).sum()),
    ]
    found = [(row.ms * 2e6, row.hidden_ms * 2e6) for row in overlap(analysis)]
    assert found == [pytest.approx(pair) for pair in wanted]


@pytest.mark.parametrize("capture", [*OWN, "flash_eager.trace"])
def test_exposed_copies_are_those_of_the_breakdown(capture):
    report = report_of(capture)
    (copies,) = report.overlap
    assert copies.kind == "copies"
    assert copies.exposed_ms == pytest.approx(report.breakdown.copy_ms, rel=1e-12)
    assert copies.hidden_ms + copies.exposed_ms == pytest.approx(copies.ms)
    exposed = sum(row.exposed_ms for row in report.copies)
    assert exposed <= copies.exposed_ms  # which has the memsets too


def test_copies_by_direction_and_memory():
    build = two_steps()
    build.operation(0, 10 * MS, TO_DEVICE, kind=COPY, bytes=63 * 10**7)
    build.operation(10 * MS, 20 * MS, TO_DEVICE, kind=COPY, bytes=10**7, pageable=True)
    build.operation(15 * MS, 20 * MS)
    build.operation(30 * MS, 31 * MS, BETWEEN, kind=COPY, bytes=10**9)
    build.operation(40 * MS, 41 * MS, TO_HOST, kind=COPY, bytes=-1)
    assert copy_speeds(Analysis(build.trace()), H200) == [
        CopySpeed("Host-to-Device", "pinned", 1, 63 * 10**7, 5.0, 5.0, 63.0, pytest.approx(100)),
        CopySpeed("Host-to-Device", "pageable", 1, 10**7, 5.0, 2.5, 1.0, pytest.approx(100 / 63)),
        CopySpeed("Device-to-Device", None, 1, 10**9, 0.5, 0.5, 1000.0, None),
        CopySpeed("Device-to-Host", "pinned", 1, None, 0.5, 0.5, None, None),
    ]


def test_bandwidth_of_a_real_capture_is_bytes_over_time():
    capture = capture_of("slow_eager")
    trace, (between, *others) = capture.trace, capture.report.copies
    chosen = trace.operations.name == trace.names.index(BETWEEN)
    operations = trace.operations.rows(chosen)
    total_ns = (operations.end_ns - operations.start_ns).sum()
    assert (between.direction, between.memory, between.count) == (
        "Device-to-Device",
        None,
        chosen.sum(),
    )
    assert between.gb_per_s == pytest.approx(operations.bytes.sum() / total_ns)
    assert [row.memory for row in others] == ["pinned"] * len(others) and others
