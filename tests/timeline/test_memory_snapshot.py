"""Memory snapshots of PyTorch become columns, and nothing in them is run."""

import os
import pickle
import random
from itertools import chain

import numpy as np
import pytest

from profiling.timeline.memory_snapshot import ACTIONS, in_folder, read
from profiling.timeline.snapshot_pickle import Columns, SnapshotReader
from tests.helpers.memory_snapshots import Allocator, Training, pickled, snapshot_of
from tests.helpers.planted_pickle import Planted

EVENT = {"action": "alloc", "addr": 0, "size": -5}
PARTS = {"roundup_power2_divisions": {"x": 4}}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "snapshot.pickle"


@pytest.fixture(scope="module")
def training():
    return Training(cpp=True).make().run(3)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_columns_have_what_python_reads(path, training, protocol):
    path.write_bytes(pickled(training.snapshot(), protocol))
    snapshot = read(path)
    (device,) = snapshot.devices
    (trace,) = pickle.loads(path.read_bytes())["device_traces"]
    events = device.events
    assert [ACTIONS[code] for code in events.action] == [event["action"] for event in trace]
    assert events.address.tolist() == [event["addr"] for event in trace]
    assert events.size.tolist() == [event["size"] for event in trace]
    assert events.time_us.tolist() == [event["time_us"] for event in trace]
    stacks = [[snapshot.frames[n] for n in snapshot.stacks[stack]] for stack in events.stack]
    of_event = [[(f["filename"], f["line"], f["name"]) for f in e["frames"]] for e in trace]
    assert stacks == of_event
    assert device.segments.size.sum() == device.blocks.size.sum()
    assert len(snapshot.annotations) == 6


def test_frames_and_context_that_python_writes_anew(path):
    """Strings of their own in each event, stacks that grow, and PyTorch 2.1, which has no times."""
    training = Training().make().run(2)
    events = training.allocator.events
    for number, event in enumerate(events):
        event["compile_context"] = f"graph {number % 3}"
        event["pool_id"] = (0, number % 2)
        event["frames"] = event.pop("frames")
    path.write_bytes(pickled(training.snapshot()))
    assert read(path).devices[0].events.size.tolist() == [event["size"] for event in events]
    for event in events:
        del event["time_us"], event["compile_context"], event["pool_id"]
    path.write_bytes(pickled(training.snapshot()))
    assert read(path).devices[0].events.time_us is None


def test_devices_are_told_apart(path):
    pair = [Training(Allocator(device=number)).make().run(number + 1) for number in (0, 2)]
    path.write_bytes(pickled(snapshot_of([training.allocator for training in pair])))
    devices = read(path).devices
    assert [device.device for device in devices] == [0, 2]
    for device, training in zip(devices, pair, strict=True):
        assert len(device.events.action) == len(training.allocator.events)


def test_nothing_in_a_file_is_run(path, training, monkeypatch):
    monkeypatch.chdir(path.parent)
    snapshot = training.snapshot()
    for place in (snapshot, snapshot["segments"][0], snapshot["device_traces"][0][9]):
        place["frames"] = Planted("touch ran")
        for protocol in range(2, 6):
            path.write_bytes(pickled(snapshot, protocol))
            with pytest.raises(ValueError, match=r"pickle of Python objects, such as a checkpoint"):
                read(path)
        del place["frames"]
    assert not (path.parent / "ran").exists()


def test_other_files_are_named(path):
    contents = {
        b"": "is empty, not a memory snapshot; call torch.cuda.memory._record_memory_history",
        b"PK\x03\x04....": "is a checkpoint or another zip file",
        b"step 1\n": "is not a pickle",
        pickled([1, 2]): "is a pickle, but no memory snapshot: it has no segments",
        pickled({"segments": [{"device": 0}]}): "address is None",
        pickled({"segments": [], "device_traces": [[1]]}): "no list of events",
        pickled({"segments": [{"address": 1, "blocks": [{"size": -1}]}]}): "no state",
        pickled({"segments": [], "external_annotations": 3}): "no memory snapshot: Expected",
        pickled({"segments": [], "allocator_settings": PARTS}): "no memory snapshot: Expected",
        pickled({"segments": [], "device_traces": [[EVENT | {"size": 1 << 62}]]}): "possible size",
        pickled({"segments": [], "device_traces": [[EVENT]]}): "possible size",
    }
    for content, said in contents.items():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=said) as error:
            read(path)
        assert str(error.value).startswith(f"{path}: ") and "\n" not in str(error.value)
    with pytest.raises(ValueError, match="is not a file"):
        read(path.parent)
    with pytest.raises(ValueError, match="no such file"):
        read(path.parent / "absent.pickle")


def test_a_damaged_snapshot_ends_in_one_line(path, training):
    whole = pickled(training.snapshot())
    generator = random.Random(0)
    cuts = (whole[:cut] for cut in range(1, len(whole), 997))
    damaged = (damage(whole, generator) for _ in range(200))
    refused = 0
    for content in chain(cuts, damaged):
        path.write_bytes(content)
        try:
            read(path)
        except ValueError as error:
            refused += 1
            assert str(error).startswith(f"{path}: ") and "\n" not in str(error)
    assert refused > 100


def test_a_small_file_cannot_stand_for_billions_of_blocks(path):
    frames = [{"filename": "a.py", "line": 1, "name": "f"}] * 1000
    block = {"size": 512, "address": 1, "state": "inactive", "frames": frames}
    segment = {"device": 0, "address": 1, "total_size": 1, "blocks": [block] * 1000}
    path.write_bytes(pickled({"segments": [segment] * 1000}))
    with pytest.raises(ValueError, match="more blocks than its size allows"):
        read(path)
    event = {"action": "alloc", "size": 512, "frames": frames}
    trace = [event | {"addr": at} for at in range(1000)]
    for traces in ([trace] * 1000, [[*trace, *trace]]):
        path.write_bytes(pickled({"segments": [], "device_traces": traces}))
        with pytest.raises(ValueError, match="more events than its size allows|no list of events"):
            read(path)


def test_a_long_stack_is_looked_at_once(path, monkeypatch):
    """Thousands of events may refer to one list of thousands of frames."""
    calls = []
    monkeypatch.setattr(Columns, "frame", lambda self, value: calls.append(value) or 0)
    frames = [{"filename": "a.py", "line": 1, "name": "f"}] * 1000
    events = [{"action": "alloc", "size": 512, "frames": frames, "addr": at} for at in range(100)]
    path.write_bytes(pickled({"segments": [], "device_traces": [events]}))
    read(path)
    assert len(calls) == 1000


def damage(content: bytes, generator: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(generator.randint(1, 4)):
        damaged[generator.randrange(len(damaged))] = generator.randrange(256)
    return bytes(damaged)


def test_equal_events_take_the_short_way(path):
    """Events of a known shape are read in runs of dozens and more."""
    training = Training().make().run(100)
    reader = SnapshotReader(pickled(training.snapshot()))
    value = reader.read()
    (trace,) = value["device_traces"]
    assert len(trace) < len(reader.columns.action) / 50
    assert np.asarray(reader.columns.size).sum() == sum(
        e["size"] for e in training.allocator.events
    )


def test_a_folder_has_the_newest_window_of_all_ranks(tmp_path):
    (tmp_path / "profile").mkdir()
    names = ["window-9.memory.pickle", "window-20-rank1.memory.pickle", "flight-rank0", "x.pickle"]
    for age, name in enumerate([*names, "window-20-rank0.memory.pickle"]):
        (tmp_path / "profile" / name).write_bytes(b"\x80")
        os.utime(tmp_path / "profile" / name, (age, age))
    found = [path.name for path in in_folder(tmp_path)]
    assert found == ["window-20-rank0.memory.pickle", "window-20-rank1.memory.pickle"]
    assert in_folder(tmp_path / "absent") == []
