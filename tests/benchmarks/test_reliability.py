"""benchmarks reliability: its cases come again from their seeds, and what it judges by."""

import io
import random
import signal
from contextlib import chdir
from pathlib import Path

import pytest
import torch

from benchmarks import reliability
from benchmarks.reliability_parts import (
    bad_inputs,
    damaged_files,
    forks,
    inputs,
    kills,
    tiny_run,
    signals,
)
from benchmarks.reliability_parts.bad_inputs import KINDS, Case, flags_of
from benchmarks.reliability_parts.forks import Ended
from benchmarks.reliability_parts.trial import Trial
from profiling.__main__ import VERBS


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
    found, what = inputs.judged(case, Ended(status, "", err, 1.0))
    assert found == outcome and (what is None) == (outcome in ("valid", "refused"))


def test_a_fork_ends_as_a_process_does_and_is_killed_at_its_limit(tmp_path):
    def fail() -> None:
        print("said")
        raise SystemExit("a reason")

    with chdir(tmp_path):
        ended = forks.forked(fail, {}, 30)
        assert (ended.status, ended.out, ended.err) == (1, "said\n", "a reason\n")
        assert forks.forked(lambda: 1 / 0, {}, 30).err.endswith("division by zero\n")  # type: ignore
        assert forks.forked(signal.pause, {}, 0.2).status is None


def test_a_difference_of_a_bit_is_found_and_placed():
    state = {"model": {"w": torch.zeros(3)}, "losses": {1: 0.5}, "states": [torch.ones(2)]}
    other = {"model": {"w": torch.zeros(3)}, "losses": {1: 0.5}, "states": [torch.ones(2)]}
    assert tiny_run.difference(state, other) is None
    other["model"]["w"][1] = 1e-45
    assert tiny_run.difference(state, other).startswith("/model/w: differs")
    assert tiny_run.difference(state, {"model": {}}) == ": other entries"


def test_how_a_life_may_end():
    assert kills.judge(Ended(-9, "", "", 1)) is None and kills.judge(Ended(1, "", "", 1))
    for status in (0, 130, 143):
        assert signals.judge(Ended(status, "", "one line\n", 1)) is None
    assert signals.judge(Ended(2, "", "", 1)) and signals.judge(Ended(130, "", "a\nb\n", 1))


def test_the_table_counts_every_trial_once(capsys):
    trials = [Trial(1, "a", "fine"), Trial(2, "a", "hang", "it hung"), Trial(3, "b", "fine")]
    reliability.print_table(trials)
    out = capsys.readouterr().out.splitlines()
    assert "| a | 2 | 1 | 1 | 1 |" in out and "| b | 1 | 1 | 0 | 0 |" in out


@pytest.mark.slow
def test_a_share_of_each_part_fails_nowhere(capsys):
    for part, count in (("inputs", 12), ("kills", 4), ("signals", 4)):
        reliability.main(reliability.ReliabilityConfig(part=part, count=count, seed=5, limit_s=60))
    assert capsys.readouterr().out.count(": 0 of ") == 3


def test_a_checkpoint_is_damaged_as_its_seed_says():
    state = {"model": {"w": torch.zeros(3)}, "iter_num": 3, "tokenizer": {"kind": "char"}}
    damaged = [damaged_files.with_other_entries(state, random.Random(n)) for n in (1, 1, 2)]
    found = [torch.load(io.BytesIO(content), weights_only=False) for content in damaged]
    assert str(found[0]) == str(found[1]) != str(found[2])
    assert state == {
        "model": {"w": state["model"]["w"]},
        "iter_num": 3,
        "tokenizer": {"kind": "char"},
    }
    assert all(str(each) != str(state) for each in found)
