"""profiling.report.perfetto: a Chrome trace by the rules of ui.perfetto.dev, to the nanosecond."""

import io
import json
from collections import defaultdict
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

from profiling.analysis.analysis import Analysis
from profiling.report.perfetto import chrome_trace
from profiling.report.perfetto.chrome_trace import disjoint_lanes, nested_lanes
from profiling.timeline.trace import ANY_THREAD, KERNEL, CounterSamples
from tests.helpers.captures import trace_of


def exported(trace) -> list[dict]:
    out = io.StringIO()
    count = chrome_trace.write(trace, Analysis(trace).owning_phase, out)
    events = json.loads(out.getvalue(), parse_float=Decimal)["traceEvents"]
    assert len(events) == count
    return events


@pytest.fixture(scope="module", params=["slow_eager", "flash_compile", "flash_eager.trace"])
def trace_and_events(request):
    trace = trace_of(request.param)
    return trace, exported(trace)


def slices(events, *categories):
    return [e for e in events if e["ph"] == "X" and (not categories or e["cat"] in categories)]


def ns(microseconds) -> int:
    value = Decimal(microseconds) * 1000
    assert value == int(value), "finer than a nanosecond"
    return int(value)


@pytest.mark.slow
def test_every_event_has_what_the_format_asks_for(trace_and_events):
    _, events = trace_and_events
    assert {e["ph"] for e in events} >= {"M", "X", "s", "f"}
    for event in events:
        assert {"ph", "pid", "tid", "ts", "name"} <= set(event)
        assert isinstance(event["pid"], int) and 0 <= event["pid"] < 2**31
        assert isinstance(event["tid"], int) and 0 <= event["tid"] < 2**31
        if event["ph"] == "X":
            assert event["dur"] >= 0 and event["ts"] >= 0


def test_nothing_is_lost_and_times_keep_their_nanoseconds(trace_and_events):
    trace, events = trace_and_events
    operations = trace.operations
    origin = trace.first_ns
    gpu = slices(events, "kernel", "copy", "memset", "graph")
    assert len(gpu) == len(operations.start_ns)
    told = sorted((ns(e["ts"]) + origin, ns(e["dur"])) for e in gpu)
    took = operations.end_ns - operations.start_ns
    assert told == sorted(zip(operations.start_ns.tolist(), took.tolist(), strict=True))
    assert len(slices(events, "cuda")) == len(trace.calls.start_ns)
    assert len(slices(events, "range")) == len(trace.ranges.start_ns)


def test_slices_of_a_track_are_apart_or_nested(trace_and_events):
    _, events = trace_and_events
    tracks = defaultdict(list)
    for event in slices(events):
        start = ns(event["ts"])
        tracks[event["pid"], event["tid"]].append((start, -(start + ns(event["dur"]))))
    assert len(tracks) >= 2
    for track in tracks.values():
        ends: list[int] = []
        for start, minus_end in sorted(track):
            while ends and ends[-1] <= start:
                ends.pop()
            assert not ends or -minus_end <= ends[-1]
            ends.append(-minus_end)


def test_every_track_and_process_has_a_name(trace_and_events):
    _, events = trace_and_events
    threads = {(e["pid"], e["tid"]): e for e in events if e["name"] == "thread_name"}
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert {(e["pid"], e["tid"]) for e in slices(events)} <= set(threads)
    assert {e["pid"] for e in slices(events)} <= set(processes)
    assert any("NVIDIA H200" in name for name in processes.values())
    assert any(e["args"]["name"].startswith("stream ") for e in threads.values())


def test_each_arrow_leads_from_a_call_to_what_it_launched(trace_and_events):
    trace, events = trace_and_events
    begins = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert set(begins) == set(ends)
    assert len(begins) == int((trace.operations.call >= 0).sum()) > 0
    calls = {(e["pid"], e["tid"], e["ts"]) for e in slices(events, "cuda")}
    gpu = {(e["pid"], e["tid"], e["ts"]) for e in slices(events, "kernel", "copy", "memset")}
    for number, begin in begins.items():
        assert (begin["pid"], begin["tid"], begin["ts"]) in calls
        end = ends[number]
        assert (end["pid"], end["tid"], end["ts"]) in gpu and end["bp"] == "e"
        assert end["ts"] >= begin["ts"] - 10_000  # clocks of host and GPU may differ a little


def test_kernels_tell_family_phase_and_grid(trace_and_events):
    trace, events = trace_and_events
    kernels = slices(events, "kernel")
    assert len(kernels) == int((trace.operations.kind == KERNEL).sum())
    assert {"gemm", "norm"} <= {k["args"]["family"] for k in kernels}
    assert {"forward", "backward", "optimizer"} <= {k["args"].get("phase") for k in kernels}
    assert all(k["args"]["blocks"] >= 1 for k in kernels)
    assert {k["args"]["name"] for k in kernels} <= set(trace.names)


def test_no_folder_and_nothing_of_the_machine_is_in_it():
    trace = trace_of("flash_compile")
    name = int(trace.ranges.name[0])
    names = list(trace.names)
    names[name] = "load /home/me/secret/data.bin"
    text = json.dumps(exported_text(replace(trace, names=names)))
    assert "/home" not in text and "secret" not in text and "load data.bin" in text
    assert str(trace.file.parent) not in text


def exported_text(trace) -> str:
    out = io.StringIO()
    chrome_trace.write(trace, Analysis(trace).owning_phase, out)
    return out.getvalue()


def test_counters_become_tracks_of_their_gpu():
    trace = trace_of("slow_eager")
    times = trace.operations.start_ns[:3]
    metric = CounterSamples("SMs Active", 0, times, np.array([1.5, 50.0, 99.25]))
    events = exported(replace(trace, counters=[metric]))
    counters = [e for e in events if e["ph"] == "C"]
    assert [float(e["args"]["value"]) for e in counters] == [1.5, 50.0, 99.25]
    assert {e["pid"] for e in counters} == {e["pid"] for e in slices(events, "kernel")}
    assert [ns(e["ts"]) + trace.first_ns for e in counters] == times.tolist()


def test_ranges_that_no_thread_owns_are_asynchronous():
    trace = trace_of("flash_compile")
    ranges = replace(trace.ranges, thread=np.full_like(trace.ranges.thread, ANY_THREAD))
    events = exported(replace(trace, ranges=ranges))
    begun = {e["id"]: e for e in events if e["ph"] == "b"}
    ended = {e["id"]: e for e in events if e["ph"] == "e"}
    assert len(begun) == len(ranges.start_ns) and set(begun) == set(ended)
    assert all(ended[i]["ts"] >= begun[i]["ts"] for i in begun)
    assert not slices(events, "range")


def test_a_capture_without_gpu_or_ranges_is_still_a_trace():
    trace = replace(trace_of("flash_compile"), operations=None, ranges=None)
    events = exported(trace)
    assert len(slices(events, "cuda")) == len(trace.calls.start_ns)
    assert not [e for e in events if e["ph"] in "sf"]


def test_what_crosses_goes_to_a_row_of_its_own():
    starts, ends = [0, 1, 2, 4, 11], [10, 3, 12, 5, 13]
    assert nested_lanes(starts, ends) == [0, 0, 1, 0, 0]
    overlapping = np.array([0, 5, 9, 10]), np.array([10, 12, 11, 15])
    assert disjoint_lanes(*overlapping) == [0, 1, 2, 0]
    assert disjoint_lanes(np.array([0, 5]), np.array([5, 6])) == [0, 0]
