"""validation.peers and peer_words, without any of the tools."""

import json
from dataclasses import replace

import pytest

from profiling.shared.json_records import to_json
from validation import peers
from validation.framework_programs.program import Program
from validation.judged import Judged
from validation.peer_words import (
    Finding,
    Shares,
    critical_path,
    first_finding,
    grade_answer,
    largest_share,
    worst_pattern,
)

OURS = Judged(
    "plain_gridworld", "PyTorch", "cpu", False, True, "nsys", None, "cpu", "right", 10.0, 6.0, 5.0,
    4.0, 1, 0.5, 1.0, None,
)  # fmt: skip
STARVED = Program("plain", "a", "data", "launch")
BYTES = Program("plain", "b", "gpu_memory", "gpu_compute")
IDLE = Finding("GPU Idle Summary (80% of profile)", "Total: 80.0ms", "idle")
QUALITY = Finding("Profiler overhead is elevated", "", "profile_quality", "warning")


def gap(call: str = "") -> Finding:
    return Finding("GPU Idle Gap (9.00ms)", f"Stream 7: 9.00ms idle{call}", "idle")


@pytest.mark.parametrize(
    ("findings", "program", "grade"),
    [
        ([QUALITY, IDLE, gap()], STARVED, "right"),  # no call: data or work of the CPU
        ([IDLE, gap(" — CPU: cudaLaunchKernel (8.0ms)")], STARVED, "debatable"),
        ([IDLE, gap(" — CPU: cudaStreamSynchronize (8.0ms)")], STARVED, "wrong"),
        ([IDLE], STARVED, "vague"),
        ([IDLE], BYTES, "wrong"),
        ([Finding("Kernel hotspot: sgemm (60%)", "Kernel 'sgemm' is 60%")], BYTES, "debatable"),
        ([Finding("Critical path is gpu-compute-bound")], BYTES, "vague"),
        ([QUALITY], BYTES, "none"),
    ],
)
def test_the_first_finding_about_the_program_counts(findings, program, grade):
    assert grade_answer(first_finding(findings), program) == grade


def test_the_most_severe_pattern_counts():
    small = Finding(pattern="Small Kernel Overhead", severity="info")
    bubbles = Finding(
        pattern="GPU Bubbles (Pipeline Stalls)",
        severity="warning",
        recommendation="CPU is not feeding GPU fast enough.",
    )
    assert grade_answer(worst_pattern([small, bubbles]), STARVED) == "right"
    assert grade_answer(worst_pattern([small]), STARVED) == "debatable"
    assert worst_pattern([Finding(pattern="No Known Anti-Patterns Detected")]) is None


def test_shares_and_bounds_name_a_side_or_what_they_can():
    waits = largest_share(Shares(compute=1, copies=1, idle=8))
    assert waits.said == "idle 80 %, waits for the host"
    assert [grade_answer(waits, p) for p in (STARVED, BYTES)] == ["vague", "wrong"]
    launches = largest_share(Shares(compute=1, copies=1, idle=8, launches=5))
    assert grade_answer(launches, STARVED) == "debatable"
    kernel = largest_share(Shares(compute=8, copies=1, idle=1, kernel="vectorized_elementwise"))
    assert grade_answer(kernel, BYTES) == "right"
    assert grade_answer(critical_path("cpu-bound"), STARVED) == "vague"
    assert critical_path("mixed") is None


def test_nsys_ai_is_asked_once_and_counted_beside_our_verdicts(tmp_path, capsys):
    small = replace(OURS, program="plain_blocks", least_share=0.5)  # not counted
    (tmp_path / "results.json").write_text(to_json([OURS, small]))
    said = {"findings": [{"label": "CPU sync blocks 9% of wall time", "note": "", "id": 1}]}
    program = tmp_path / "nsys-ai"
    program.write_text(f"#!/bin/sh\n/bin/cat <<'END'\nno cache\n{json.dumps(said)}\nEND\n")
    program.chmod(0o755)
    config = peers.PeersConfig(out=str(tmp_path), nsys_ai=str(program))
    peers.main(config)
    lines = capsys.readouterr().out.splitlines()
    assert (
        "| plain_gridworld | cpu | cpu: right | CPU sync blocks 9% of wall time: wrong" in lines[3]
    )
    assert "| ours, nsys | 1 | 0 | 0 | 0 | 0 | 0 |" in lines
    assert "| nsys-ai critical_path | 0 | 0 | 0 | 0 | 1 | 0 |" in lines
    program.write_text("#!/bin/sh\nexit 1\n")
    peers.main(config)
    assert capsys.readouterr().out.splitlines() == lines


def test_results_are_asked_for_first(tmp_path):
    with pytest.raises(ValueError, match="has no results.json"):
        peers.main(peers.PeersConfig(out=str(tmp_path)))


@pytest.mark.parametrize("series", [6, 8])
def test_results_are_of_the_series(tmp_path, series):
    (tmp_path / "results.json").write_text(to_json([replace(OURS, program="plain_replay")]))
    peers.main(peers.PeersConfig(series=7, out=str(tmp_path)))
    with pytest.raises(ValueError, match=f"series={series}: out=.* has programs of another"):
        peers.main(peers.PeersConfig(series=series, out=str(tmp_path)))
