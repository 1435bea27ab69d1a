"""Checkpoints by the clock: between evaluations, exact to resume from, and out of the way."""

import time

import pytest
import torch

from tests.helpers.checkpoints import assert_same, evaluations, read
from training.disk import checkpoint
from training.disk.save_timer import SaveTimer, checkpoint_interval_s
from training.metrics.rows import Rows

ALWAYS = 1e-9  # seconds: due behind each iteration
NO_EVALUATION = 100


@pytest.fixture
def killed_at(monkeypatch):
    """killed_at(iteration): a run ends there as one that is killed, its last row not written."""

    def kill_at(iteration: int) -> None:
        take = Rows.take

        def die(self, number, lr):
            if number == iteration:
                monkeypatch.setattr(Rows, "take", take)
                raise KeyboardInterrupt
            take(self, number, lr)

        monkeypatch.setattr(Rows, "take", die)

    return kill_at


def test_the_interval_is_the_key_s_or_that_of_the_device(config):
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert checkpoint_interval_s(config(), cpu) == 60
    assert checkpoint_interval_s(config(), cuda) == 600
    assert checkpoint_interval_s(config(checkpoint_interval_s=7.5), cuda) == 7.5
    assert checkpoint_interval_s(config(checkpoint_interval_s=0), cpu) == 0
    with pytest.raises(
        ValueError, match="^checkpoint_interval_s=-1: must be a number of at least 0"
    ):
        config(checkpoint_interval_s=-1)


def test_the_timer_counts_from_the_last_checkpoint(monkeypatch):
    now_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    timer, never = SaveTimer(60), SaveTimer(0)
    now_s = 159.9
    assert not timer.is_due()
    now_s = 160.0
    assert timer.is_due() and not never.is_due()
    timer.restart()
    now_s = 219.0
    assert not timer.is_due()


@pytest.mark.slow
def test_a_run_that_is_killed_between_evaluations_goes_on_bit_for_bit(
    run, losses, killed_at, tmp_path
):
    keys = dict(dropout=0.1, gradient_accumulation_steps=2, eval_interval=NO_EVALUATION)
    keys |= dict(max_iters=8)
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    run(out_dir=str(straight), checkpoint_interval_s=0, **keys)
    keys |= dict(out_dir=str(killed), checkpoint_interval_s=ALWAYS)
    killed_at(5)
    with pytest.raises(KeyboardInterrupt):
        run(**keys)
    assert read(killed)["iter_num"] == 5  # the iteration that was cut off is done again
    run(init_from="resume", **keys)
    assert_same(straight, killed)
    assert losses(straight) == losses(killed)


def test_without_an_interval_nothing_is_saved_between_evaluations(run, killed_at, tmp_path):
    killed_at(6)
    with pytest.raises(KeyboardInterrupt):
        run(eval_interval=NO_EVALUATION, checkpoint_interval_s=0)
    assert not (tmp_path / "out" / "ckpt.pt").exists()


def test_the_best_outlives_the_clock_s_and_is_ckpt_pt_at_the_end(
    run, monkeypatch, killed_at, tmp_path
):
    """The end is as without the clock's saves: ckpt.pt of a run that has ended is the best by
    validation loss."""
    out_dir, keys = tmp_path / "out", dict(max_iters=12, checkpoint_interval_s=ALWAYS)
    evaluations(monkeypatch, [5.0, 3.0, 4.0, 4.5])
    killed_at(10)
    with pytest.raises(KeyboardInterrupt):
        run(**keys)
    assert (read(out_dir)["iter_num"], read(out_dir, "ckpt_best.pt")["iter_num"]) == (10, 4)
    evaluations(monkeypatch, [4.5])
    run(init_from="resume", **keys)
    assert read(out_dir)["iter_num"] == 4
    assert not (out_dir / "ckpt_best.pt").exists()
    # one more look at it takes nothing away
    evaluations(monkeypatch, [3.0])
    run(init_from="resume", eval_only=True, **keys)
    assert read(out_dir)["iter_num"] == 4


def test_a_look_at_a_run_under_way_leaves_its_newest_checkpoint(run, monkeypatch, killed_at):
    evaluations(monkeypatch, [5.0, 3.0])
    killed_at(6)
    keys = dict(checkpoint_interval_s=ALWAYS)
    with pytest.raises(KeyboardInterrupt):
        run(**keys)
    evaluations(monkeypatch, [4.0])
    out_dir = run(init_from="resume", eval_only=True, **keys)
    assert (read(out_dir)["iter_num"], read(out_dir, "ckpt_best.pt")["iter_num"]) == (6, 4)


def test_none_is_written_in_the_midst_of_a_captured_window(run, monkeypatch, config):
    from configs.profiling import ProfileConfig

    saved, save = [], checkpoint.save

    def noted(of_run):
        saved.append(of_run.progress.iteration)
        save(of_run)

    monkeypatch.setattr(checkpoint, "save", noted)
    profile = ProfileConfig(kind="torch", start="3", steps=2)
    run(eval_interval=NO_EVALUATION, checkpoint_interval_s=ALWAYS, profile=profile)
    assert 4 not in saved and {3, 5, 6} <= set(saved)


@pytest.mark.slow
def test_several_ranks_save_together_behind_a_logged_iteration(together, tmp_path):
    """No evaluation is better than the first with a learning rate of 0, and none saves."""
    keys = dict(max_iters=9, eval_interval=NO_EVALUATION, log_interval=3, learning_rate=0, min_lr=0)
    together(2, gradient_accumulation_steps=2, checkpoint_interval_s=ALWAYS, **keys)
    assert read(tmp_path / "out")["iter_num"] == 7
