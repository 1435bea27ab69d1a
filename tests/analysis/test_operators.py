"""profiling.analysis.gpu_time.operators: launches of each operator, and how fast it was."""

import json

import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.gpu_time.operators import operator_work
from profiling.analysis.summary import summarize
from profiling.report.renderers.markdown import markdown
from profiling.report.single.document import report_document
from profiling.timeline import operator_inputs
from profiling.timeline.chrome_json import read
from tests.helpers.captures import event, small_trace, trace_of, write_trace

HALF = "c10::BFloat16"
M, K, N = 4096, 1024, 2048
PLACE = {"device": 0, "stream": 7, "grid": [1, 1, 1], "block": [1, 1, 1]}


def operator(name, ts, dur, *dims, kind=HALF, values=None, thread=42):
    row = event("cpu_op", f"aten::{name}", ts, dur)
    types, values = [kind if each else "Scalar" for each in dims], values or [""] * len(dims)
    shaped = {"Input Dims": list(dims), "Input type": types, "Concrete Inputs": values}
    return row | {"tid": thread, "args": shaped if dims else {}}


def launch(number, ts, start, dur, name="gemm", thread=42):
    """A call and its kernel."""
    call = event("cuda_runtime", "cudaLaunchKernel", ts, 1, correlation=number)
    return [call | {"tid": thread}, event("kernel", name, start, dur, correlation=number, **PLACE)]


def work(folder, *events, device="NVIDIA H200"):
    top = small_trace() | {"traceEvents": list(events)}
    top["deviceProperties"][0]["name"] = device
    trace = read(write_trace(folder / "x.trace.json", top))
    return operator_work(Analysis(trace), next(iter(trace.devices), None))


def linear(at=0.0, kind=HALF):
    """linear, the addmm in it, and a kernel before and behind the addmm."""
    return [
        operator("linear", at, 40, [M, K], [N, K], [N], kind=kind),
        *launch(1, at + 1, 100, 7, "copy"),
        operator("addmm", at + 10, 20, [N], [M, K], [K, N], [], [], kind=kind),
        operator("empty", at + 11, 2, [M, N]),
        *launch(2, at + 12, 110, 50),
        *launch(3, at + 20, 160, 10, "reduce"),
        *launch(4, at + 35, 180, 7, "copy"),
    ]


def test_the_innermost_operator_has_what_was_launched_in_it(tmp_path):
    (row,) = work(tmp_path, *linear())
    flops, moved = 2 * M * N * K + M * N, 2 * (N + M * K + K * N + M * N)
    assert (row.name, row.shapes) == ("aten::addmm", [[M, K], [K, N]])
    assert (row.dtype, row.count, row.gpu_ns) == ("bfloat16", 1, 60_000)
    assert (row.flops, row.bytes) == (flops, moved)
    assert row.tflops == pytest.approx(flops / 60e-6 / 1e12)
    assert row.gbps == pytest.approx(moved / 60e-6 / 1e9)
    assert row.flops_per_byte == flops / moved
    assert row.bound == "compute"
    assert row.percent_of_bound == pytest.approx(100 * row.tflops / 989.4)


def test_calls_of_one_shape_are_one_row_and_other_threads_are_apart(tmp_path):
    rows = work(
        tmp_path,
        operator("mm", 0, 10, [M, K], [K, N]),
        *launch(1, 1, 100, 20),
        operator("mm", 20, 10, [M, K], [K, N]),
        *launch(2, 21, 120, 40),
        operator("mm", 40, 10, [M, K], [K, N]),  # launches nothing
        operator("mm", 0, 60, [N, M], [M, K], thread=43),
        *launch(3, 5, 160, 70, thread=43),
        *launch(4, 25, 230, 5, thread=44),
    )
    found = [(row.shapes[0], row.count, row.gpu_ns) for row in rows]
    assert found == [([N, M], 1, 70_000), ([M, K], 2, 60_000)]
    assert rows[1].tflops == pytest.approx(2 * 2 * M * N * K / 60e-6 / 1e12)


@pytest.mark.parametrize(
    ("kernel", "dtype", "peak"),
    [
        ("ampere_sgemm_128x64_tn", "float32", 66.9),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n", "tf32", 494.7),
        ("cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4", "tf32", 494.7),
    ],
)
def test_float32_has_the_roof_of_the_units_that_its_kernel_uses(tmp_path, kernel, dtype, peak):
    shaped = operator("mm", 0, 10, [M, K], [K, N], kind="float")
    (row,) = work(tmp_path, shaped, *launch(1, 1, 100, 500, kernel))
    assert row.dtype == dtype and row.bound == "compute"
    assert row.percent_of_bound == pytest.approx(100 * row.tflops / peak)


@pytest.mark.parametrize(("device", "kind"), [("NVIDIA H20", HALF), ("NVIDIA H200", "double")])
def test_without_a_known_peak_there_is_no_share_of_it(tmp_path, device, kind):
    (row,) = work(tmp_path, *linear(kind=kind), device=device)
    assert row.tflops > 0 and row.bound is None and row.percent_of_bound is None


def test_without_shapes_there_is_nothing(tmp_path):
    assert work(tmp_path, operator("mm", 0, 10), *launch(1, 1, 100, 20)) is None
    assert operator_work(Analysis(trace_of("flash_eager")), None) is None


@pytest.mark.parametrize(
    "damage",
    [
        {"Input Dims": 5},
        {"Input Dims": {"a": [1]}},
        {"Input Dims": [["x", 2], [2, -3]]},
        {"Input Dims": [[1.5, 2], [2, 3]]},
        {"Input Dims": [[[4, 2], [2, 3]]]},
        {"Input Dims": [[10**30, 2], [2, 3]]},
        {"Input Dims": [[1] * 100_000 + [4, 2], [2, 3]]},
        {"Input type": None},
        {"Input type": [HALF]},
        {"Input type": [[HALF], {}]},
    ],
)
def test_damaged_inputs_are_no_row(tmp_path, damage):
    row = operator("mm", 0, 10, [4, 2], [2, 3])
    row["args"] |= damage
    assert work(tmp_path, row, *launch(1, 1, 100, 20)) == []


def test_operators_that_launch_nothing_are_no_row(tmp_path):
    assert work(tmp_path, operator("mm", 0, 10, [4, 2], [2, 3]), *launch(1, 20, 100, 20)) == []


def test_inputs_are_decoded_once_for_all_calls(tmp_path, monkeypatch):
    decoded = []
    monkeypatch.setattr(
        operator_inputs, "items", lambda text: decoded.append(text) or json.loads(text)
    )
    events = [operator("mm", 20 * i, 10, [4, 2], [2, 3]) for i in range(50)]
    work(tmp_path, *events, *launch(1, 1, 100, 20))
    assert len(decoded) == 3


def test_it_is_in_the_report_and_its_text(tmp_path):
    top = small_trace() | {"traceEvents": linear()}
    report = summarize(Analysis(read(write_trace(tmp_path / "x.trace.json", top))))
    (row,) = report.operator_work
    assert row.name == "aten::addmm"
    text = markdown(report_document(report))
    assert "Operators by shape" in text and f"{M}x{K} · {K}x{N}" in text
