"""Soak tests: cases are reproducible from their seeds; how results are judged."""

import io
import os
import random
import shutil
import signal
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest
import torch

from profiling.__main__ import VERBS
from tests.soak import (
    bad_inputs,
    clock_kills,
    damaged_checkpoints,
    disk_full,
    forks,
    inputs,
    kills,
    moments,
    pairs,
    signals,
    tiny_run,
    trials,
)
from tests.soak.__main__ import SOAK
from tests.soak.bad_inputs import KINDS, Case, flags_of
from tests.soak.forks import Child, ProcessEnd
from tests.soak.trials import Trial


@pytest.fixture
def folder(tmp_path):
    run = tmp_path / "first"
    run.mkdir()
    (run / "ckpt.pt").write_bytes(b"weights" * 99)
    (tmp_path / "here").mkdir()
    with chdir(tmp_path / "here"):
        bad_inputs.prepare_folder(run)
        yield tmp_path / "here"


@pytest.mark.parametrize("kind", KINDS)
def test_a_case_comes_again_from_its_seed(folder, kind):
    whole = Path("run/ckpt.pt").read_bytes()
    made = []
    for _ in range(2):
        path = Path("run/ckpt.pt")
        if path.is_dir():
            path.rmdir()
        path.unlink(missing_ok=True)
        path.write_bytes(whole)
        made.append(KINDS[kind](random.Random(7)))
    assert made[0] == made[1]
    if kind not in ("checkpoint", "configuration file"):  # whose files differ
        assert len({str(KINDS[kind](random.Random(n))) for n in range(9)}) > 1


def test_the_flags_of_every_verb_are_found():
    names = {
        verb: {name for flag in flags_of(verb) for name in flag.option_strings} for verb in VERBS
    }
    assert {"--html", "--manifest"} <= names["report"] and "--repeats" in names["ab"]
    assert all("--help" in found for found in names.values())


@pytest.mark.parametrize(
    ("status", "err", "outcome"),
    [
        (0, "", "valid"),
        (2, "train.py: error: seed=x: must be a whole number\n", "refused"),
        (2, "warning: slow\ntrain.py: error: seed=x: must be\n", "refused"),
        (2, "train.py: error: it is wrong\n", "unclear"),
        (2, "", "unclear"),
        (2, "train.py: error: seed=x\ntrain.py: error: seed=x\n", "unclear"),
        (2, "train.py: error: seed=" + "x" * 3000, "unclear"),
        (1, "Traceback (most recent call last):\n ...\nKeyError: 'seed'\n", "traceback"),
        (-11, "", "other"),
        (None, "", "hang"),
    ],
)
def test_what_a_command_came_to_is_judged_by_its_exit_code_and_its_one_line(status, err, outcome):
    case = Case("train", ["seed=x"], ["seed"])
    found, what = inputs.judge(case, ProcessEnd(status, "", err, 1.0))
    assert found == outcome and (what is None) == (outcome in ("valid", "refused"))


def test_a_fork_ends_as_a_process_does_and_is_killed_at_its_limit(tmp_path):
    def fail() -> None:
        print("said")
        raise SystemExit("a reason")

    with chdir(tmp_path):
        ended = forks.run_in_fork(fail, {}, 30)
        assert (ended.status, ended.out, ended.err) == (1, "said\n", "a reason\n")
        assert forks.run_in_fork(lambda: 1 / 0, {}, 30).err.endswith("division by zero\n")
        assert forks.run_in_fork(signal.pause, {}, 0.2).status is None


def test_a_difference_of_a_bit_is_found_and_placed():
    state = {"model": {"w": torch.zeros(3)}, "losses": {1: 0.5}, "states": [torch.ones(2)]}
    other = {"model": {"w": torch.zeros(3)}, "losses": {1: 0.5}, "states": [torch.ones(2)]}
    assert tiny_run.difference(state, other) is None
    other["model"]["w"][1] = 1e-45
    assert tiny_run.difference(state, other).startswith("/model/w: differs")
    assert tiny_run.difference(state, {"model": {}}) == ": other entries"


def test_how_a_life_may_end():
    assert kills.judge(ProcessEnd(-9, "", "", 1)) is None and kills.judge(ProcessEnd(1, "", "", 1))
    for status in (0, 130, 143):
        assert signals.judge(ProcessEnd(status, "", "one line\n", 1)) is None
    assert signals.judge(ProcessEnd(2, "", "", 1)) and signals.judge(
        ProcessEnd(130, "", "a\nb\n", 1)
    )


def test_work_before_the_last_interval_may_not_be_lost(monkeypatch):
    training = clock_kills.Training("each 2 s", 2.0, 100, 6.0)
    monkeypatch.setattr(tiny_run, "saved_iteration", lambda folder: 40)
    long_s = training.interval_s + clock_kills.SLACK_S
    assert clock_kills.judge_life(training, clock_kills.Life(None, True, 1.9), 30) == (None, 40)
    for life, before, problem in (
        (clock_kills.Life(None, True, long_s + 0.1), 30, "7.1 s of training lost"),
        (clock_kills.Life(None, True, 0.0), 50, "went back from iteration 50 to 40"),
        (clock_kills.Life("hung for 60 s", True, 0.0), 30, "hung for 60 s"),
    ):
        found, _ = clock_kills.judge_life(training, life, before)
        assert found == problem
    columns = [clock_kills.loss_outcome(lost_s, training) for lost_s in (0.0, 0.9, 1.9, 2.1)]
    assert len(set(columns)) == 4


def test_the_table_counts_every_trial_once(capsys):
    made = [Trial(1, "a", "fine"), Trial(2, "a", "hang", "it hung"), Trial(3, "b", "fine")]
    trials.print_table(made)
    out = capsys.readouterr().out.splitlines()
    assert "| a | 2 | 1 | 1 | 1 |" in out and "| b | 1 | 1 | 0 | 0 |" in out


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Folder with what an undisturbed tiny training leaves, and another one that ended halfway."""
    kept = tmp_path_factory.mktemp("trained")

    def train() -> None:
        with tiny_run.own_folder():
            tiny_run.train_whole([], 170)
            tiny_run.leave_half("half", 170)
            for name in ("run", "half"):
                shutil.copytree(name, kept / name)

    ended = forks.run_in_fork(train, {}, 170)
    assert ended.status == 0, ended.err
    return kept


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count", "seed"),
    [
        ("inputs", 12, 5),
        ("wrong_inputs", 10, 5),
        ("kills", 2, 5),
        ("clock_kills", 2, 5),
        ("signals", 2, 5),
        ("damaged_checkpoints", 4, 5),
        ("lossy_captures", 4, 5),
        ("pairs", 3, 5),
        ("disk_full", 5, 5),
        ("wandb_deaths", 2, 6),  # of SIGKILL
    ],
)
def test_a_share_of_each_fails_nowhere(name, count, seed, trained, monkeypatch):
    """Runs in a fork, for trials replace parts of our modules; all share what is undisturbed."""

    def train_whole(words, limit_s):
        shutil.copytree(trained / "run", "run")
        return tiny_run.Whole(tiny_run.read_end(Path("run")), 1.0)

    monkeypatch.setattr(tiny_run, "train_whole", train_whole)
    monkeypatch.setattr(
        tiny_run, "leave_half", lambda folder, limit_s: shutil.copytree(trained / "half", folder)
    )
    shorter = clock_kills.Training("each half s", 0.5, 200, 2.0, ("checkpoint_interval_s=0.5",))
    monkeypatch.setattr(clock_kills, "SHORT", shorter)
    words = [name, f"count={count}", f"seed={seed}", "limit_s=60"]
    ended = forks.run_in_fork(lambda: SOAK.run(words), {}, 170)
    if "mounts a small disk, as root" in ended.err:
        pytest.skip("cannot mount a file system here")
    assert f": 0 of {count} failed" in ended.out, ended.out + ended.err
    assert ended.status == 0, ended.err


@pytest.mark.slow
def test_jobs_share_the_seeds_and_what_ends_one_ends_all():
    def make(count: int, seed: int, limit_s: float) -> Iterator[Trial]:
        if seed == 88:
            os.kill(os.getpid(), signal.SIGKILL)
        if seed > 100:
            raise ValueError("part=x: needs root")
        yield from (Trial(number, "a", str(os.getpid())) for number in range(seed, seed + count))

    keys = trials.SoakConfig(count=5, seed=3, jobs=2)
    found = list(trials.run_side_by_side(make, keys))
    assert sorted(trial.seed for trial in found) == [3, 4, 5, 6, 7]
    assert len({trial.outcome for trial in found} - {str(os.getpid())}) == 2
    keys.seed = 99
    with pytest.raises(ValueError, match="needs root"):
        list(trials.run_side_by_side(make, keys))
    keys.seed = 88
    with pytest.raises(RuntimeError, match="ended before"):
        list(trials.run_side_by_side(make, keys))


def test_a_process_says_that_it_enters_a_function(tmp_path):
    def call() -> None:
        Path("made").mkdir()
        Path("made").rmdir()
        signal.pause()

    with chdir(tmp_path), moments.pipe() as (heard, told):
        watched = moments.announce_calls(call, told, "pathlib.Path.mkdir", "pathlib.Path.rmdir")
        child = forks.start_fork(watched, {})
        until_s = child.began_s + 30
        assert moments.wait_for_calls(child, heard, 2, until_s)
        child.signal(signal.SIGKILL)
        assert not moments.wait_for_calls(child, heard, 1, until_s)  # it ended before
        assert child.wait(until_s).status == -signal.SIGKILL


IN_USE = "train.py: error: out_dir=run: in use by process {} on host a since 12:00; take another"
RAN, REFUSED = ProcessEnd(0, "", "", 1), ProcessEnd(2, "", IN_USE.format(7), 1)


@pytest.mark.parametrize(
    ("first", "second", "owners", "problem"),
    [
        (RAN, REFUSED, b"\1\0\1", None),
        (RAN, RAN, b"\1\0\1\0\1", None),
        (RAN, RAN, b"\1\0\0\1\1", "both had the folder"),
        (REFUSED, REFUSED, b"", "refused by 1 lines"),  # it names a third
        (RAN, ProcessEnd(2, "", "one\ntwo\n", 1), b"\0", "refused by 2 lines"),
        (RAN, ProcessEnd(1, "", "", 1), b"\0", "exit code 1"),
        (RAN, ProcessEnd(None, "", "", 1), b"\0", "hung"),
    ],
)
def test_one_of_a_pair_owns_the_folder(first, second, owners, problem):
    children = [Child(number, io.BytesIO(), io.BytesIO(), 0.0) for number in (7, 8)]
    found = pairs.what_is_wrong(children, [first, second], owners)
    assert found is None if problem is None else problem in found


NOT_SAFE = "train.py: out_dir=disk/run: not on the disk: summary.json; there is no checkpoint\n"


@pytest.mark.parametrize(
    ("ended", "problem"),
    [
        (ProcessEnd(1, "", NOT_SAFE, 1), None),
        (
            ProcessEnd(
                1, "", NOT_SAFE.replace("there is no", "run/ckpt.pt is whole, of iteration 5"), 1
            ),
            "but",
        ),
        (ProcessEnd(1, "", "train.py: no room\n", 1), "exit code 1"),
        (ProcessEnd(1, "", "a\n" + NOT_SAFE, 1), "2 lines"),
        (
            ProcessEnd(
                2, "", "train.py: error: out_dir=disk/run: cannot write to this folder\n", 1
            ),
            "row.txt changed",
        ),
        (ProcessEnd(-9, "", "killed", 1), "exit code -9"),
    ],
)
def test_what_a_full_disk_may_come_to(tmp_path, ended, problem):
    with chdir(tmp_path):
        disk_full.RUN.mkdir(parents=True)
        found = disk_full.what_is_wrong(ended, {"row.txt": b"1"}, tiny_run.Whole({}, 1.0))
    assert found is None if problem is None else problem in found


def test_a_checkpoint_is_damaged_as_its_seed_says():
    state = {"model": {"w": torch.zeros(3)}, "iter_num": 3, "tokenizer": {"kind": "char"}}
    damaged = [damaged_checkpoints.with_other_entries(state, random.Random(n)) for n in (1, 1, 2)]
    found = [torch.load(io.BytesIO(content), weights_only=False) for content in damaged]
    assert str(found[0]) == str(found[1]) != str(found[2])
    assert state == {
        "model": {"w": state["model"]["w"]},
        "iter_num": 3,
        "tokenizer": {"kind": "char"},
    }
    assert all(str(each) != str(state) for each in found)
