"""Losses of ranks and hosts: where the faults strike, and the judgement of the run after them."""

import json
import os
import signal
from subprocess import CompletedProcess

import pytest
import torch.distributed as dist

import train
from validation import ranks_survive
from validation.plants import ends
from validation.plants.ends import AT, ENDS, LOST, PATIENCE_S
from validation.ranks_survive import RanksSurviveConfig, Runs, main, row


@pytest.fixture
def strike(monkeypatch):
    """strike(case, **environ): what was killed or slept in iteration AT, and what trained."""

    def strike(case: str, **environ: str) -> tuple[list, list]:
        struck, trained = [], []
        monkeypatch.setattr(os, "kill", lambda pid, number: struck.append((pid, number)))
        monkeypatch.setattr(ends.time, "sleep", struck.append)
        monkeypatch.setattr(dist, "init_process_group", dist.init_process_group)
        monkeypatch.setattr(train, "accumulate", lambda *arguments: trained.append(arguments[2]))
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        ENDS[case].put()
        monkeypatch.setattr(os, "getppid", lambda: 1)  # as if torchrun were dead already
        for iteration in range(AT - 1, AT + 2):
            before = len(struck)
            train.accumulate(None, None, iteration, None)
            assert len(struck) == before or iteration == AT
        return struck, trained

    return strike


ALL = [AT - 1, AT, AT + 1]
KILL = signal.SIGKILL


@pytest.mark.parametrize(
    "case, environ, struck",
    [
        ("killed_rank", dict(RANK="1", TORCHELASTIC_RESTART_COUNT="0"), [(os.getpid(), KILL)]),
        ("killed_rank", dict(RANK="1", TORCHELASTIC_RESTART_COUNT="1"), []),
        ("killed_rank", dict(RANK="0", TORCHELASTIC_RESTART_COUNT="0"), []),
        ("lost_host", {LOST: "1"}, [(os.getppid(), KILL), (os.getpid(), KILL)]),
        ("lost_host", {LOST: ""}, []),
        ("hang", dict(RANK="1"), [ends.HANG_S]),
        ("hang", dict(RANK="0"), []),
    ],
)
def test_a_fault_strikes_only_where_it_should(strike, case, environ, struck):
    assert strike(case, **environ) == (struck, ALL)


@pytest.mark.parametrize("case, environ", [("hang", dict(RANK="0")), ("lost_host", {LOST: ""})])
def test_ranks_that_wait_for_others_have_less_patience(strike, case, environ):
    strike(case, **environ)
    assert dist.init_process_group.keywords["timeout"].total_seconds() == PATIENCE_S


@pytest.fixture
def runs(tmp_path):
    """Runs in OUT, where the undisturbed one has losses 3, 2 and 1."""
    write_losses(tmp_path / "undisturbed", [(0, 3.0), (1, 2.0), (2, 1.0)])
    return Runs(RanksSurviveConfig(within=0.1), tmp_path)


def write_losses(folder, losses):
    folder.mkdir()
    lines = [{"run": {}}, *({"iter": i, "train/loss": loss} for i, loss in losses), {"iter": 2}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


RESUMED = "resumed /a/ckpt.pt at iteration 1 (best validation loss 2); changed: ranks 2 -> 1\n"
AGAIN = [(0, 3.0), (1, 7.0), (1, 2.05), (2, 1.0)]  # an iteration was done twice


@pytest.mark.parametrize(
    "losses, log, status, difference, is_right",
    [
        (AGAIN, RESUMED, 0, 0.05, True),
        (AGAIN, RESUMED, 1, 0.05, False),
        (AGAIN, "", 0, 0.05, False),
        ([(0, 3.0), (1, 2.2), (2, 1.0)], RESUMED, 0, 0.2, False),
        ([(0, 3.0), (1, 2.0)], RESUMED, 0, None, False),
    ],
)
def test_a_run_survives_if_it_went_on_and_ends_with_the_same_losses(
    runs, losses, log, status, difference, is_right
):
    write_losses(runs.out / "case", losses)
    (runs.out / "case.log").write_text(log)
    found = runs.survived("case", "killed", status, "ranks 2 -> 1")
    said = "resumed at iteration 1, ranks 2 -> 1" if log else "nothing was resumed"
    assert found.happened == f"ended with {status}; {said}"
    assert found.difference == (None if difference is None else pytest.approx(difference))
    assert found.is_right is is_right
    assert row(found).endswith("| yes |" if is_right else "| no |")


@pytest.mark.parametrize(
    "stuck, status, is_right",
    [
        ([{"why": "absent", "waiting": [0], "absent": [1]}], 1, True),
        ([{"why": "absent", "waiting": [0], "absent": [1]}], 0, False),
        ([{"why": "absent", "waiting": [1], "absent": [0]}], 1, False),
        ([], 1, False),
    ],
)
def test_the_rank_that_was_missing_from_a_hang_must_be_named(
    runs, monkeypatch, stuck, status, is_right
):
    answer = CompletedProcess([], 1, json.dumps({"stuck": stuck}), "no hang")
    monkeypatch.setattr(Runs, "train_with", lambda *_: status)
    monkeypatch.setattr(ranks_survive.subprocess, "run", lambda *_, **__: answer)
    found = ranks_survive.hang(runs)
    assert found.is_right is is_right and found.difference is None
    assert ("no collective hangs: no hang" in found.happened) == (not stuck)


@pytest.mark.parametrize(
    "keys, message",
    [
        (dict(ranks=3), "^ranks=3: must be even"),
        (dict(cases="killed"), "^cases=killed: no such name"),
        ({}, "^out=.*: exists already; name another folder$"),
    ],
)
def test_mistakes_are_named_before_anything_trains(tmp_path, keys, message):
    with pytest.raises(ValueError, match=message):
        main(RanksSurviveConfig(out=str(tmp_path), **keys))
