"""Runs without a GPU: verdict, evidence and advice, and what their report leaves out."""

import re
from dataclasses import replace

import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.difference.compared import compared_capture
from profiling.analysis.difference.comparison import compare
from profiling.analysis.records import Report
from profiling.analysis.summary import summarize
from profiling.report.comparison import tables
from profiling.report.document import Chart
from profiling.report.renderers.page import page
from profiling.report.single import step_charts
from profiling.report.single.document import report_document
from profiling.report.single.verdict_line import verdict_line
from profiling.shared.manifest import AttentionFacts, Manifest, ProcessUse
from profiling.timeline.opening import open_capture
from tests.helpers.captures import event, write_trace
from tests.helpers.reports import MANIFEST

STEPS, STEP_US = 6, 10_000
CPU_MANIFEST = replace(
    MANIFEST,
    device="cpu",
    config=MANIFEST.config | {"device": "cpu", "dropout": 0.0, "compile": False},
    environment={"cpu_cores": 8},
    process=ProcessUse(cores_used=3.04, compute_threads=2, memory_bytes=445_000_000),
)


def trace_of_a_cpu(**top) -> dict:
    """Steps of 10 ms: 3 forward, 6 backward, 0.9 optimizer; 7 of them in operators."""
    events = []
    for number in range(STEPS):
        at = 1000.0 + number * STEP_US
        events += [
            event("user_annotation", f"iteration {number}", at, STEP_US),
            event("user_annotation", "forward", at, 3000),
            event("cpu_op", "aten::gelu", at + 100, 2000),
            event("user_annotation", "backward", at + 3000, 6000),
            event("cpu_op", "aten::linear", at + 3100, 5000),
            event("cpu_op", "aten::mm", at + 3200, 4500),
            event("user_annotation", "optimizer", at + 9000, 900),
        ]
    return {"schemaVersion": 1, "traceEvents": events} | top


@pytest.fixture
def reported(tmp_path):
    def report(manifest: Manifest | None = CPU_MANIFEST, **top) -> Report:
        path = write_trace(tmp_path / "x.trace.json", trace_of_a_cpu(**top))
        return summarize(Analysis(open_capture(path)), manifest)

    return report


def bar_of(report: Report) -> list[tuple[str, float, str]] | None:
    """(word, ms, colour) of each slice of the bar on a page's first screen."""
    charts = [block for block in report_document(report).verdict if isinstance(block, Chart)]
    if not charts:
        return None
    traces = charts[0].figure["data"]
    return [(t["name"], t["x"][0], t["marker"]["color"]) for t in traces]


def test_the_bar_of_a_step_is_its_phases_and_what_is_outside_them(reported):
    report = reported()
    bar = bar_of(report)
    assert [(word, pytest.approx(ms)) for word, ms, _ in bar] == [
        *(("forward", 3.0), ("backward", 6.0), ("optimizer", 0.9), ("outside the phases", 0.1)),
    ]
    assert "split by what the CPU did" in page(report_document(report))
    chart = step_charts.phases(report)  # the chart beside the table has the bar's colours
    (host,) = chart["data"]
    assert dict(zip(host["y"], host["marker"]["color"], strict=True)) == {
        word: shade for word, _, shade in bar[:-1]
    }
    assert bar[2][2] == "var(--optimizer)" and len({shade for *_, shade in bar}) == 4


def test_a_bar_without_phases_is_of_operators_and_threads_side_by_side_have_none(reported):
    report = reported()
    operators = replace(report, ranges=[])
    assert [word for word, *_ in bar_of(operators)] == [
        *("aten::mm", "aten::gelu", "aten::linear", "no operator"),
    ]
    many = [replace(report.ranges[0], name=f"<{i}>", host_ms=2.0 + i) for i in range(9)]
    (*named, others, rest) = bar_of(replace(report, ranges=many))
    assert len(named) == 7 and named[0][0] == "&lt;2&gt;"
    assert others[:2] == ("2 other phases", pytest.approx(5 / 6)) and rest[1] == pytest.approx(1)
    twice = [replace(row, host_ms=2 * row.host_ms) for row in report.ranges]
    assert bar_of(replace(report, ranges=twice)) is None
    assert bar_of(replace(report, ranges=[], operators=None)) is None


def test_it_is_bound_by_the_cpu_and_the_longest_phase_is_named(reported):
    report = reported()
    found = report.bottleneck
    assert found.verdict == "cpu_only" and report.on_cpu
    assert verdict_line(report).startswith("Bound by the CPU: the run has no GPU")
    assert verdict_line(report).endswith("backward takes 60 % of a step")
    assert found.evidence == [
        "The longest phase is backward: 6.00 of 10.00 ms per step (60 %); then forward 3.00 ms, "
        "optimizer 0.900 ms.",
        "Operators take 7.00 of 10.00 ms per step (70 %), Python and waits the rest.",
        "Operators with the most time per step: aten::mm 4.50 ms (45 %), aten::gelu 2.00 ms (20 "
        "%), aten::linear 0.500 ms (5 %).",
        "On average 3.0 of 8 cores were at work; PyTorch computes with 2 threads.",
        "The process used 445.0 MB of memory.",
    ]
    assert found.most_to_gain == "aten::mm, at most 4.50 of 10.00 ms per step (45 %)"
    assert found.cannot_tell == []


def test_a_program_that_uses_no_gpu_of_its_machine_is_bound_by_the_cpu(reported):
    gpu = {"id": 0, "name": "NVIDIA H100", "numSms": 132, "totalGlobalMem": 85 * 10**9}
    for device, verdict in (("cpu", "cpu_only"), ("NVIDIA H100", "unknown")):
        manifest = replace(CPU_MANIFEST, config={"command": ["train.py"]}, device=device)
        assert reported(manifest, deviceProperties=[gpu]).bottleneck.verdict == verdict


def test_one_thread_is_one(reported):
    one = replace(CPU_MANIFEST, process=replace(CPU_MANIFEST.process, compute_threads=1))
    assert any(line.endswith("with 1 thread.") for line in reported(one).bottleneck.evidence)


def test_the_advice_is_for_a_cpu_and_leaves_out_what_is_in_force(reported):
    advice = reported().bottleneck.next
    words = ("OMP_NUM_THREADS=8", "compile=true", "attention=flash", "batch_size")
    assert [word for word, line in zip(words, advice, strict=True) if word in line] == list(words)
    assert not re.search("GPU|nsys|cuda", " ".join(advice), re.I)
    config = CPU_MANIFEST.config | {"compile": True}
    settled = replace(
        CPU_MANIFEST,
        config=config,
        attention=AttentionFacts("auto", "flash", "operators"),
        process=ProcessUse(cores_used=3.0, compute_threads=4),
    )
    (larger,) = reported(settled).bottleneck.next  # four threads may be all the cores there are
    assert "batch_size" in larger
    with_dropout = replace(CPU_MANIFEST, config=config | {"dropout": 0.2})
    assert any("dropout=0" in line for line in reported(with_dropout).bottleneck.next)


def test_a_process_that_waits_is_told_as_such(reported):
    waits = replace(CPU_MANIFEST, process=ProcessUse(cores_used=0.4))
    evidence = reported(waits).bottleneck.evidence
    assert "On average 0.4 of 8 cores were at work." in evidence
    assert any("The process had to wait" in line for line in evidence)
    unknown = reported(replace(CPU_MANIFEST, process=None)).bottleneck.evidence
    assert unknown[-1] == "Operators were called on 1 thread."


def test_without_a_manifest_the_tool_has_to_have_looked_for_gpus(reported):
    """A trace of the host alone, of a program that may well use a GPU, tells of neither."""
    assert reported(None, deviceProperties=[]).bottleneck.verdict == "cpu_only"
    assert reported(None).bottleneck.verdict == "unknown"
    gpu = {"id": 0, "name": "NVIDIA H200"}
    assert reported(None, deviceProperties=[gpu]).bottleneck.verdict == "unknown"


def test_a_comparison_of_two_has_the_host_s_phases_and_no_column_of_a_gpu(reported):
    sides = [compared_capture(reported(), CPU_MANIFEST) for _ in range(2)]
    made = tables.phases(compare(*sides))
    told = [column.heading.partition(",")[0] for column in made.columns if column.brief]
    assert told == ["phase", "host", "host", "change"]
    backward = next(row for row in made.rows or [] if made.columns[0].value_of(row) == "backward")
    assert made.columns[1].value_of(backward) == pytest.approx(6.0)


def test_the_page_has_no_empty_section_and_nothing_of_gpus(reported):
    made = page(report_document(reported()))
    body = re.sub(r"<(script|style).*?</\1>", "", made, flags=re.S)
    titles = re.findall(r"<h2[^>]*>(.*?)</h2>", body, re.S)
    assert not {"Roofline", "Kernels", "CUDA API calls", "Copies and memsets"} & set(titles)
    assert "Operators" in titles and "Phases" in titles
    assert "Not known" not in body and "GPU busy" not in body and "aten::mm" in body
    assert "445.0 MB" in body and "cores at work" in body
