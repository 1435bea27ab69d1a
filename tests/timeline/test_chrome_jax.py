"""Chrome traces of JAX's profiler: the layout that it writes, with made-up events."""

import gzip
import json

import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.summary import summarize
from profiling.timeline.opening import open_capture
from profiling.timeline.trace import COPY, KERNEL, MEMSET

GPU_PID, HOST_PID, PYTHON, STREAM, MODULES = 1, 701, 2884157811, 13, 99
DETAILS = "regs:32 static_shared:16 dynamic_shared:1024 grid:8,2,1 block:128,1,1 occ_pct:100"
COPIED = "kind_src:pageable kind_dst:device size:65536 dest:0 async:1"


def named(what: str, name: str, pid: int, tid: int | None = None) -> dict:
    row = {"ph": "M", "pid": pid, "name": what, "args": {"name": name}}
    return row if tid is None else row | {"tid": tid}


def event(name: str, ts: float, dur: float, pid: int = HOST_PID, tid: int = PYTHON, **args) -> dict:
    row = {"ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": dur, "name": name}
    return row | ({"args": args} if args else {})


def on_gpu(name: str, ts: float, dur: float, number: int, **args) -> dict:
    args = {"correlation_id": str(number), "context_id": "$$1"} | args
    return event(name, ts, dur, GPU_PID, STREAM, **args)


def steps_of_jax(annotated: bool = True, gpu: bool = True) -> list[dict]:
    """Six steps of 1 ms: a copy of the batch, a product and an element-wise kernel."""
    events = [
        named("process_name", "/device:GPU:0", GPU_PID),
        named("thread_name", "Stream #13(Compute,MemcpyH2D)", GPU_PID, STREAM),
        named("thread_name", "XLA Modules", GPU_PID, MODULES),
    ]
    events = events if gpu else []
    events += [
        named("process_name", "/host:CPU", HOST_PID),
        named("thread_name", "python", HOST_PID, PYTHON),
    ]
    for step in range(6):
        at, number = 1000.0 * step, 10 * step
        if annotated:
            events.append(event("train", at, 990, step_num=str(step)))
        events += [
            event("$train.py:7 main", at + 1, 980),
            event("PjitFunction(step)", at + 10, 300),
        ]
        if not gpu:
            events.append(event("dot.2", at + 20, 800, tid=5, hlo_op="dot.2", hlo_module="jit_f"))
            continue
        events += [
            event("cuMemcpyHtoDAsync_v2", at + 20, 10, correlation_id=str(number + 1)),
            event("gemm_fusion_dot_3", at + 40, 10, correlation_id=str(number + 2)),
            event("cuLaunchKernel", at + 60, 10, correlation_id=str(number + 3)),
            on_gpu("MemcpyH2D", at + 40, 20, number + 1, memcpy_details=COPIED),
            on_gpu("gemm_fusion_dot_3", at + 70, 850, number + 2, kernel_details=DETAILS),
            on_gpu("loop_add_fusion", at + 921, 50, number + 3, kernel_details=DETAILS),
            on_gpu("Memset", at + 972, 2, number + 9, Memset_details="value:0 num_bytes:4"),
            event("jit_step", at + 40, 800, GPU_PID, MODULES),
        ]
    return [*events, {}]


@pytest.fixture
def written(tmp_path):
    def write(events: list[dict]):
        path = tmp_path / "vm.trace.json.gz"
        with gzip.open(path, "wt") as file:
            json.dump({"displayTimeUnit": "ns", "traceEvents": events}, file)
        return open_capture(path)

    return write


def test_streams_are_the_gpu_s_work_and_derived_rows_are_not(written):
    trace = written(steps_of_jax())
    operations, names = trace.operations, trace.names
    assert (trace.kind, len(operations.name), trace.no_gpu) == ("jax", 24, False)
    assert operations.kind[:4].tolist() == [COPY, KERNEL, KERNEL, MEMSET]
    assert [names[n] for n in operations.name[:4]] == [
        "[CUDA memcpy Host-to-Device]", "gemm_fusion_dot_3", "loop_add_fusion", "[CUDA memset]",
    ]  # fmt: skip
    assert operations.bytes[0] == 65536 and operations.pageable[:2].tolist() == [True, False]
    grid = (operations.blocks, operations.threads, operations.registers, operations.shared_bytes)
    assert [int(column[1]) for column in grid] == [16, 128, 32, 1040]
    assert operations.device.tolist() == [0] * 24 and set(operations.stream.tolist()) == {STREAM}
    calls = [names[n] for n in trace.calls.name[operations.call[:3]].tolist()]
    assert calls == ["cuMemcpyHtoDAsync_v2", "cuLaunchKernel", "cuLaunchKernel"]
    assert operations.call[3] == -1  # its call was not captured


@pytest.mark.parametrize(("annotated", "name"), [(True, "train"), (False, "PjitFunction(step)")])
def test_a_step_is_what_the_program_marks_or_its_jitted_function(written, annotated, name):
    report = summarize(Analysis(written(steps_of_jax(annotated))))
    assert (report.window.step_name, report.window.steps) == (name, 6)
    assert report.window.step_ms.median == pytest.approx(1.0)
    assert report.family_ms == pytest.approx({"gemm": 0.85, "elementwise": 0.05})
    assert report.bottleneck.verdict == "gpu_compute"


def test_a_program_on_a_cpu_has_operators_and_no_gpu(written):
    report = summarize(Analysis(written(steps_of_jax(gpu=False))))
    assert report.on_cpu and report.bottleneck.verdict == "cpu_only"
    assert report.operators[0].name == "dot.2"
    assert report.operators[0].self_ns == 6 * 800_000


def test_damage_is_said_in_one_line(written):
    spoilt = steps_of_jax()
    spoilt[-5]["args"]["correlation_id"] = "forward"
    with pytest.raises(ValueError, match="an event has impossible values"):
        written(spoilt)


def test_an_xplane_is_refused_with_what_to_give_instead(tmp_path):
    path = tmp_path / "vm.xplane.pb"
    path.write_bytes(b"\x0a\x10\x08\x01/host:metadata")
    with pytest.raises(ValueError, match=r"xplane.*give the \.trace\.json\.gz"):
        open_capture(path)
