"""ckpt.pt on disk and back: whole, harmless, and bitwise equal."""

import io
import json
import math
import os
import pickle
import random
import resource
import signal
import time
import zipfile
from pathlib import Path

import pytest
import torch

from cli.keys import spell
from tests.helpers.checkpoints import assert_same, evaluations, read
from tests.helpers.forked import Forked
from tests.helpers.full_disk import files_no_larger_than
from tests.helpers.planted_pickle import Planted
from training.disk import checkpoint
from training.disk.checkpoint_file import read_state
from training.disk.whole_checkpoint import load


@pytest.mark.slow
@pytest.mark.parametrize("keys", [{}, {"token_storage": "mmap", "attention": "slow"}])
def test_resumed_is_uninterrupted_to_the_last_bit(run, rows, tmp_path, keys):
    keys |= dict(dropout=0.1, gradient_accumulation_steps=2, always_save_checkpoint=True)
    straight, halves = str(tmp_path / "straight"), str(tmp_path / "halves")
    run(out_dir=straight, max_iters=16, **keys)
    run(out_dir=halves, max_iters=8, **keys)
    assert read(Path(halves))["iter_num"] == 8
    run(out_dir=halves, max_iters=16, init_from="resume", **keys)
    assert_same(Path(straight), Path(halves))
    expected, resumed = rows(Path(straight)), rows(Path(halves))
    for iteration in range(17):
        for key in ("train/loss", "val/loss", "eval/train_loss", "lr"):
            assert expected[iteration].get(key) == resumed[iteration].get(key), (iteration, key)
    assert expected[0]["train/loss"] != expected[8]["train/loss"]


@pytest.mark.slow
def test_dropout_s_random_state_is_what_makes_it_exact(run, tmp_path, monkeypatch):
    """The test above would notice: without the restored state the halves differ."""
    keys = dict(dropout=0.1, always_save_checkpoint=True)
    straight, halves = str(tmp_path / "straight"), str(tmp_path / "halves")
    run(out_dir=straight, max_iters=8, **keys)
    run(out_dir=halves, max_iters=4, **keys)
    monkeypatch.setattr(checkpoint, "restore_random_states", lambda *_: None)
    run(out_dir=halves, max_iters=8, init_from="resume", **keys)
    with pytest.raises(AssertionError):
        assert_same(Path(straight), Path(halves))


@pytest.mark.slow
@pytest.mark.parametrize("keys", [{"attention": "slow"}, {"attention": "flash", "compile": True}])
@pytest.mark.usefixtures("compiled_to_no_code")
def test_resumes_under_another_backend_and_compiled(run, losses, tmp_path, keys):
    out_dir, straight = tmp_path / "out", str(tmp_path / "straight")
    run(max_iters=4)
    run(max_iters=8, init_from="resume", **keys)
    assert read(out_dir)["iter_num"] == 8
    assert list(read(out_dir)["model"]) == list(read(run(out_dir=straight))["model"])
    expected = losses(Path(straight))
    for iteration, row in losses(out_dir).items():
        assert row == pytest.approx(expected[iteration], abs=1e-3), iteration


@pytest.mark.slow
def test_learning_keys_may_change_on_resume(run, rows):
    run(max_iters=4, always_save_checkpoint=True)
    keys = dict(learning_rate=1e-4, decay_lr=False, weight_decay=0.0)
    out_dir = run(max_iters=6, init_from="resume", **keys)
    assert rows(out_dir)[5]["lr"] == 1e-4


@pytest.mark.parametrize(
    "keys", [dict(n_layer=1), dict(n_embd=16), dict(n_head=4), dict(block_size=16), dict(bias=True)]
)
def test_another_model_is_refused_by_name(run, keys):
    run()
    ((key, value),) = keys.items()
    with pytest.raises(
        ValueError, match=rf"^{key}={spell(value)}: the checkpoint has .*init_from=resume"
    ):
        run(init_from="resume", **keys)


def test_another_text_is_refused_by_name(run, tmp_path, text_file):
    run()
    other = tmp_path / "other.txt"
    other.write_text(text_file.read_text("utf-8").replace("the", "teh"), encoding="utf-8")
    said = r"^dataset=shakespeare_char: .*another text .*other.txt.*config.yaml init_from=resume$"
    with pytest.raises(ValueError, match=said):
        run(init_from="resume", data_source=str(other))


def test_other_tokens_of_the_same_text_are_refused_by_name(run):
    keys = dict(dataset="shakespeare_bpe", tokenizer="local")
    run(bpe_vocab_size=260, **keys)
    with pytest.raises(ValueError, match=r"^dataset=shakespeare_bpe: .*tokens.*bpe_vocab_size"):
        run(init_from="resume", bpe_vocab_size=300, **keys)
    with pytest.raises(ValueError, match=r"^dataset=shakespeare_char: .*dataset=shakespeare_bpe"):
        run(init_from="resume")


def test_a_refused_resume_leaves_everything_as_it_was(run):
    out_dir = run()
    before = {path.name: path.read_bytes() for path in out_dir.iterdir()}
    with pytest.raises(ValueError):
        run(init_from="resume", n_layer=1)
    assert {path.name: path.read_bytes() for path in out_dir.iterdir()} == before


def test_no_checkpoint_is_said(run, tmp_path):
    with pytest.raises(ValueError, match="ckpt.pt: there is no checkpoint.*init_from=scratch"):
        run(init_from="resume")


def test_the_best_checkpoint_outlives_worse_ones(run, monkeypatch, tmp_path):
    evaluations(monkeypatch, [5.0, 3.0, 4.0, 4.5])
    out_dir = run(max_iters=12, always_save_checkpoint=True)
    assert (read(out_dir)["iter_num"], read(out_dir, "ckpt_best.pt")["iter_num"]) == (12, 4)
    assert read(out_dir)["best_val_loss"] == read(out_dir, "ckpt_best.pt")["best_val_loss"] == 3.0
    evaluations(monkeypatch, [4.5, 2.0])
    run(max_iters=16, always_save_checkpoint=True, init_from="resume")
    assert read(out_dir)["iter_num"] == 16  # the newest is the best: no second file
    assert not (out_dir / "ckpt_best.pt").exists()


def test_without_always_save_only_improvements_are_saved(run, monkeypatch):
    evaluations(monkeypatch, [1.0, 5.0, 0.5, 4.0])  # the first is before any training
    out_dir = run(max_iters=12)
    assert read(out_dir)["iter_num"] == 8
    assert not (out_dir / "ckpt_best.pt").exists()


def test_the_disk_s_own_reason_is_told_where_pytorch_s_writer_raises_another(tmp_path):
    with files_no_larger_than(100_000), pytest.raises(OSError, match="File too large"):
        checkpoint.write(tmp_path / "ckpt.pt", {"weights": torch.zeros(100_000)})
    assert not list(tmp_path.iterdir())


def test_a_full_disk_costs_the_checkpoint_and_not_the_run(run, monkeypatch, capsys):
    evaluations(monkeypatch, [5.0, 3.0, 4.0])
    out_dir = run(max_iters=8, always_save_checkpoint=True)
    assert read(out_dir, "ckpt_best.pt")["iter_num"] == 4

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "write", full)
    evaluations(monkeypatch, [4.0, 2.0, 2.5])
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        run(max_iters=16, init_from="resume")
    assert end.value.code == (
        f"train.py: out_dir={out_dir}: not on the disk: the checkpoint of iteration 16 (2 saves "
        f"failed); {out_dir}/ckpt.pt is whole, of iteration 8"
    )
    said = capsys.readouterr().out
    assert said.count("not saved (") == said.count("No space left") == 1 and "next:" not in said
    assert "iteration 12 not saved" in said and "the checkpoint there is of iteration 8" in said
    assert json.loads((out_dir / "summary.json").read_text())["iterations"] == 16
    assert read(out_dir, "ckpt_best.pt")["iter_num"] == 4
    assert read(out_dir)["iter_num"] == 8


def test_a_checkpoint_that_was_refused_is_tried_again_at_the_next_evaluation(
    run, monkeypatch, capsys
):
    """An evaluation that is no better saves it too: the run would end without what it learned."""
    write, refused = checkpoint.write, iter([True, False])

    def full_at_first(path, state):
        if next(refused):
            raise OSError(28, "No space left on device")
        write(path, state)

    monkeypatch.setattr(checkpoint, "write", full_at_first)
    evaluations(monkeypatch, [5.0, 3.0, 4.0])
    assert read(run(max_iters=8))["iter_num"] == 8
    said = capsys.readouterr().out
    assert "iteration 4 not saved" in said and "there is no checkpoint yet" in said
    assert (
        "saving works again, after 1 failed attempts"
    ) in said and "next: python sample.py" in said


def test_a_file_that_cannot_be_written_whole_leaves_nothing_behind(tmp_path):
    path = tmp_path / "ckpt.pt"
    checkpoint.write(path, {"model": torch.ones(10)})
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
        with pytest.raises(OSError):
            checkpoint.write(path, {"model": torch.ones(1_000_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert path.read_bytes() == before
    assert [child.name for child in tmp_path.iterdir()] == ["ckpt.pt"]


SAVE = """
import sys
from pathlib import Path
from tests.helpers.checkpoints import save_for_ever
save_for_ever(Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_killed_while_saving_leaves_a_whole_checkpoint(tmp_path):
    path = tmp_path / "ckpt.pt"
    interrupted = 0
    for _ in range(10):
        child = Forked(["-c", SAVE, str(path)], dict(os.environ))
        before = path.stat().st_mtime_ns if path.exists() else None
        limit = time.monotonic() + 30
        while not path.exists() or path.stat().st_mtime_ns == before:  # until it saves
            assert time.monotonic() < limit and child.poll() is None
            time.sleep(0.001)
        time.sleep(random.uniform(0, 0.03))
        child.kill()
        child.communicate()
        state = read_state(path)
        assert state["model"].eq(float(state["iter_num"])).all()
        interrupted += (tmp_path / "ckpt.pt.tmp").exists()
    assert interrupted > 0, "no kill met a save: the test proves nothing"


def damaged(kind: str, good: bytes, canary: Path) -> bytes:
    attack = {"model": Planted(f"touch {canary}"), "config": {}, "tokenizer": {}, "iter_num": 1}
    if kind == "pickle in a checkpoint":
        buffer = io.BytesIO()
        torch.save(attack, buffer)
        return buffer.getvalue()
    return {
        "pickle": pickle.dumps(attack),
        "empty": b"",
        "half": good[: len(good) // 2],
        "without its last byte": good[:-1],
        "without its directory": good[:-200],
        "text": b"loss: 1.47\n" * 20,
        "zeros": bytes(5000),
        "no UTF-8": b"\x80\x02X\x01\x00\x00\x00\xff.",
        "pops from nothing": b"\x80\x02.",
        "cut pickle": b"\x80\x02X\x01",
    }[kind]


@pytest.fixture(scope="module")
def good_bytes() -> bytes:
    buffer = io.BytesIO()
    model = {"w": torch.arange(300.0)}
    torch.save({"model": model, "config": {}, "tokenizer": {}, "iter_num": 3}, buffer)
    return buffer.getvalue()


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize(
    "kind",
    [
        "pickle in a checkpoint",
        "pickle",
        "empty",
        "half",
        "without its last byte",
        "without its directory",
        "text",
        "zeros",
        "no UTF-8",
        "pops from nothing",
        "cut pickle",
    ],
)
def test_a_damaged_file_is_one_line_and_runs_nothing(tmp_path, good_bytes, kind):
    path, canary = tmp_path / "ckpt.pt", tmp_path / "canary"
    path.write_bytes(good_bytes)
    assert read_state(path)["iter_num"] == 3
    path.write_bytes(damaged(kind, good_bytes, canary))
    with pytest.raises(ValueError) as refusal:
        read_state(path)
    message = str(refusal.value)
    assert message.startswith(f"{path}: damaged or not a checkpoint (") and "\n" not in message
    assert len(message) < len(str(path)) + 250
    assert not canary.exists()
    if kind == "pickle in a checkpoint":
        assert "(it names posix.system, which is code); no code in it was run" in message
        assert "scratch" not in message and "Weights only" not in message


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_any_broken_bytes_are_a_value_error(tmp_path, good_bytes):
    """No other exception is raised, whatever bytes were hit; most hits are noticed."""
    path, generator, noticed = tmp_path / "ckpt.pt", random.Random(0), 0
    for _ in range(300):
        broken = bytearray(good_bytes)
        for _ in range(3):  # in front, where the pickle is
            broken[generator.randrange(400)] = generator.randrange(256)
        path.write_bytes(broken)
        try:
            read_state(path)
        except ValueError:
            noticed += 1
    assert noticed > 100


@pytest.mark.parametrize("state", [{"model": {}}, [1, 2], 7, {"weights": torch.ones(2)}])
def test_a_file_of_another_program_is_refused(tmp_path, state):
    torch.save(state, tmp_path / "ckpt.pt")
    with pytest.raises(
        ValueError, match=r"ckpt.pt: (not a checkpoint of this program|damaged or no)"
    ):
        load(tmp_path / "ckpt.pt")


def test_a_checkpoint_is_tensors_and_plain_values(run):
    out_dir = run()
    with zipfile.ZipFile(out_dir / "ckpt.pt") as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("data.pkl"))
        code = archive.read(name)
    assert b"training" not in code and b"Config" not in code
    state = read(out_dir)
    assert state["iter_num"] == 8 and math.isfinite(state["best_val_loss"])
    assert state["config"]["n_layer"] == 2 and state["config"]["dtype"] == "float32"
    assert set(state["model"]) == {name.removeprefix("_orig_mod.") for name in state["model"]}
    assert not list(out_dir.glob("*.tmp"))
