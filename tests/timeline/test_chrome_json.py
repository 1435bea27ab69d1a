"""profiling.timeline.chrome_json: a trace of torch.profiler as columns."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiling.analysis.open_report import open_report
from profiling.timeline import chrome_events
from profiling.timeline.chrome_json import read, times
from profiling.timeline.trace import COPY, KERNEL
from tests.helpers.captures import event, small_trace, trace_of, write_trace


def read_trace(folder: Path, trace: dict):
    return read(write_trace(folder / "x.trace.json", trace))


def test_a_small_trace_event_by_event(tmp_path):
    trace = read_trace(tmp_path, small_trace())
    operations, calls = trace.operations, trace.calls
    assert [trace.names[name] for name in operations.name] == [
        "gemm<{lambda()#1}, {x}>",
        "late",
        "[CUDA memcpy Host-to-Device]",
        "[CUDA memset]",
    ]
    assert operations.call.tolist() == [0, 1, 2, -1]
    # that of the launch; of the one that no call launched, that of the others on its GPU
    assert operations.process.tolist() == [41, 41, 41, 41]
    assert (operations.end_ns - operations.start_ns).tolist() == [30250, 2000, 1000, 1000]
    assert operations.blocks.tolist() == [24, 24, -1, -1]
    assert operations.threads.tolist() == [64, 64, -1, -1]
    assert operations.registers.tolist() == [40, -1, -1, -1]
    assert operations.shared_bytes.tolist() == [1024, -1, -1, -1]
    assert operations.bytes.tolist() == [-1, -1, 64, 4]
    assert operations.pageable.tolist() == [False, False, True, False]
    assert [trace.names[name] for name in calls.name][1] == "cuLaunchKernelEx"
    assert [trace.names[name] for name in trace.ranges.name] == ["iteration 7"]
    assert [trace.names[name] for name in trace.operators.name] == ["aten::mm"]
    assert trace.ranges.thread[0] == calls.thread[0] == trace.operators.thread[0]
    assert trace.ranges.start_ns.tolist() == [4336715317583299]
    assert trace.allocations.bytes.tolist() == [512, -512]
    assert (trace.devices[0].sm_count, trace.devices[0].memory_bytes) == (132, 150109880320)
    assert trace.devices[0].compute_capability == "9.0"
    assert trace.schema_version == "1" and not trace.personal and trace.warnings == []


@pytest.mark.filterwarnings("error")
def test_a_duration_that_no_number_of_nanoseconds_is_leaves_its_event_out(tmp_path):
    trace = small_trace()
    trace["traceEvents"].append(event("kernel", "endless", 5, 1e308, device=0, stream=7))
    read_back = read_trace(tmp_path, trace)
    assert len(read_back.operations.start_ns) == 4
    assert read_back.warnings == ["left out 1 events with impossible times"]


def test_times_are_exact_to_the_nanosecond():
    rng = np.random.default_rng(0)
    expected = rng.integers(0, 8 * 10**15, 20_000)  # three months since the base of the clock
    texts = [f"{ns // 1000}.{ns % 1000:03}" for ns in expected.tolist()]
    events = [chrome_events.Event(ts=float(text), dur=1.001) for text in texts]
    found = times(events)
    assert np.array_equal(found["start_ns"], expected)
    assert (found["end_ns"] - found["start_ns"] == 1001).all()


@pytest.mark.parametrize("piece_bytes", [200, 400, 1500])
@pytest.mark.parametrize("indent", [None, 1])
def test_pieces_of_any_size_make_the_same_trace(tmp_path, monkeypatch, piece_bytes, indent):
    trace = small_trace()
    trace["traceEvents"][7]["name"] = 'a}, {"b": "}, {" in a name'
    trace["traceEvents"][8]["args"]["inner"] = [{"a": 1}, {"b": [{}, {"c": 2}]}]
    path = tmp_path / "x.json"
    path.write_text(json.dumps(trace, indent=indent))
    whole = read(path)
    monkeypatch.setattr(chrome_events, "PIECE_BYTES", piece_bytes)
    parts = read(path)
    assert len(list(chrome_events.pieces(path))) > 2
    assert sorted(parts.names) == sorted(whole.names)
    assert parts.operations.call.tolist() == whole.operations.call.tolist()
    assert parts.devices == whole.devices and parts.schema_version == whole.schema_version


def test_a_run_on_a_cpu_has_operators_alone(tmp_path):
    trace = small_trace() | {"deviceProperties": []}
    trace["traceEvents"] = [
        row for row in trace["traceEvents"] if row["cat" if "cat" in row else "ph"] == "cpu_op"
    ]
    read_back = read_trace(tmp_path, trace)
    assert read_back.operations is read_back.calls is read_back.ranges is None
    assert read_back.allocations is None and len(read_back.operators.start_ns) == 1


def test_memory_of_a_gpu_under_rocm_is_a_gpus(tmp_path):
    trace = small_trace()
    for row in trace["traceEvents"]:
        if row.get("args", {}).get("Device Type") == 1:
            row["args"]["Device Type"] = 6  # HIP
    assert read_trace(tmp_path, trace).allocations.bytes.tolist() == [512, -512]
    trace["traceEvents"] = [row for row in trace["traceEvents"] if row["name"] != "[memory]"]
    assert read_trace(tmp_path, trace).allocations is None


def test_args_of_other_events_may_mean_other_things(tmp_path):
    trace = small_trace()
    trace["traceEvents"].append(event("cpu_op", "triton_mm", 1, 2, grid="grid(4,)", stream="0x7"))
    assert "triton_mm" in read_trace(tmp_path, trace).names


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("traceName",), "/home/me/out/window-1.trace.json"),
        (("traceEvents", 0, "args", "name"), "/opt/me/bin/python3"),
        (("traceEvents", 2, "args"), {"kernel_file": "/tmp/torchinductor_me/ab/cd.py"}),
    ],
)
def test_what_is_personal_is_noticed(tmp_path, where, value):
    trace = small_trace()
    *path, last = where
    place = trace
    for key in path:
        place = place[key]
    place[last] = value
    assert read_trace(tmp_path, trace).personal


def test_events_that_end_before_they_begin_are_left_out_and_said(tmp_path):
    trace = small_trace()
    trace["traceEvents"][7]["dur"] = -3
    del trace["traceEvents"][8]["ts"]
    found = read_trace(tmp_path, trace)
    assert len(found.operations.start_ns) == 2 and "2 events" in found.warnings[0]


def test_a_real_trace():
    """Five iterations of what the nsys capture has twenty of; the log's kernels are its own."""
    trace, export = trace_of("flash_eager.trace"), trace_of("flash_eager")
    assert np.bincount(trace.operations.kind).tolist() == [5 * 376 + 6, 6, 5 * 28]
    assert np.bincount(export.operations.kind).tolist() == [20 * 376 + 22, 22, 20 * 28]
    assert (trace.operations.call >= 0).all()
    memory = [
        {t.names[i] for i in t.operations.name[t.operations.kind > 0]} for t in (trace, export)
    ]
    assert memory[0] == memory[1]  # both kinds of capture name them alike


def test_a_bare_list_of_events_is_a_trace(tmp_path):
    whole, bare = small_trace(), small_trace()["traceEvents"]
    (tmp_path / "bare").mkdir()
    found = read_trace(tmp_path / "bare", bare)
    assert len(found.operations.start_ns) == len(read_trace(tmp_path, whole).operations.start_ns)


def test_the_categories_of_old_pytorch_are_read(tmp_path):
    """PyTorch 1.8 and 1.9, whose threads are text and whose steps are operators."""
    old = {"cpu_op": "Operator", "cuda_runtime": "Runtime", "kernel": "Kernel"}
    events = [
        event("cuda_runtime", "cudaLaunchKernel", 1.0, 1.0, correlation=5),
        event("kernel", "gemm", 3.0, 1.0, correlation=5, device=0, stream=7),
        event("cpu_op", "aten::mm", 0.5, 2.0),
        event("cpu_op", "ProfilerStep#3", 0.0, 9.0),
        event("cpu_op", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0.1, 0.2),
    ]
    for each in events:
        each["cat"] = old[each["cat"]]
        each["tid"] = "23"
    trace = read_trace(tmp_path, {"traceEvents": events})
    assert [trace.names[name] for name in trace.operators.name] == ["aten::mm"]
    assert [trace.names[name][:9] for name in trace.ranges.name] == ["ProfilerS", "enumerate"]
    assert trace.operations.call.tolist() == [0]


def accelerated() -> dict[str, Any]:
    """A trace as Kineto writes it on Meta's accelerator 9."""
    device = {"pid": 9, "tid": 801}
    copy = event("mtia_ccp_events", "dma_request", 2, 3, direction="HOST_TO_DEVICE", size=64)
    product = event("mtia_ccp_events", "fc-dtype_Float", 10, 20, stream=4, correlation=3)
    marker = event("mtia_ccp_events", "event_wait", 0, 90, stream=4, correlation=3)
    waits = [
        event("mtia_runtime", "synchronizeStream", 12, 19, correlation=5, device=9),
        event("mtia_runtime", "synchronize", 12, 19, correlation=5, device=9) | device,
    ]
    return small_trace() | {
        "deviceProperties": [{"id": 9, "name": "ARTEMIS"}],
        "traceEvents": [
            event("user_annotation", "ProfilerStep#1", 0, 40),
            event("mtia_runtime", "runFunction - submit", 6, 3, correlation=3),
            event("mtia_runtime", "predictor_executor::run", 0, 40, correlation=6, device=9),
            *waits,
            *(row | device for row in (copy, product, marker)),
        ],
    }


def test_an_accelerator_of_meta_is_read_as_a_gpu(tmp_path):
    path = write_trace(tmp_path / "mtia.json", accelerated())
    found = read(path)
    operations, calls = found.operations, found.calls
    names = [found.names[name] for name in operations.name]
    assert names == ["[CUDA memcpy Host-to-Device]", "fc-dtype_Float"]
    assert operations.kind.tolist() == [COPY, KERNEL] and operations.bytes.tolist() == [64, -1]
    assert operations.device.tolist() == [9, 9] and operations.process.tolist() == [41, 41]
    assert operations.call.tolist() == [-1, 0]
    assert [found.names[name] for name in calls.name] == [
        *("runFunction - submit", "synchronizeStream")
    ]
    report = open_report(path).report
    assert report.gpu.busy_ms == pytest.approx(0.023) and report.family_ms == {"gemm": 0.02}
    assert report.capture.gpu.name == "ARTEMIS"


def annotated(**of_gpu: Any) -> list[dict[str, Any]]:
    """Four steps of two kernels each, launched 50 us ahead, of which the GPU's side alone is told.

    A second stream repeats the annotation over less time.
    """
    rows = []
    for step in range(4):
        at = 100.0 * step
        for i in range(2):
            number = 10 * step + i
            rows.append(event("kernel", "gemm", at + 50 + 20 * i, 10, correlation=number, **of_gpu))
            launch = event("cuda_runtime", "cudaLaunchKernel", at + 5 * i, 4, correlation=number)
            rows.append(launch)
        for stream, took in ((7, 30), (8, 5)):
            place = of_gpu | {"stream": stream}
            rows.append(
                event("gpu_user_annotation", f"ProfilerStep#{step}", at + 50, took, **place)
            )
    return rows


def test_a_range_of_which_the_gpus_side_alone_was_captured_is_where_its_launches_are(tmp_path):
    rows = annotated(device=0, stream=7)
    found = read_trace(tmp_path, small_trace() | {"traceEvents": rows})
    ranges = found.ranges
    assert [found.names[name] for name in ranges.name] == [f"ProfilerStep#{i}" for i in range(4)]
    assert (ranges.start_ns // 1000).tolist() == [0, 100, 200, 300]
    assert (ranges.end_ns // 1000).tolist() == [9, 109, 209, 309]
    assert set(ranges.process.tolist()) == {41}


def test_the_programs_own_ranges_go_before_the_gpus_side_of_them(tmp_path):
    own = [event("user_annotation", f"ProfilerStep#{i}", 100 * i, 90) for i in range(4)]
    rows = [*annotated(device=0, stream=7), *own]
    ranges = read_trace(tmp_path, small_trace() | {"traceEvents": rows}).ranges
    assert (ranges.end_ns // 1000).tolist() == [90, 190, 290, 390]


def test_without_calls_steps_and_phases_have_the_gpus_times(tmp_path):
    place = {"device": 0, "stream": 7}
    rows = [row for row in annotated(**place) if row["cat"] != "cuda_runtime"]
    for step in range(4):
        at = 100.0 * step
        rows.append(event("gpu_user_annotation", "forward", at + 50, 11, **place))
        rows.append(event("gpu_user_annotation", "backward", at + 70, 10, **place))
    path = write_trace(tmp_path / "gpu.json", small_trace() | {"traceEvents": rows})
    report = open_report(path).report
    assert (report.window.steps, report.window.step_name) == (4, "ProfilerStep")
    per_phase = {row.name: row.gpu_ms for row in report.phases}
    assert per_phase == {"forward": pytest.approx(0.04), "backward": pytest.approx(0.04)}
    assert report.attribution.coverage == 1
