"""Late ranks where gradients are exchanged by copies from GPU to GPU, in simulated trainings."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fleet.simulation import Fault, Fleet, cost_us
from profiling.shared.causes import BUSY_GPU_VERDICTS
from tests.helpers.fleet import one_clock, report_of, write_fleet

NEAR = 0.15  # of what removing the fault gives
FOUR = Fleet(ranks=4)
LAUNCHES = ["cudaLaunchKernelExC"]


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
