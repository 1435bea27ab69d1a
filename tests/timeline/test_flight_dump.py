"""Dumps of the flight recorder: torch's own, planted ones, and files that are no dumps."""

import os
import pickle
import re
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from profiling.shared.run_files import DUMP, EARLIER
from profiling.timeline import flight_dump
from profiling.timeline.flight_dump import Entry, find, read
from tests.helpers.flight_dumps import HOSTS, WORLD, PlantedRank, planted
from tests.helpers.forked import Forked

DUMP_OF_TORCH = getattr(torch._C._distributed_c10d, "_dump_fr_trace", None)


WRITE = (
    "import sys; from tests.timeline.test_flight_dump import *; folder = Path(sys.argv[1]); "
    "(folder / 'dump').write_bytes(of_torch(folder / 'store'))"
)


@pytest.fixture(scope="module", name="of_torch")
def from_a_fresh_process(tmp_path_factory) -> bytes:
    """The recorder is of a process, and holds what other tests have called there."""
    if DUMP_OF_TORCH is None:
        pytest.skip("before torch 2.8 gloo has no recorder")
    folder = tmp_path_factory.mktemp("store")
    forked = Forked(["-c", WRITE, str(folder)], dict(os.environ))
    output, _ = forked.communicate(timeout=60)
    assert forked.wait() == 0, output
    return (folder / "dump").read_bytes()


def of_torch(path: Path) -> bytes:
    """The dump that torch writes of three all-reduces of one rank."""
    store = dist.FileStore(str(path), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        for size in (3, 3, 5):
            dist.all_reduce(torch.ones(2, size, dtype=torch.float64))
        time.sleep(0.3)  # the entry is closed behind the call's back
        return DUMP_OF_TORCH(True, True, False)
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
def test_a_dump_of_torch(of_torch, tmp_path):
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(of_torch)
    dump = read(path, 0)
    calls = dump.groups[WORLD]
    assert calls.sequence.tolist()[-3:] == list(range(calls.finished_to - 2, calls.finished_to + 1))
    assert [o.input_sizes for o in calls.operation[-2:]] == [((2, 3),), ((2, 5),)]
    assert {(o.name, o.backend, o.dtypes) for o in calls.operation[-3:]} == {
        ("all_reduce", "gloo", ("Double", "Double"))
    }
    assert calls.stack[-1][0].startswith("timeline/test_flight_dump.py:")
    assert calls.stack[-1][0].endswith(" in of_torch")
    assert 0 <= dump.dumped_ns - int(calls.entered_ns[-1]) < 60e9
    assert not calls.timed_out.any() and dump.note is None


@pytest.mark.slow
def test_planted_dumps_have_the_keys_of_torch(of_torch):
    real, ours = pickle.loads(of_torch), planted(1)[0].content()
    assert real.keys() == ours.keys() and real["version"] == ours["version"]
    assert real["entries"][-1].keys() == ours["entries"][-1].keys()
    assert {f.encode_name for f in flight_dump.msgspec.structs.fields(Entry)} <= ours["entries"][
        0
    ].keys()


def test_of_a_coalesced_call_the_last_part_counts(tmp_path):
    rank = planted(2)[0]
    rank.call(8, "all_gather_into_tensor_coalesced", done=False)
    rank.call(8, "coalesced")
    rank.entries[-1]["collective_seq_id"] = rank.entries[-2]["collective_seq_id"]
    calls = read(rank.write(tmp_path, 9), 0).groups[WORLD]
    assert calls.sequence.tolist() == list(range(1, 9)) and calls.finished_to == 8
    assert calls.operation[-1].name == "coalesced"


def test_what_was_captured_into_a_graph_does_not_wait(tmp_path):
    """Such a call never completes, those behind it do."""
    rank = planted(2, steps=0)[0]
    rank.call(0, done=False)
    rank.call(1)
    assert read(rank.write(tmp_path, 9), 0).groups[WORLD].finished_to == 2


def test_the_trainers_dump_has_the_calls_of_both_recorders(tmp_path):
    rank = planted(2)[0]
    rank.call(8, "all_gather", group=HOSTS)
    rank.call(9, done=False)
    assert set(read(rank.write(tmp_path, 9), 0).groups) == {WORLD}  # torch's own
    dump = read(rank.write(tmp_path, 9, note=True), 0)
    calls, of_hosts = dump.groups[WORLD], dump.groups[HOSTS]
    assert dump.note and dump.whole and dump.members == {"0": (0, 1)}
    assert (calls.sequence.size, calls.finished_to) == (8, 7)
    assert of_hosts.sequence.tolist() == [1] and of_hosts.operation[0].backend == "gloo"


@pytest.mark.parametrize("last", ["gloo", "nccl"])
def test_an_error_came_out_of_the_last_call_of_either(tmp_path, last):
    """The GPU knows whether calls of NCCL are done."""
    rank = planted(2)[0]
    rank.call(8, "all_gather", group=HOSTS)
    rank.call(9 if last == "gloo" else 11)
    rank.call(10, "all_gather", group=HOSTS)
    groups = read(rank.write(tmp_path, 12, error="RuntimeError", in_collective=True), 0).groups
    assert groups[WORLD].finished_to == 8 and not groups[WORLD].timed_out.any()
    assert groups[HOSTS].finished_to == (1 if last == "gloo" else 2)
    assert groups[HOSTS].timed_out.tolist() == [False, last == "gloo"]


def test_dumps_are_found_by_rank(tmp_path):
    folder = tmp_path / "out" / "profile"
    for rank in planted(11):
        rank.write(folder, 9)
    for name in ("flight-rank3.tmp", "flight-request", "window-0.json", f"{EARLIER}2"):
        (folder / name).write_text("")
    expected = {rank: folder / f"{DUMP}{rank}" for rank in range(11)}
    assert find([tmp_path / "out"]) == find([folder]) == find(list(expected.values())) == expected
    with pytest.raises(ValueError, match="both are from rank 0; give the dumps of one run only"):
        find([folder, folder / f"{DUMP}0"])
    with pytest.raises(ValueError, match="does not say which rank"):
        find([folder / "window-0.json"])
    with pytest.raises(
        ValueError, match="no dump of a flight recorder .* in this folder or in its profile/"
    ):
        find([tmp_path])


def test_dumps_of_before_a_resume_are_found_where_there_are_no_others(tmp_path):
    PlantedRank(0, 2).write(tmp_path / "profile", 9).rename(tmp_path / "profile" / f"{EARLIER}0")
    assert find([tmp_path]) == {0: tmp_path / "profile" / f"{EARLIER}0"}
    new = PlantedRank(0, 2).write(tmp_path / "profile", 9)
    assert find([tmp_path]) == {0: new}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"SQLite format 3\0",
        b'{"version": "2.10", "entries": []}',
        pickle.dumps([1, 2], protocol=2),
        pickle.dumps({"version": "2.10", "entries": [{"record_id": "1"}]}, protocol=2),
        pickle.dumps({"version": "2.10"}, protocol=2) + b'{"rank": 0}',
    ],
)
def test_other_files_are_refused_in_a_line(tmp_path, content):
    path = tmp_path / f"{DUMP}0"
    path.write_bytes(content)
    with pytest.raises(
        ValueError, match=f"^{re.escape(str(path))}: not a dump of a flight .*"
    ) as error:
        read(path, 0)
    assert "\n" not in str(error.value)


def test_a_huge_file_is_not_read(tmp_path):
    path: Path = tmp_path / f"{DUMP}0"
    with path.open("wb") as file:
        os.truncate(file.fileno(), 2**40)
    with pytest.raises(ValueError, match="1,099,512 MB are too much for a dump; the limit is 67"):
        read(path, 0)
