"""benchmarks.repeat_snapshot: its result reads like one long history."""

import pickle

import pytest

from benchmarks.repeat_snapshot import RepeatConfig, main
from profiling.analysis.memory.analysis import memory_report
from tests.helpers.memory_snapshots import Training, pickled


def test_a_history_is_repeated(tmp_path):
    source, out = tmp_path / "one.pickle", tmp_path / "long.pickle"
    source.write_bytes(pickled(Training(cpp=True).make().run(2).snapshot()))
    main(RepeatConfig(snapshot=str(source), out=str(out), megabytes=1))
    assert 1_000_000 <= out.stat().st_size < 1_100_000
    report = memory_report([out])
    assert report.curve.allocated_bytes[-1] == 0
    (trace,) = pickle.loads(out.read_bytes())["device_traces"]  # Python reads it, too
    assert len(trace) == report.events
    assert {event["action"] for event in trace} == {"alloc", "free_requested", "free_completed"}


def test_a_snapshot_without_anything_to_repeat(tmp_path):
    source = tmp_path / "one.pickle"
    source.write_bytes(pickled(Training().make().snapshot()))
    with pytest.raises(ValueError, match="nothing in its history is allocated and freed"):
        main(RepeatConfig(snapshot=str(source), out=str(tmp_path / "x"), megabytes=1))
