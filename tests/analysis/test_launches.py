"""Launch geometry and theoretical occupancy, against SQL and against torch.profiler's figures."""

import gzip
import json
import sqlite3

import numpy as np
import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.gpu_work.launches import MOST_LAUNCHES, group_numbers, launches, occupancy
from profiling.shared.hardware import MULTIPROCESSORS, WARP
from profiling.timeline.trace import Device
from tests.helpers.captures import path_of, report_of
from tests.helpers.programs import COPY, GEMM, H200, TO_DEVICE, Builder

BY_GEOMETRY = """
    SELECT value, gridX * gridY * gridZ, blockX * blockY * blockZ, registersPerThread,
        staticSharedMemory + dynamicSharedMemory, count(*), sum(end - start) AS total
    FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON StringIds.id = demangledName
    GROUP BY 1, 2, 3, 4, 5 ORDER BY total DESC
"""


@pytest.mark.parametrize("capture", ["slow_eager", "flash_compile"])
def test_geometry_is_that_of_the_export(capture):
    database = sqlite3.connect(":memory:")
    database.deserialize(gzip.decompress(path_of(capture).read_bytes()))
    wanted = database.execute(BY_GEOMETRY).fetchall()
    found = report_of(capture).launches
    assert len(found) == min(len(wanted), MOST_LAUNCHES) > 20
    rows = [
        (r.name, r.blocks, r.threads, r.registers, r.shared_bytes, r.count, r.total_ns)
        for r in found
    ]
    assert [row[-1] for row in rows] == [row[-1] for row in wanted[: len(rows)]]
    assert set(rows) <= set(wanted)


def test_occupancy_is_what_torch_profiler_estimates():
    """The profiler's figure has the grid in it, and is 0 above 48 kB of shared memory a kernel."""
    with gzip.open(path_of("flash_eager.trace"), "rt") as file:
        events = json.load(file)["traceEvents"]
    compared = {}
    for args in (event["args"] for event in events if event.get("cat") == "kernel"):
        shared_bytes, registers = args["shared memory"], args["registers per thread"]
        if shared_bytes > 48 << 10:
            continue
        threads, blocks = int(np.prod(args["block"])), int(np.prod(args["grid"]))
        percent, _ = occupancy(H200, threads, registers, shared_bytes)
        warps = blocks / H200.sm_count * threads / WARP
        reached = min(percent, 100 * warps / MULTIPROCESSORS["9.0"].warps)
        given = args["est. achieved occupancy %"]
        assert abs(reached - given) <= 0.5, args
        compared[threads, registers, shared_bytes] = given
    assert len(compared) > 20 and len(set(compared.values())) > 5


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared_bytes", "expected"),
    [
        ("9.0", 1024, 32, 0, (100.0, "warps")),
        ("9.0", 1024, 33, 0, (50.0, "registers")),  # 40 are given out: one block of 32 warps
        ("9.0", 384, 168, 213_000, (18.75, "registers")),  # 12 of 64 warps
        ("9.0", 128, 32, 100 << 10, (12.5, "shared memory")),  # two blocks, of 101 kB each
        ("9.0", 32, 16, 0, (50.0, "blocks")),  # 32 blocks of a warp
        ("7.5", 256, 64, 0, (100.0, "warps")),  # 32 warps
        ("8.6", 128, 32, 0, (100.0, "warps")),  # 48 warps
        ("8.9", 32, 16, 0, (50.0, "blocks")),  # 24 of 48
        ("9.0", 1024, 255, 0, (0.0, "registers")),  # could not have been launched
        ("1.0", 128, 32, 0, (None, None)),
        (None, 128, 32, 0, (None, None)),
        ("9.0", 128, -1, 0, (None, None)),
        ("9.0", 0, 32, 0, (None, None)),
    ],
)
def test_occupancy_by_hand(capability, threads, registers, shared_bytes, expected):
    gpu = Device(0, "a GPU", compute_capability=capability)
    assert occupancy(gpu, threads, registers, shared_bytes) == expected


def test_one_kernel_with_two_geometries_is_two_rows_and_copies_are_none():
    build = Builder()
    build.operation(0, 10, blocks=5)
    build.operation(20, 50, blocks=6)
    build.operation(60, 65, blocks=5)
    build.operation(70, 80, TO_DEVICE, kind=COPY)
    build.operation(90, 91, blocks=5, registers=-1, shared_bytes=-1)
    rows = launches(Analysis(build.trace()), H200)
    assert {row.name for row in rows} == {GEMM}
    assert [(row.blocks, row.count, row.total_ns, row.registers) for row in rows] == [
        (6, 1, 30, 32),
        (5, 2, 15, 32),
        (5, 1, 1, None),
    ]
    assert (rows[2].occupancy_percent, rows[2].limited_by) == (None, None)


def test_without_a_grid_there_is_no_geometry():
    build = Builder()
    build.operation(0, 10, blocks=-1, threads=-1)
    assert launches(Analysis(build.trace()), H200) is None


def test_rows_are_alike_if_all_columns_are_however_large():
    small, large = np.array([1, 1, 2, 1]), np.array([2**40, 2**40, 2**40, 7])
    assert group_numbers([small, large, large]).tolist() == [1, 1, 2, 0]
