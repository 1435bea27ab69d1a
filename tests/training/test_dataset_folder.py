"""Runs on a folder of tokens that another program made."""

import json

import numpy as np
import pytest

import train as program
from tests.helpers.checkpoints import assert_same, read
from tests.helpers.token_folders import CHARACTERS, shard, write_meta, write_nanogpt


@pytest.fixture
def folder(tmp_path):
    return write_nanogpt(tmp_path / "mine", train=20_000, val=2000)


@pytest.fixture
def train(run, folder):
    """train(**keys): the tiny configuration on the folder."""

    def train_on_folder(**keys):
        fixed = {"dataset": str(folder), "data_source": None, "always_save_checkpoint": True}
        return run(**{**fixed, **keys})

    return train_on_folder


def test_a_run_on_it_is_recorded_under_its_name(train, rows):
    out = train(token_storage="mmap")
    first = json.loads((out / "metrics.jsonl").read_text().splitlines()[0])
    assert first["run"]["data"] == "mine"
    assert read(out)["tokenizer"] == {"kind": "char", "characters": CHARACTERS}
    for row in rows(out).values():
        assert "time/step_ms" not in row or 0 <= row["time/data_ms"] < 1000


@pytest.mark.slow
def test_a_resume_is_exact_also_from_shards_of_the_same_tokens(train, folder, tmp_path, config):
    whole = train(out_dir=str(tmp_path / "whole"), token_storage="mmap")
    for iterations, dataset in ((4, folder), (8, tmp_path / "shards")):
        if dataset != folder:
            dataset.mkdir()
            write_meta(dataset)
            for split in ("train", "val"):
                ids = np.fromfile(folder / f"{split}.bin", "<u2")
                for number, part in enumerate(np.split(ids, 5)):
                    (dataset / f"my_{split}_{number}.bin").write_bytes(shard(part))
        first = {} if iterations == 4 else {"init_from": "resume"}
        halves = train(
            out_dir=str(tmp_path / "halves"),
            dataset=str(dataset),
            token_storage="mmap",
            max_iters=iterations,
            **first,
        )
    assert_same(whole, halves)


def test_a_resume_with_another_vocabulary_is_refused(train, folder):
    train(max_iters=4)
    write_meta(folder, CHARACTERS[::-1])
    with pytest.raises(
        ValueError, match="vocabulary of 29 tokens is not the checkpoint's of 29"
    ) as raised:
        train(init_from="resume")
    assert len(str(raised.value).splitlines()) == 1
    write_meta(folder, CHARACTERS + "AB")
    with pytest.raises(ValueError, match="vocabulary of 31 tokens is not the checkpoint's of 29"):
        train(init_from="resume")


def test_a_resume_with_other_tokens_is_refused(train, folder):
    train(max_iters=4)
    np.zeros(20_000, "<u2").tofile(folder / "train.bin")
    with pytest.raises(ValueError, match="the checkpoint was trained on another text"):
        train(init_from="resume")


@pytest.mark.parametrize("storage", ["mmap", "device"])
def test_an_id_beyond_the_vocabulary_ends_the_run_in_a_line(train, folder, monkeypatch, storage):
    ids = np.fromfile(folder / "train.bin", "<u2")
    ids[5000:15_000] = 200
    ids.tofile(folder / "train.bin")
    monkeypatch.setattr("data.token_folder.SAMPLE_TOKENS", 4)  # so that they are not seen before
    monkeypatch.setattr("data.token_folder.SAMPLES", 2)
    with pytest.raises(ValueError, match=r"train.bin: token \d+ is 200, beyond the vocabulary"):
        train(token_storage=storage)


def test_a_text_shorter_than_a_sequence_is_refused(train, folder):
    (folder / "val.bin").write_bytes(b"\0\0" * 20)
    with pytest.raises(ValueError, match="block_size=32: .*the val split has 20 tokens"):
        train()


@pytest.mark.slow
def test_a_mistake_in_a_folder_is_exit_code_2(command, start, folder):
    (folder / "train.bin").write_bytes(b"\0\0\0")
    process = start(command(dataset=folder, data_source=None))
    output = process.communicate(timeout=90)[0]
    assert process.returncode == 2
    assert output.splitlines()[-1].startswith(f"train.py: error: {folder}/train.bin: 3 bytes, an")
    assert program.__file__ not in output
