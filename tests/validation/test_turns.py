"""Trainings that start up at once and take turns, and their end at a signal."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from benchmarks.measuring import launcher
from tests.helpers.forked import FORKING
from tests.helpers.processes import read_until
from tests.helpers.token_folders import write_nanogpt
from validation import turns
from validation.planted import TRAINER

# a training that writes what it does to a file which all share
FAKE = """
import sys
from validation import turns
def say(what):
    with open(sys.argv[1], "a") as file:
        print(sys.argv[2], what, file=file)
say("starts")
turns.in_turn(lambda: say("warms up"))()
say("has trained")
turns.note(turns.ENDED)
"""
TINY = (
    "shakespeare_char_cpu device=cpu compile=false n_layer=1 n_head=2 n_embd=16 block_size=16 "
    "batch_size=2 max_iters=3 eval_interval=2 eval_iters=1 always_save_checkpoint=true "
    "wandb.mode=disabled gradient_accumulation_steps=2 log_interval=1"
)


def fake(folder: Path, name: str, code: str = FAKE) -> turns.Training:
    command = [sys.executable, "-c", code, str(folder / "said"), name]
    return turns.start(command, folder / name, {}, ranks=1)


def test_trainings_start_at_once_and_train_one_after_the_other(tmp_path: Path) -> None:
    first, second = trainings = [fake(tmp_path, "first"), fake(tmp_path, "second")]
    with turns.ended_at_exit(trainings):
        turns.take_turns(trainings)
        assert [training.finish() for training in trainings] == [0, 0]
    said = (tmp_path / "said").read_text().splitlines()
    assert sorted(said[:2]) == ["first starts", "second starts"]
    turn = ["warms up", "has trained"]
    assert said[2:] == [f"{name} {what}" for name in ("first", "second") for what in turn]
    assert not first.turn.exists() and second.out_dir.with_suffix(".log").exists()


def test_a_training_warms_up_while_the_tool_of_the_one_before_still_works(tmp_path: Path) -> None:
    slow = FAKE + "import time; time.sleep(1); say('has written')"
    trainings = [fake(tmp_path, "first", slow), fake(tmp_path, "second")]
    with turns.ended_at_exit(trainings):
        turns.take_turns(trainings)
        assert [training.finish() for training in trainings] == [0, 0]
    said = (tmp_path / "said").read_text().splitlines()
    assert said.index("second warms up") < said.index("first has written")
    assert said[-2:] == ["first has written", "second has trained"]


def test_a_training_that_fails_as_it_starts_keeps_nobody_waiting(tmp_path: Path) -> None:
    trainings = [fake(tmp_path, "fails", "raise SystemExit(3)"), fake(tmp_path, "trains")]
    with turns.ended_at_exit(trainings):
        turns.take_turns(trainings)
        assert [training.finish() for training in trainings] == [3, 0]


# starts a training that ignores signals and has a child in a session of its own, and says its id
PARENT = """
import sys
from pathlib import Path
from cli.interrupts import unwind_on_signal
from cli.process import begin
from validation import turns
begin()
turns.GRACE_S = 0.3
child = "import time; print('child', flush=True); time.sleep(600)"
code = f'''
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", {child!r}], start_new_session=True, stdout=-1)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
'''
out_dir = Path(sys.argv[1]) / "run"
with unwind_on_signal():
    trainings = [turns.start([sys.executable, "-c", code], out_dir, {}, 1)]
    with turns.ended_at_exit(trainings):
        print("started", flush=True)
        turns.take_turns(trainings)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_a_signal_ends_all_processes_of_a_training(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(PARENT), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        read_until(parent, "started")
        log = tmp_path / "run.log"
        while not log.read_text().endswith("\n"):
            assert parent.poll() is None
            time.sleep(0.02)
        child = int(log.read_text())
        os.kill(child, 0)  # it is there
        parent.send_signal(signal.SIGTERM)
        assert parent.wait() == 128 + signal.SIGTERM
    while Path(f"/proc/{child}").exists():  # until it is reaped, by whoever is its parent now
        if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.02)


def test_two_ranks_wait_for_their_turn_and_save_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "subprocess", FORKING)
    words = [*TINY.split(), f"dataset={write_nanogpt(tmp_path / 'tokens')}"]
    command = [sys.executable, *launcher(2), *TRAINER, *words]
    training = turns.start(command, tmp_path / "run", {"PLANT": "no_fault"}, ranks=2)
    with turns.ended_at_exit([training]):
        training.wait_for(turns.READY)
        log = training.out_dir.with_suffix(".log")
        assert training.process.poll() is None, log.read_text()
        assert "iter 0" not in log.read_text()
        turns.take_turns([training])
        assert training.finish() == 0, log.read_text()
    assert not list(training.out_dir.glob("ckpt*"))
    rows = map(json.loads, (training.out_dir / "metrics.jsonl").read_text().splitlines())
    assert {row["iter"] for row in rows if "train/loss" in row} == {0, 1, 2}
