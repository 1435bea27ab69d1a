"""Sums of kernels, calls and copies: by definition, and as `nsys stats` prints them."""

import csv
import gzip
import sqlite3
import statistics
from pathlib import Path

import numpy as np
import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.gpu_work import sums
from profiling.analysis.sum_records import AllocationSum
from profiling.timeline.trace import Trace
from tests.helpers.captures import path_of, report_of, trace_of
from tests.helpers.programs import COPY, MEMSET, MS, TO_DEVICE, Builder
from tests.paths import CAPTURES


def export_of(capture: str) -> sqlite3.Connection:
    database = sqlite3.connect(":memory:")
    database.deserialize(gzip.decompress(path_of(capture).read_bytes()))
    return database


def test_statistics_are_those_of_the_standard_library():
    random = np.random.default_rng(0)
    name, duration = random.integers(0, 9, 500), random.integers(0, 10**6, 500)
    rows = sums.durations_by_name(name, duration)
    totals = [row[1] for _, row in rows]
    assert totals == sorted(totals, reverse=True) and len(rows) == 9
    for index, (count, total, average, middle, least, most, deviation) in rows:
        values = duration[name == index].tolist()
        assert (count, total) == (len(values), sum(values))
        assert (least, most) == (min(values), max(values))
        assert average == pytest.approx(statistics.fmean(values))
        assert middle == statistics.median(values)
        assert deviation == pytest.approx(statistics.stdev(values))


def test_durations_of_centuries_have_their_names(recwarn):
    """A damaged capture has such durations: name and duration do not fit into one integer."""
    name, century_ns = np.array([5, 3, 5]), 3 * 10**18
    rows = sums.durations_by_name(name, np.array([1, century_ns, 2]))
    assert [(name, row[:2]) for name, row in rows] == [(3, (1, century_ns)), (5, (2, 3))]


def test_a_single_row_has_no_deviation_and_no_rows_give_none():
    assert sums.durations_by_name(np.array([3]), np.array([7])) == [(3, (1, 7, 7, 7, 7, 7, 0))]
    assert sums.durations_by_name(np.empty(0, int), np.empty(0, int)) == []


def test_copies_and_memsets_apart_with_their_bytes():
    build = Builder()
    build.operation(0, 10, TO_DEVICE, kind=COPY, bytes=100, pageable=True)
    build.operation(20, 40, TO_DEVICE, kind=COPY, bytes=50)
    build.operation(50, 55, "[CUDA memset]", kind=MEMSET, bytes=8)
    build.operation(60, 70, "a_kernel")
    rows = sums.memops(build.trace())
    found = [(row.operation, row.total_ns, row.total_bytes, row.pageable) for row in rows]
    assert found == [(TO_DEVICE, 30, 150, 1), ("[CUDA memset]", 5, 8, 0)]


def test_allocations_of_the_steps_alone():
    build = Builder()
    build.range(0, 10, "iteration 0")
    build.range(10, 20, "iteration 1")
    build.operation(1, 9)
    assert sums.allocations(Analysis(build.trace())) is None
    build.allocations = [
        (-5, 1000, 7, 0),
        (1, 100, 7, 0),
        (2, 50, 7, 0),
        (3, -120, 7, 0),
        (4, 9, 8, 0),
    ]
    found = sums.allocations(Analysis(build.trace()))
    assert found == AllocationSum(count=2, allocated_bytes=150, freed_bytes=120, peak_bytes=150)


def test_self_time_of_operators_is_without_their_children():
    build = Builder()
    build.range(0, 1 * MS, "iteration 0")
    assert sums.operators(Analysis(build.trace())) is None
    build.operator(0, 100, "outer")
    build.operator(10, 40, "inner")
    build.operator(20, 30, "innermost")
    build.operator(50, 60, "inner")
    build.operator(10, 90, "inner", thread=99)  # of another thread: nobody's child
    rows = sums.operators(Analysis(build.trace()))
    assert {row.name: (row.count, row.total_ns, row.self_ns) for row in rows} == {
        "outer": (1, 100, 60),
        "inner": (3, 120, 110),
        "innermost": (1, 10, 10),
    }


def test_sizes_of_copies_are_those_of_the_export():
    database = export_of("slow_eager")
    query = "SELECT bytes FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = ?"
    rows = {row.operation: row for row in sums.memops(trace_of("slow_eager"))}
    kinds = dict(database.execute("SELECT label, id FROM ENUM_CUDA_MEMCPY_OPER").fetchall())
    names = [name for name in rows if name.startswith("[CUDA memcpy ")]
    assert len(names) > 1
    for name in names:
        kind = kinds[name.removeprefix("[CUDA memcpy ").removesuffix("]")]
        values = [size for (size,) in database.execute(query, (kind,))]
        row = rows[name]
        assert (row.min_bytes, row.max_bytes) == (min(values), max(values))
        assert row.total_bytes == sum(values)
        assert row.med_bytes == statistics.median(values)
        assert row.avg_bytes == pytest.approx(statistics.fmean(values))
    cleared = rows["[CUDA memset]"]
    assert cleared.med_bytes < cleared.avg_bytes < cleared.max_bytes  # most are a few bytes


def test_a_copy_without_a_size_leaves_the_sizes_unknown():
    build = Builder()
    build.operation(0, 10, TO_DEVICE, kind=COPY, bytes=100)
    build.operation(20, 40, TO_DEVICE, kind=COPY, bytes=-1)
    (row,) = sums.memops(build.trace())
    assert (row.count, row.total_bytes, row.avg_bytes, row.max_bytes) == (2, None, None, None)


def test_os_calls_by_name_with_their_share():
    build = Builder()
    assert sums.os_calls(build.trace()) is None
    build.call(0, 10, "poll")
    build.call(10, 40, "read", thread=99)
    build.call(50, 70, "poll")
    os_calls = build.trace().calls
    found = sums.os_calls(build.trace(os_calls=os_calls))
    assert [(r.name, r.count, r.total_ns, r.min_ns, r.max_ns, r.percent) for r in found] == [
        ("poll", 2, 30, 10, 20, 50.0),
        ("read", 1, 30, 30, 30, 50.0),
    ]


def test_single_ranges_are_those_of_the_export():
    """Ranges of the phases are as `nsys stats` has them in nvtx_sum."""
    database = export_of("flash_eager")
    query = (
        "SELECT end - start FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId "
        "WHERE COALESCE(text, value) = ? AND eventType = 59"
    )
    phases = report_of("flash_eager").phases
    assert len(phases) >= 4
    for row in phases:
        values = [ns / 1e6 for (ns,) in database.execute(query, (row.name,))]
        assert row.count == len(values) > 1
        assert (row.min_ms, row.max_ms) == (min(values), max(values))
        assert row.median_ms == pytest.approx(statistics.median(values), rel=1e-12)
        assert row.stddev_ms == pytest.approx(statistics.stdev(values))
        assert row.host_ms == pytest.approx(sum(values))


def test_durations_of_a_century_are_no_other_name():
    name, duration = np.array([300, 2, 300]), np.array([2**61, 5, 7])
    rows = sums.durations_by_name(name, duration)
    assert [(number, row[0], row[4], row[5]) for number, row in rows] == [
        (300, 2, 7, 2**61),
        (2, 1, 5, 5),
    ]


STOCK_COLUMNS = ("total_ns", "count", "avg_ns", "med_ns", "min_ns", "max_ns", "stddev_ns")
EXACT = ("total_ns", "count", "min_ns", "max_ns")  # the others are printed with one digit


def stock(prefix: Path, table: str) -> dict[str, list[float]]:
    """Name -> share and STOCK_COLUMNS, of what `nsys stats --report TABLE --format csv` printed."""
    with open(f"{prefix}_{table}.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    name = rows[0].index("Name") if "Name" in rows[0] else rows[0].index("Operation")
    found = {row[name]: [float(value) for value in row[:name]] for row in rows[1:]}
    assert len(found) == len(rows) - 1 > 0
    return found


def check_against_stock(trace: Trace, prefix: Path) -> None:
    tables = {
        "cuda_gpu_kern_sum": sums.kernels(Analysis(trace)),
        "cuda_api_sum": sums.calls(trace),
        "cuda_gpu_mem_time_sum": sums.memops(trace),
    }
    for table, records in tables.items():
        rows = [vars(record) for record in records]
        expected = stock(prefix, table)
        assert sorted(row.get("name", row.get("operation")) for row in rows) == sorted(expected)
        for row in rows:
            share, *values = expected[row.get("name", row.get("operation"))]
            assert row.get("percent", share) == pytest.approx(share, abs=0.051)
            for column, value in zip(STOCK_COLUMNS, values, strict=True):
                wanted = value if column in EXACT else pytest.approx(value, abs=0.051)
                assert row[column] == wanted, (table, column)


@pytest.mark.parametrize("capture", ["slow_eager", "flash_compile"])
def test_sums_equal_those_of_nsys_stats(capture):
    check_against_stock(trace_of(capture), CAPTURES / capture)
