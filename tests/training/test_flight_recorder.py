"""Flight recorder under torchrun: torch's variables, and dumps of runs that really hang."""

import json
import os
import subprocess
import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from profiling.shared.run_files import DUMP, EARLIER, REQUEST
from tests.helpers.flight_dumps import planted
from tests.helpers.ranks import TORCHRUN, ended_ranks
from tests.paths import PROJECT
from training.disk.previous_runs import make_way
from training.ranks import flight_recorder
from training.ranks.distributed import Ranks
from training.ranks.flight_recorder import (
    FILES,
    OF_OTHERS,
    FlightRecorder,
    dump_on_error,
    enable_recording,
    move_earlier_dumps,
    out_of_collective,
)

RECORDS_GLOO = hasattr(torch._C._distributed_c10d, OF_OTHERS)
CPU = torch.device("cpu")

# train.py, whose rank 1 does something else in the fourth iteration, behind two micro-steps of the
# warm-up; gloo's patience is 4 s
MISBEHAVES = """
import os, sys, time
from datetime import timedelta
import torch.distributed.distributed_c10d as c10d
c10d.default_pg_timeout = timedelta(seconds=4)
from configs import command_line
from training.ranks import flight_recorder
from training.step.step import Step
import train

if os.environ["RANK"] in {unasked}:
    flight_recorder.ANSWER_S = 0.5  # when it fails nobody is there to be asked

backward, calls = Step.backward, []

def misbehave(self, loss):
    calls.append(1)
    if len(calls) == 6 and os.environ["RANK"] == "1":
        {body}
    backward(self, loss)

Step.backward = misbehave
command_line.run(train.train)
"""


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("TORCH_")}


@pytest.fixture
def two_ranks(monkeypatch):
    for name in environment():
        monkeypatch.delenv(name)
    monkeypatch.setenv("WORLD_SIZE", "2")


def test_one_process_is_left_alone(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    before = environment()
    with enable_recording("out"):
        assert environment() == before


@pytest.mark.parametrize("new", [True, False])
def test_torchs_variables_are_set_for_the_run_alone(two_ranks, monkeypatch, tmp_path, new):
    """A torch from 2.8 on has names of its own, and warns of the old ones."""
    if RECORDS_GLOO is not new and new:
        pytest.skip("this torch is an old one")
    if not new:
        monkeypatch.setattr(flight_recorder, "OF_OTHERS", "no_such_name")
    monkeypatch.chdir(tmp_path)
    names = ("TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE")
    if not new:
        names = ("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    with enable_recording("out"):
        prefix = str(tmp_path / "out" / "profile" / "flight-rank")
        expected = ("2000", prefix, "1")
        assert environment() == dict(
            zip((*names, "TORCH_NCCL_DUMP_ON_TIMEOUT"), expected, strict=True)
        )
    assert environment() == {}


@pytest.mark.parametrize("names", [flight_recorder.ENTRIES, FILES])
@pytest.mark.parametrize("place", [0, 1])
def test_what_the_user_has_set_stays(two_ranks, monkeypatch, names, place):
    monkeypatch.setenv(names[place], "0")
    with enable_recording("out"):
        mine = {name: value for name, value in environment().items() if name in names}
        assert mine == {names[place]: "0"} and len(environment()) == 3
    assert environment() == {names[place]: "0"}


def test_dumps_of_the_run_before_are_set_aside(tmp_path, caplog):
    folder = tmp_path / "profile"
    for rank in planted(3):
        rank.write(folder, 9)
    (folder / REQUEST).touch()
    caplog.set_level("INFO", "training")
    move_earlier_dumps(tmp_path, resumed=True)
    assert sorted(path.name for path in folder.iterdir()) == [f"{EARLIER}{n}" for n in range(3)]
    assert f"of the previous run did last: python -m profiling hang {tmp_path}" in caplog.text


def test_a_run_that_is_moved_aside_takes_its_dumps_along(tmp_path, caplog):
    (tmp_path / "metrics.jsonl").touch()
    planted(2)[0].write(tmp_path / "profile", 9)
    caplog.set_level("INFO", "training")
    make_way(tmp_path, "all")
    assert (tmp_path / "previous-1" / "profile" / f"{DUMP}0").is_file()
    assert (
        f"each of its ranks did last: python -m profiling hang {tmp_path}/previous-1" in caplog.text
    )


def test_an_empty_folder_of_captures_is_no_evidence(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"run": {}}\n')
    flight_recorder.make_folder(tmp_path, Ranks(0, 2, CPU))
    make_way(tmp_path, "all")
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_leaves_no_dump(tmp_path):
    with pytest.raises(ValueError), dump_on_error(tmp_path, Ranks(1, 2, CPU), False):
        raise ValueError("batch_size=0: must be positive")
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_its_own_is_noted_and_waits_for_nobody(two_ranks, tmp_path, monkeypatch):
    monkeypatch.setattr(flight_recorder, "dump_bytes", lambda on_cuda: b"")
    with pytest.raises(IndexError) as error, dump_on_error(tmp_path, Ranks(1, 2, CPU), False):
        [][1]
    assert not out_of_collective(error.value) and not hasattr(error.value, "__notes__")
    (path,) = (tmp_path / "profile").iterdir()
    note = json.loads(path.read_bytes())
    assert note["error"] == "IndexError: list index out of range" and not note["in_collective"]
    assert path.name == f"{DUMP}1"
    assert note["stack"][0].startswith("training/test_flight_recorder.py:")


def test_a_rank_that_lost_another_says_so_in_a_line(two_ranks, tmp_path, monkeypatch):
    """The stack of a rank that is in the run is in the dump."""
    monkeypatch.setattr(flight_recorder, "dump_bytes", lambda on_cuda: b"")
    monkeypatch.setattr(flight_recorder, "ANSWER_S", 0.0)
    monkeypatch.setenv("RANK", "1")
    gone = dist.DistBackendError("[/gloo/pair.cc:553] Connection closed by peer\n[1.2.3.4]:5.")
    said = "train.py: rank 1: DistBackendError: Connection closed by peer [1.2.3.4]:5.; "
    with pytest.raises(SystemExit) as ended, enable_recording(str(tmp_path)):
        raise gone  # before the run has its folder: nothing may be written yet
    assert ended.value.code == f"{said}the last lines of another rank may say why"
    assert list(tmp_path.iterdir()) == []
    with (
        pytest.raises(SystemExit) as ended,
        enable_recording(str(tmp_path)),
        dump_on_error(tmp_path, Ranks(1, 2, CPU), False),
    ):
        raise gone
    assert ended.value.code == f"{said}what each rank did last: python -m profiling hang {tmp_path}"
    note = json.loads((tmp_path / "profile" / f"{DUMP}1").read_bytes())
    assert note["in_collective"] and "test_flight_recorder.py" in note["stack"][0]


def test_an_answer_to_a_rank_that_died_stays(two_ranks, tmp_path, monkeypatch):
    """This rank then enters the collective too late, and fails in it as well."""
    monkeypatch.setattr(flight_recorder, "dump_bytes", lambda on_cuda: b"dump")
    recorder = FlightRecorder(tmp_path, Ranks(1, 2, CPU))
    assert recorder.write(last_word=True)
    before = (tmp_path / "profile" / f"{DUMP}1").read_bytes()
    assert recorder.write(RuntimeError("Connection closed by peer"), failed=True)
    assert (tmp_path / "profile" / f"{DUMP}1").read_bytes() == before


def test_what_nccls_watchdog_wrote_stays_where_the_rank_comes_too_late(
    two_ranks, tmp_path, monkeypatch
):
    """The other was aborted; this one enters the all-reduce that it was missing from, and fails
    where it tells the other's host something."""
    monkeypatch.setattr(flight_recorder, "dump_bytes", lambda on_cuda: b"dump")
    path = tmp_path / "profile" / f"{DUMP}1"
    path.parent.mkdir()
    seconds = count()

    def write_at_another_time(content: bytes) -> None:
        path.write_bytes(content)
        os.utime(path, (next(seconds),) * 2)

    write_at_another_time(b"of an older run")
    recorder = FlightRecorder(tmp_path, Ranks(1, 2, torch.device("cuda", 1)))
    gone = RuntimeError("Connection closed by peer")
    assert recorder.write(gone, failed=True) and path.read_bytes().startswith(b"dump{")
    assert recorder.write(gone, failed=True) and path.read_bytes().startswith(b"dump{")
    write_at_another_time(b"of the watchdog")
    assert recorder.write(gone, failed=True) and path.read_bytes() == b"of the watchdog"
    assert recorder.write() and path.read_bytes().startswith(b"dump{")  # somebody asks
    write_at_another_time(b"of the watchdog")
    assert recorder.write(OSError("disk"), failed=False) and b"disk" in path.read_bytes()


def test_each_backend_has_a_recorder_of_its_own(monkeypatch):
    of_torch = SimpleNamespace(
        _dump_nccl_trace=lambda **_: b"nccl,", _dump_fr_trace=lambda **_: b"gloo,"
    )
    monkeypatch.setattr(flight_recorder, "torch_c10d", lambda: of_torch)
    assert flight_recorder.dump_bytes(on_cuda=True) == b"nccl,gloo,"
    assert flight_recorder.dump_bytes(on_cuda=False) == b"gloo,"
    del of_torch._dump_fr_trace  # before torch 2.8
    assert flight_recorder.dump_bytes(on_cuda=True) == b"nccl,"
    with pytest.raises(RuntimeError, match="this torch has no _dump_fr_trace"):
        flight_recorder.dump_bytes(on_cuda=False)


def test_a_torch_that_cannot_tell_costs_the_dump_alone(two_ranks, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(flight_recorder, "OF_OTHERS", "no_such_name")
    with pytest.raises(KeyError, match="mine"), dump_on_error(tmp_path, Ranks(1, 2, CPU), False):
        raise KeyError("mine")
    assert "rank 1: no flight recorder dump: this torch has no no_such_name" in caplog.text


def hang(out_dir: Path, *words: str) -> dict:
    command = [sys.executable, "-m", "profiling", "hang", str(out_dir), "--json", "-", *words]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=100)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not RECORDS_GLOO, reason="before torch 2.8 gloo has no recorder")
def test_a_run_that_hangs_says_where(command, start, tmp_path):
    """Rank 1 answers rank 0, whom gloo has given up on, from the midst of what it does instead."""
    dump = tmp_path / "out" / "profile" / f"{DUMP}1"
    body = f"while not os.path.exists({str(dump)!r}): time.sleep(0.1)"
    words = command(gradient_accumulation_steps=2, max_iters=20)[1:]
    script = tmp_path / "script.py"
    script.write_text(MISBEHAVES.format(body=body, unasked=["1"]))
    torchrun = [*TORCHRUN, "--standalone", "--nproc_per_node=2"]
    process = start([*torchrun, str(script), *words], PYTHONPATH=str(PROJECT))
    output = process.communicate(timeout=150)[0]
    assert process.returncode != 0
    out_dir = tmp_path / "out"
    assert f"what each rank did last: python -m profiling hang {out_dir}" in output
    record = hang(out_dir)
    (stuck,) = record["stuck"]
    assert record["answer"] == "hang" and stuck["why"] == "absent"
    assert (stuck["waiting"], stuck["absent"], stuck["no_dump"]) == ([0], [1], [])
    assert stuck["variants"][0]["call"]["stack"][0].startswith("ranks/all_reduce.py:")
    assert 4 <= stuck["waited_s"] < 8 and stuck["timeout_s"] == 4 and stuck["timed_out"]
    assert any(" in misbehave" in frame for frame in record["ranks"][1]["stack"])
    assert record["ranks"][0]["error"].startswith("DistBackendError: Timed out waiting 4000ms")


# as of a run on GPUs, whose hosts talk in a group of their own; rank 1 does not come to a row
HOST_HANGS = """
import os, time
from datetime import timedelta
from functools import cached_property
import torch.distributed as dist
from configs import command_line
from profiling.shared.run_files import HOSTS_GROUP
from training.metrics import rows
from training.ranks import flight_recorder
from training.ranks.distributed import Ranks
import train

if os.environ["RANK"] == "1":
    flight_recorder.ANSWER_S = 0.5  # when it fails nobody is there to be asked

def hosts(self):
    patience = timedelta(seconds=4)
    return dist.new_group(backend="gloo", timeout=patience, group_desc=HOSTS_GROUP)

Ranks.hosts = cached_property(hosts)
Ranks.hosts.__set_name__(Ranks, "hosts")

def take(self, iteration, *rest, take=rows.Rows.take):
    while os.environ["RANK"] == "1" and iteration == 4 and not os.path.exists({dump!r}):
        time.sleep(0.1)
    take(self, iteration, *rest)

rows.Rows.take = take
command_line.run(train.train)
"""


@pytest.mark.slow
@pytest.mark.skipif(not RECORDS_GLOO, reason="before torch 2.8 gloo has no recorder")
def test_a_host_that_the_others_wait_for_ends_the_run(command, tmp_path):
    dump = tmp_path / "out" / "profile" / f"{DUMP}1"
    script = tmp_path / "script.py"
    script.write_text(HOST_HANGS.format(dump=str(dump)))
    words = command(gradient_accumulation_steps=2, max_iters=20, log_interval=2)[1:]
    codes, output = ended_ranks(2, [str(script), *words])
    assert 1 in codes
    out_dir = tmp_path / "out"
    assert f"what each rank did last: python -m profiling hang {out_dir}" in output
    record = hang(out_dir)
    (stuck,) = record["stuck"]
    assert record["answer"] == "hang" and stuck["group"] == "1 (hosts)"
    assert (stuck["why"], stuck["waiting"], stuck["absent"]) == ("absent", [0], [1])
    assert stuck["timeout_s"] == 4 and stuck["timed_out"]
    assert any(" in take" in frame for frame in record["ranks"][1]["stack"])


@pytest.mark.slow
@pytest.mark.skipif(not RECORDS_GLOO, reason="before torch 2.8 gloo has no recorder")
@pytest.mark.parametrize(
    ("body", "answer", "why"),
    [
        ("raise IndexError('planted')", "error", "absent"),
        ("torch.distributed.broadcast(torch.ones(100_000), 0)", "hang", "mismatch"),
        ("os._exit(9)", "hang", "no_dump"),
    ],
)
def test_runs_that_end_otherwise(command, tmp_path, body, answer, why):
    words = command(gradient_accumulation_steps=2, max_iters=20)[1:]
    script = tmp_path / "script.py"
    # each has an error of its own, or is gone
    script.write_text(MISBEHAVES.format(body=f"import torch; {body}", unasked=["0", "1"]))
    codes, output = ended_ranks(2, [str(script), *words])
    assert list((tmp_path / "out" / "profile").glob(f"{DUMP}*")), (codes, output)
    record = hang(tmp_path / "out")
    assert record["answer"] == answer, record
    assert [stuck["why"] for stuck in record["stuck"]][:1] == [why]
