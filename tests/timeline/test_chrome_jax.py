"""Chrome traces of JAX's profiler: the layout that it writes, with made-up events."""

import gzip
import json

import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.summary import summarize
from profiling.timeline.opening import open_capture
from profiling.timeline.trace import COPY, KERNEL, MEMSET
from validation.jax_events import GPU_PID, STREAM, event, on_gpu, steps_of_jax


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


def test_all_of_the_host_but_calls_of_cuda_is_counted(written):
    """A step, a frame and a jitted function each millisecond; XLA's modules are the GPU's."""
    events = written(steps_of_jax()).host_events
    us = [1000 * step + at for step in range(6) for at in (0, 1, 10)]
    assert (events.start_ns // 1000).tolist() == us and len(set(events.thread.tolist())) == 1
    frames = [event("$builtins len", at, 0.1) for at in (5500.5, 20.5)]
    with_frames = written([*steps_of_jax(), *frames]).host_events
    assert (with_frames.start_ns // 1000).tolist() == sorted([*us, 20, 5500])


@pytest.mark.parametrize(
    ("name", "verdict", "said"),
    [
        ("np.asarray(jax.Array)", "synchronization", "it reads a value from the GPU"),
        ("np.asarray(jax.Array) of 1 MB", "copies", "only copies ran, or the CPU was copying"),
        ("backend_compile_and_load", "cpu", "XLA compiles anew"),
        ("$api.py:2757 block_until_ready", "synchronization", "inside block_until_ready"),
        ("Build buffer allocations", "allocation", "Build buffer allocations"),
        ("PjitFunction(take)", "launch", "framework dispatch"),
    ],
)
def test_what_jax_does_between_steps_is_named(written, name, verdict, said):
    """The GPU works for 0.15 ms of each 1 ms; then a loss is fetched, or the step compiled."""
    events = steps_of_jax()
    for row in events:
        if row.get("ph") == "X" and row["pid"] == GPU_PID:
            if row["name"] == "gemm_fusion_dot_3":
                row["dur"] = 100.0
            elif row["name"] in ("loop_add_fusion", "Memset"):
                row["ts"] -= 750.0
    name, _, large = name.partition(" of ")
    copied = f"kind_src:device kind_dst:pinned size:{1_000_000 if large else 4} dest:0 async:1"
    for step in range(6):
        at, number = 1000.0 * step, 10 * step + 5
        events.append(event(name, at + 80, 850))
        if name == "backend_compile_and_load":  # as JAX calls it
            events.append(event("PjitFunction(step)", at + 80, 850))
        if name == "np.asarray(jax.Array)":
            call = event("cuMemcpyDtoHAsync_v2", at + 100, 10, tid=5, correlation_id=str(number))
            events += [call, on_gpu("MemcpyD2H", at + 230, 2, number, memcpy_details=copied)]
    found = summarize(Analysis(written(events))).bottleneck
    assert found.verdict == verdict
    assert said in " ".join(found.evidence)


@pytest.mark.parametrize(("callback_us", "verdict"), [(3000, "cpu"), (900, "launch")])
def test_a_jitted_function_that_calls_python_for_long_is_no_dispatch(written, callback_us, verdict):
    """JAX's own work around a callback takes less than 1 ms."""
    events = steps_of_jax()
    for row in events:
        if row.get("ph") == "X":
            late = row["name"] in ("cuLaunchKernel", "loop_add_fusion")
            row["ts"] = row["ts"] // 1000 * 5000 + row["ts"] % 1000 + (3500 if late else 0)
    for step in range(6):
        at = 5000.0 * step
        events.append(event("PjitFunction(step)", at + 310, 3300))
        events.append(event("$callback.py:815 _wrapped_callback", at + 400, callback_us))
    found = summarize(Analysis(written(events))).bottleneck
    assert found.verdict == verdict
    said = "_wrapped_callback: a compiled function calls Python" in " ".join(found.evidence)
    assert said == (verdict == "cpu")


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


def test_kernels_that_xla_records_into_a_graph_are_no_launches(written):
    events = steps_of_jax()
    recorded = [event(f"gemm_{n}", 20 + n, 0.5, correlation_id=str(900 + n)) for n in range(9)]
    before = len(written(events + recorded).calls.name)
    update = event("command_buffer::update", 19, 20, device="0")
    assert len(written([*events, *recorded, update]).calls.name) == before - 9
