"""profiling.timeline.chrome_json: a trace of torch.profiler as columns."""

import json
from pathlib import Path

import numpy as np
import pytest

from profiling.timeline import chrome_events
from profiling.timeline.chrome_json import read, times
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
    assert read_back.warnings == ["left out 1 events, their times are impossible"]


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
