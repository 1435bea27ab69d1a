"""dataset=PATH: folders that nanoGPT and others made, read in place."""

import logging
import os
import pickle
import resource

import numpy as np
import pytest

from configs.data import DataConfig
from data import prepare
from data.dataset import load_dataset
from data.token_files import Tokens
from data.tokenizers import CharTokenizer, Gpt2Tokenizer, load_tokenizer
from tests.helpers.token_folders import CHARACTERS, shard, write_meta, write_nanogpt


@pytest.fixture
def folder(tmp_path):
    return write_nanogpt(tmp_path / "mine")


def refusal(folder) -> str:
    with pytest.raises(ValueError) as raised:
        load_dataset(folder)
    (line,) = str(raised.value).splitlines()
    return line


def test_nanogpts_folder_is_read_and_not_written_to(folder):
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    dataset = prepare.prepare(DataConfig(dataset=str(folder)), folder.parent / "data")
    assert (dataset.count("train"), dataset.count("val")) == (5000, 600)
    assert dataset.source == "mine" and dataset.tokenizer.characters == CHARACTERS
    for split in ("train", "val"):
        theirs = np.fromfile(folder / f"{split}.bin", np.uint16)
        assert np.array_equal(dataset.tokens(split).read_all(), theirs)
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert not (folder.parent / "data").exists()


def test_a_name_is_first_looked_for_in_data(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    data_dir = folder.parent / "data"
    write_nanogpt(data_dir / "mine", train=700)
    named = prepare.prepare(DataConfig(dataset="mine"), data_dir)
    assert named.count("train") == 700
    assert prepare.prepare(DataConfig(dataset="./mine"), data_dir).count("train") == 5000
    assert prepare.prepare(DataConfig(dataset="mine"), folder / "none").count("train") == 5000


def test_without_meta_pkl_tokens_are_gpt2s(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    folder = write_nanogpt(tmp_path / "mine", characters=None)
    dataset = prepare.prepare(DataConfig(dataset=str(folder)), tmp_path / "data")
    assert dataset.tokenizer.vocab_size == 50257
    assert "no meta.pkl, so the tokens are taken to be GPT-2's, as in nanoGPT" in caplog.text
    again = load_tokenizer(dataset.tokenizer.to_record())
    assert isinstance(again, Gpt2Tokenizer)  # and no vocabulary was asked for


def test_a_meta_pkl_that_is_not_to_be_read_is_not_taken_for_none(folder):
    (folder / "meta.pkl").unlink()
    (folder / "meta.pkl").symlink_to(folder / "nowhere.pkl")
    assert refusal(folder) == f"{folder}/meta.pkl: No such file or directory"


def test_characters_keep_the_numbers_that_meta_pkl_gives_them(tmp_path):
    folder = write_nanogpt(tmp_path / "mine", characters="zyx cba")
    tokenizer = load_tokenizer(load_dataset(folder).tokenizer.to_record())
    assert tokenizer.encode("abc z").tolist() == [6, 5, 4, 3, 0]
    assert tokenizer.decode([0, 1, 2]) == "zyx"
    with pytest.raises(ValueError, match="not among the 7 characters"):
        tokenizer.encode("zoo")
    assert CharTokenizer("zyx cba").encode("a z").tolist() == [1, 0, 6]  # our own: sorted


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol_of_pickle_is_read(folder, protocol):
    characters = "".join(map(chr, range(0x20, 0x1F00)))  # so many that numbers have all sizes
    itos = dict(enumerate(characters))
    meta = {"vocab_size": len(itos), "itos": itos, "stoi": {c: i for i, c in itos.items()}}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta, protocol))
    assert load_dataset(folder).tokenizer.characters == characters


# Shards


def test_shards_are_one_text_in_the_order_of_their_numbers(tmp_path):
    ids = np.arange(9000) % 50257
    for number, part in enumerate(np.split(ids, 12)):
        (tmp_path / f"fineweb_train_{number}.bin").write_bytes(shard(part))  # 10 behind 9
    (tmp_path / "fineweb_val_000000.bin").write_bytes(shard(ids[:500]))
    dataset = load_dataset(tmp_path)
    tokens = dataset.tokens("train")
    assert len(tokens) == 9000 and dataset.count("val") == 500
    assert np.array_equal(tokens.read_all(), ids)
    starts = np.array([0, 700, 749, 750, 7399, 9000 - 1600])
    assert np.array_equal(tokens.read(starts, 1600), starts[:, None] + np.arange(1600))


def test_a_text_is_known_again_however_it_is_dealt_to_files(tmp_path):
    ids = np.arange(5000)
    for name in ("one", "many"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "val.bin").write_bytes(ids[:100].astype("<u2").tobytes())
    (tmp_path / "one/train.bin").write_bytes(ids.astype("<u2").tobytes())
    for number, part in enumerate(np.split(ids, 4)):
        (tmp_path / f"many/train_{number}.bin").write_bytes(shard(part))
    one, many = (load_dataset(tmp_path / name).text_sha256 for name in ("one", "many"))
    assert one == many
    (tmp_path / "one/train.bin").write_bytes(ids[::-1].astype("<u2").tobytes())
    assert load_dataset(tmp_path / "one").text_sha256 != many


def test_more_files_than_a_process_may_open_at_first(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for number in range(90):
        (tmp_path / f"train_{number:03}.bin").write_bytes(shard(np.array([number] * 10)))
    (tmp_path / "val.bin").write_bytes(shard(np.arange(10)))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (80, hard))
        tokens = load_dataset(tmp_path).tokens("train")
        assert tokens.read_all()[::10].tolist() == list(range(90))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_pages_are_let_go_and_read_again(tmp_path, monkeypatch):
    folder = write_nanogpt(tmp_path / "mine", train=100_000)
    tokens = load_dataset(folder).tokens("train")
    monkeypatch.setattr("data.token_files.RELEASE_BYTES", 1 << 16)
    expected = np.fromfile(folder / "train.bin", "<u2")
    for start in range(0, 90_000, 5000):
        assert np.array_equal(
            tokens.read(np.array([start]), 5000)[0], expected[start : start + 5000]
        )
        assert tokens.touched_bytes <= 1 << 16


# What is wrong with a folder


def test_a_file_that_is_cut_off_while_it_is_read(folder):
    tokens = load_dataset(folder).tokens("train")
    os.truncate(folder / "train.bin", 100)
    last = np.array([len(tokens) - 9])
    with pytest.raises(ValueError, match=r"train.bin: has become shorter since the run started"):
        tokens.read(last, 9)
    assert tokens.read(np.zeros(1, np.int64), 50).shape == (1, 50)


@pytest.mark.parametrize(
    "name, content, complaint",
    [
        (
            "train.bin",
            b"\0" * 4001,
            "4001 bytes, an odd number, so these are not whole uint16 tokens",
        ),
        ("val.bin", b"\0" * 3, "3 bytes, an odd number"),
        ("val.bin", b"", "empty; copy or prepare it again"),
        ("val.bin", None, "no val split: it needs val.bin, or shards with val in their names"),
        ("train.bin", None, "no train split: it needs train.bin"),
        ("train.bin", shard(np.arange(900))[:-100], "cut off, or damaged: 900 tokens announced, 8"),
        ("train.bin", shard(np.arange(900), count=-1), "cut off, or damaged: -1 tokens announced"),
        (
            "train.bin",
            shard(np.arange(900), version=2),
            "a shard of version 2; only version 1 can be read",
        ),
        ("val.bin", np.array([20240801, 7, 9], "<i4").tobytes(), "tokens of Llama 3"),
    ],
)
def test_a_damaged_file_is_named_in_one_line(folder, name, content, complaint):
    (folder / "meta.pkl").unlink()
    path = folder / name
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    line = refusal(folder)
    assert line.startswith(f"{path if content is not None else folder}: ") and complaint in line


@pytest.mark.parametrize("name", ["val.bin", "meta.pkl", "meta.json"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_named_and_nobody_waits_for_it(folder, name, make):
    (folder / name).unlink(missing_ok=True)
    make(folder / name)
    assert f"{folder / name}: is not a file; copy or prepare it again" in refusal(folder)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("meta.json", "{", "meta.json: Expecting property name"),
        ("meta.json", "[]", "meta.json: does not contain names with values"),
        ("meta.json", "{}", "lacks 'source'"),
        ("vocab.json", "\x00", "vocab.json: Expecting value"),
    ],
)
def test_a_damaged_record_is_named_in_one_line(folder, name, content, complaint):
    for each in ("meta.json", "vocab.json"):
        (folder / each).write_text(content if each == name else '{"kind": "gpt2"}')
    assert refusal(folder).startswith(f"{folder}: damaged: {complaint}")


def test_a_name_that_says_no_split_is_named(tmp_path):
    (tmp_path / "tokens.bin").write_bytes(b"\0\0")
    assert "; the name of tokens.bin does not say" in refusal(tmp_path)


def test_ids_beyond_the_vocabulary_are_found_before_the_run(folder):
    ids = np.fromfile(folder / "val.bin", "<u2")
    ids[77] = len(CHARACTERS)
    ids.tofile(folder / "val.bin")
    assert refusal(folder) == (
        f"{folder}/val.bin: token 77 is 29, beyond the vocabulary of 29; the file is damaged or "
        "from another tokenizer"
    )


def test_and_by_the_batch_where_the_samples_missed_them(tmp_path):
    ids = np.zeros(1000, np.uint16)
    ids[500] = 7
    tokens = Tokens([ids[:400], ids[400:]], vocab_size=7)
    assert not tokens.read(np.array([0, 600]), 300).any()
    with pytest.raises(ValueError, match=r"^tokens 1: token 100 is 7, beyond the vocabulary of 7"):
        tokens.read(np.array([0, 390]), 200)


class Code:
    def __reduce__(self):
        return print, ("this was run",)


@pytest.mark.parametrize(
    "content, complaint",
    [
        (pickle.dumps({"vocab_size": Code()}), "which may be code; no code in it was run"),
        (pickle.dumps({"vocab_size": Code()}, 0), "GLOBAL (__builtin__ print), which may be code"),
        (pickle.dumps([1, 2]), "more than a dict of str and int: EMPTY_LIST"),
        (pickle.dumps({"vocab_size": 3.0}), "more than a dict of str and int: BINFLOAT"),
        (pickle.dumps("text"), "not nanoGPT's: contains a str, not a dict"),
        (pickle.dumps({"vocab_size": 3})[:-4], "damaged"),
        (b"\x80\x04}r\xff\xff\xff\x7f.", "damaged (UnpicklingError)"),
        (b"", "damaged"),
        (b"not a pickle", "damaged (not a pickle)"),
        (pickle.dumps({"vocab_size": 3}), "has no itos"),
    ],
)
def test_meta_pkl_is_data_or_refused(folder, capfd, content, complaint):
    (folder / "meta.pkl").write_bytes(content)
    line = refusal(folder)
    assert line.startswith(f"{folder}/meta.pkl: ") and complaint in line
    assert "this was run" not in capfd.readouterr().out


@pytest.mark.parametrize(
    "changed, complaint",
    [
        ({"vocab_size": 65}, "vocab_size=65, but itos has 29 ids"),
        ({"itos": {}}, "itos and stoi must be dicts"),
        ({"itos": {0: "ab"}, "vocab_size": 1}, "a token must be one character"),
        ({"itos": {1: "a"}, "vocab_size": 1}, "which must count from 0"),
        ({"stoi": {"a": 1}}, "stoi is not the inverse of itos"),
    ],
)
def test_meta_pkl_must_be_a_vocabulary(folder, changed, complaint):
    write_meta(folder, **changed)
    assert complaint in refusal(folder)


@pytest.mark.parametrize(
    "dataset, complaint",
    [
        ("nowhere/at/all", "no such folder (shakespeare_char, shakespeare_bpe, or a folder"),
        ("shakespear_char", "no such folder; did you mean shakespeare_char?"),
        ("openwebtext", "does not exist yet; run: python -m data.prepare openwebtext"),
        ("mine/train.bin", "a file; name its folder"),
        ("", "no such folder"),
    ],
)
def test_a_dataset_that_is_not_there_is_named(folder, monkeypatch, dataset, complaint):
    monkeypatch.chdir(folder.parent)
    with pytest.raises(ValueError) as raised:
        prepare.prepare(DataConfig(dataset=dataset), folder.parent / "data")
    assert str(raised.value).startswith(f"dataset={dataset}: ") and complaint in str(raised.value)
