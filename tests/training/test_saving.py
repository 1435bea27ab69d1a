"""Checkpoints that a thread writes while the run goes on: as on CUDA, requested here on a CPU."""

import threading
import time
from pathlib import Path

import pytest
import torch

from tests.helpers.checkpoints import assert_same, evaluations, read
from training.disk import checkpoint
from training.disk.saving import Saving
from training.metrics import record


@pytest.fixture
def beside(monkeypatch):
    monkeypatch.setattr(checkpoint, "beside_training", lambda _: True)


def test_what_is_written_is_what_was_there_and_shared_tensors_once(tmp_path):
    weight, go_on = torch.ones(100_000), threading.Event()
    state = {"model": {"embedding": weight, "head": weight}, "of_ranks": [torch.zeros(3)], "n": 7}

    def write(copied: object) -> None:
        go_on.wait(20)
        checkpoint.write(tmp_path / "ckpt.pt", copied)

    saving = Saving(tmp_path / "ckpt.pt", 4, state, write)
    weight.fill_(2)
    assert not saving.is_done()
    go_on.set()
    saving.wait()
    found = read(tmp_path)
    assert found["model"]["head"].eq(1).all() and found["n"] == 7
    assert found["model"]["head"].data_ptr() == found["model"]["embedding"].data_ptr()
    assert (tmp_path / "ckpt.pt").stat().st_size < 1.1 * weight.nbytes


def test_any_error_of_the_thread_comes_back(tmp_path):
    def write(_: object) -> None:
        raise RuntimeError("a bug")

    saving = Saving(tmp_path, 4, {}, write)
    with pytest.raises(RuntimeError, match="a bug"):
        saving.wait()


@pytest.mark.slow
def test_the_end_is_the_same_to_the_last_bit(run, tmp_path, monkeypatch):
    keys = dict(dropout=0.1, always_save_checkpoint=True, max_iters=16)
    straight, halves = str(tmp_path / "straight"), str(tmp_path / "halves")
    run(out_dir=straight, **keys)
    monkeypatch.setattr(checkpoint, "beside_training", lambda _: True)
    run(out_dir=halves, **(keys | {"max_iters": 8}))
    run(out_dir=halves, init_from="resume", **keys)
    assert_same(Path(straight), Path(halves))


def test_rows_come_while_it_is_written_and_only_one_is(run, beside, monkeypatch):
    """The first write lasts until the row of iteration 6; the next begins at iteration 8."""
    write, written, rows = checkpoint.write, [], []
    row_six, trained = threading.Event(), record.Record.log_training

    def slow(path: Path, state: dict) -> None:
        assert row_six.wait(60), "the loop waited"
        write(path, state)
        written.append((state["iter_num"], max(rows)))

    def noted(self, iteration, *rest):
        trained(self, iteration, *rest)
        rows.append(iteration)
        if iteration == 6:
            row_six.set()

    monkeypatch.setattr(checkpoint, "write", slow)
    monkeypatch.setattr(record.Record, "log_training", noted)
    out_dir = run(max_iters=12, always_save_checkpoint=True)
    assert [iteration for iteration, _ in written] == [4, 8, 12]
    assert written[0][1] in (6, 7) and read(out_dir)["iter_num"] == 12


def test_one_that_the_disk_refuses_is_tried_again_and_told(run, beside, monkeypatch, capsys):
    write, refused = checkpoint.write, iter([True, False])

    def full_at_first(path, state):
        time.sleep(0.05)
        if next(refused):
            raise OSError(28, "No space left on device")
        write(path, state)

    monkeypatch.setattr(checkpoint, "write", full_at_first)
    evaluations(monkeypatch, [5.0, 3.0, 4.0])
    assert read(run(max_iters=8))["iter_num"] == 8
    said = capsys.readouterr().out
    assert "iteration 4 not saved" in said and "saving works again, after 1 failed attempts" in said


def test_a_run_whose_last_save_fails_ends_with_1_and_says_what_is_safe(run, beside, monkeypatch):
    write = checkpoint.write

    def full_at_last(path, state):
        if state["iter_num"] == 8:
            raise OSError(28, "No space left on device")
        write(path, state)

    monkeypatch.setattr(checkpoint, "write", full_at_last)
    evaluations(monkeypatch, [5.0, 3.0, 2.0])
    with pytest.raises(SystemExit, match=r"the checkpoint of iteration 8 \(1 .*of iteration 4"):
        run(max_iters=8)


def test_a_loss_that_is_no_number_waits_for_the_good_one(run, beside, monkeypatch):
    write = checkpoint.write

    def slow(path, state):
        time.sleep(0.3)
        write(path, state)

    monkeypatch.setattr(checkpoint, "write", slow)
    evaluations(monkeypatch, [5.0, 3.0, float("nan")])
    with pytest.raises(SystemExit, match=r"ckpt.pt is the last good checkpoint"):
        run(max_iters=8)
