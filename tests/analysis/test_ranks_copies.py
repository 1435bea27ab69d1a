"""Late ranks where gradients are exchanged by copies from GPU to GPU, in simulated trainings."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fleet.simulation import Fault, Fleet, cost_us
from profiling.shared.causes import BUSY_GPU_VERDICTS
from tests.helpers.fleet import analyse_files, one_clock, report_of, write_fleet

NEAR = 0.15  # of what removing the fault gives
FOUR = Fleet(ranks=4)
LAUNCHES = ["cudaLaunchKernelExC"]
FLAGS = 3  # copies of four bytes before an exchange, and as many behind it
FLAG_NS, LAUNCH_NS = 1_500, 200


def write_with_copies(
    fleet: Fleet, folder: Path, calls: bool, launches: bool = True, kernels: bool = False
) -> list[Path]:
    """Write a fleet whose ranks exchange gradients by copies, which begin once all could.

    Each exchange is two copies with a launch each. With `kernels`, the first of each step is left
    to NCCL's kernel.
    """
    files = write_fleet(fleet, folder, facts=one_clock(fleet.ranks))
    contents = [json.loads(file.read_text()) for file in files]
    traces = [content["traceEvents"] for content in contents]
    transfers = [[each for each in trace if each["name"].startswith("nccl")] for trace in traces]
    for number, same in enumerate(zip(*transfers, strict=True)):
        if kernels and number % fleet.buckets == 0:
            continue
        begin = max(copy["ts"] for copy in same)
        for copy, trace in zip(same, traces, strict=True):
            end = copy["ts"] + copy["dur"]
            copy |= {"cat": "gpu_memcpy", "name": "Memcpy PtoP (Device -> Device)"}
            copy |= {"ts": begin, "dur": (end - begin) / 2}
            copy["args"]["inDevice"] = copy["args"].pop("device")  # as Kineto says it of these
            trace += second_half(copy, trace)
    left_out = {*([] if calls else ["record_param_comms"]), *([] if launches else LAUNCHES)}
    for file, content in zip(files, contents, strict=True):
        kept = [event for event in content["traceEvents"] if event["name"] not in left_out]
        file.write_text(json.dumps(content | {"traceEvents": kept}))
    return files


def second_half(copy: dict[str, Any], trace: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A copy behind this one, as long, and its launch."""
    first = copy["args"]["correlation"]
    launch = next(
        each for each in trace if each["name"] in LAUNCHES and each["args"]["correlation"] == first
    )
    number = {"correlation": first + 10_000_000}
    return [
        copy | {"ts": copy["ts"] + copy["dur"], "args": copy["args"] | number},
        launch
        | {"ts": launch["ts"] + launch["dur"] / 2, "dur": launch["dur"] / 2}
        | {"args": launch["args"] | number},
    ]


def write_with_flags(fleet: Fleet, folder: Path) -> list[Path]:
    """Write a fleet as nsys does where NCCL copies: each exchange between flags for the others.

    The flags come from memory of the host, as a rank is ready. The exchange begins once all are.
    """
    files = write_fleet(fleet, folder, "nsys", facts=one_clock(fleet.ranks))
    databases = [sqlite3.connect(file) for file in files]
    nccl = "demangledName IN (SELECT id FROM StringIds WHERE value LIKE 'nccl%') ORDER BY start"
    kernels = [
        list(each.execute(f"SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE {nccl}"))
        for each in databases
    ]
    began_ns = [max(each[0] for each in same) for same in zip(*kernels, strict=True)]
    for database, mine in zip(databases, kernels, strict=True):
        with closing(database):
            rows = zip(mine, began_ns, strict=True)
            exchanges = [copies_of(row, number, ns) for number, (row, ns) in enumerate(rows)]
            put_copies(database, exchanges, [row[4] for row in mine])
    return files


def copies_of(kernel: tuple[int, ...], number: int, began_ns: int) -> list[tuple[int, ...]]:
    """Rows of MEMCPY for one exchange in place of NCCL's kernel, in the order of their launches."""
    start_ns, end_ns, device, stream, _, process, *_ = kernel
    behind_ns = end_ns - FLAGS * FLAG_NS
    before, behind = (
        [(ns + FLAG_NS * i, ns + FLAG_NS * i + FLAG_NS // 2) for i in range(FLAGS)]
        for ns in (start_ns, behind_ns)
    )
    data = (max(began_ns, before[-1][1]), behind_ns)
    first = 1_000_000 + 100 * number
    return [
        (*times, device, stream, first + i, process, *((1 << 20, 2) if times == data else (4, 0)))
        for i, times in enumerate([*before, data, *behind])
    ]


def put_copies(
    database: sqlite3.Connection, exchanges: list[list[tuple[int, ...]]], launches: list[int]
) -> None:
    """Put copies in place of the kernels of these launches, each exchange in a range of NCCL's."""
    database.executescript("""
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, deviceId INT, streamId INT,
            correlationId INT, globalPid INT, bytes INT, srcKind INT, copyKind INT, dstKind INT);
        ALTER TABLE NVTX_EVENTS ADD COLUMN domainId INT;
        INSERT INTO NVTX_EVENTS SELECT MIN(start), NULL, 75, 'NCCL', globalTid, 7 FROM NVTX_EVENTS;
        INSERT INTO StringIds VALUES (1000, 'cudaMemcpyAsync_v3020');
    """)
    for copies, launch in zip(exchanges, launches, strict=True):
        runtime = "FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE correlationId = ?"
        ((start_ns, thread),) = database.execute(f"SELECT start, globalTid {runtime}", [launch])
        database.execute(f"DELETE {runtime}", [launch])
        database.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE correlationId = ?", [launch])
        database.execute(
            "INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, 'ncclAllGather', ?, 7)",
            [start_ns, start_ns + LAUNCH_NS * len(copies), thread],
        )
        for i, copy in enumerate(copies):
            begin_ns = start_ns + LAUNCH_NS * i
            database.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, 1000, ?)",
                [begin_ns, begin_ns + LAUNCH_NS // 2, copy[4], thread],
            )
            database.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?, ?, ?, ?, 10, 2)",
                copy,
            )
    database.commit()


@pytest.mark.parametrize("kind", ["more_kernels", "slow_loader"])
def test_flags_of_nccl_belong_to_the_copies_between_them(tmp_path: Path, kind: str) -> None:
    fleet = replace(FOUR, fault=Fault(kind, ranks=(2,)))
    analysis = analyse_files(write_with_flags(fleet, tmp_path))
    assert len(analysis.costs.waits.matched.iteration) == fleet.steps * fleet.buckets
    found = analysis.report.straggler
    assert found is not None and found.rank == 2
    assert found.costs_ms_per_step == pytest.approx(cost_us(fleet) / 1e3, rel=NEAR)


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("calls", [True, False])
@pytest.mark.parametrize("kind", ["more_kernels", "slow_loader"])
def test_who_is_late_is_named_by_the_copies_of_the_others(
    tmp_path: Path, kind: str, calls: bool, kernels: bool
) -> None:
    fleet = replace(FOUR, fault=Fault(kind, ranks=(2,)))
    report = report_of(write_with_copies(fleet, tmp_path, calls, kernels=kernels))
    found = report.straggler
    assert report.verdict == "straggler" and found is not None and found.rank == 2
    assert found.because in (tuple(BUSY_GPU_VERDICTS) if kind == "more_kernels" else ("data",))
    assert found.costs_ms_per_step == pytest.approx(cost_us(fleet) / 1e3, rel=NEAR)


@pytest.mark.parametrize("kernels", [True, False])
def test_copies_without_a_fault_blame_nobody(tmp_path: Path, kernels: bool) -> None:
    report = report_of(write_with_copies(FOUR, tmp_path, calls=False, kernels=kernels))
    assert (report.verdict, report.straggler) == ("balanced", None)


def test_copies_whose_launches_are_unknown_make_no_claim_and_the_cure_is_named(
    tmp_path: Path,
) -> None:
    fleet = replace(FOUR, fault=Fault("more_kernels", ranks=(2,)))
    report = report_of(write_with_copies(fleet, tmp_path, calls=True, launches=False))
    assert (report.verdict, report.straggler) == ("unknown", None)
    assert "by copies from GPU to GPU" in report.evidence[0]
    assert "all_reduce=collective" in report.evidence[1]
    assert all(row.communication.exposed_ms > 0 for row in report.ranks)
