"""python -m data.prepare for text files, folders and Parquet: blocks, parallel, resumable."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow.parquet import write_table

from configs.preparing import FilesConfig
from data import encode_blocks, prepare, text_blocks
from data.dataset import load_dataset
from data.prepare_files import prepare_files
from data.standin import stand_in_text
from data.text_blocks import Block, draw_validation_rows, find_sources
from data.tokenizers import BpeTokenizer
from tests.paths import PROJECT

PLAY = stand_in_text(length=60_000)
MIXED = "It's 3 o'clock…\r\n\r\n  \t  x  \u00a0 y　　z\n\n\n漢字かな交じり文 123 456\n" * 400


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 5000)


@pytest.fixture
def make(tmp_path):
    """make(source, **keys): the data set of these files, in tmp_path/out."""

    def prepared(source: Path, **keys):
        fixed = {"tokenizer": "char", "workers": 1, "out": str(tmp_path / "out")}
        return prepare_files(FilesConfig(source=str(source), **{**fixed, **keys}), tmp_path)

    return prepared


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def text_of(dataset, split: str) -> str:
    return dataset.tokenizer.decode(dataset.tokens(split).read_all())


@pytest.mark.parametrize("text", [PLAY, MIXED], ids=["play", "mixed"])
@pytest.mark.parametrize("tokenizer", ["char", "local"])
def test_blocks_give_the_tokens_of_the_whole_text(tmp_path, make, text, tokenizer):
    dataset = make(write(tmp_path / "a.txt", text), tokenizer=tokenizer, bpe_vocab_size=400)
    whole = text.replace("\r\n", "\n")
    train, val = (text_of(dataset, split) for split in ("train", "val"))
    assert train + val == whole
    assert len(val.encode()) == pytest.approx(0.1 * len(text.encode()), rel=0.05)
    for split, part in (("train", train), ("val", val)):
        expected = dataset.tokenizer.encode(part)
        assert np.array_equal(dataset.tokens(split).read_all(), expected)


def test_characters_are_read_by_nanogpt_too(tmp_path, make):
    dataset = make(write(tmp_path / "a.txt", PLAY))
    meta = pickle.loads((dataset.directory / "meta.pkl").read_bytes())
    ids = np.fromfile(dataset.directory / "train.bin", np.uint16)
    assert "".join(meta["itos"][i] for i in ids.tolist()) == PLAY[: int(len(PLAY) * 0.9)]
    assert dataset.source == "a.txt" and dataset.tokenizer.characters == "".join(sorted(set(PLAY)))


@pytest.mark.slow
def test_processes_give_what_one_gives(tmp_path, make):
    for name in ("b.txt", "a.txt", "deep/c.txt"):
        write(tmp_path / "texts" / name, f"{name}: {PLAY}")
    alone = make(tmp_path / "texts")
    many = make(tmp_path / "texts", workers=3, out=str(tmp_path / "many"))
    assert many.text_sha256 == alone.text_sha256
    for name in ("train.bin", "val.bin", "vocab.json"):
        assert (many.directory / name).read_bytes() == (alone.directory / name).read_bytes()
    assert text_of(many, "train").startswith("a.txt: ")  # by name


def test_a_text_ends_where_its_file_does(tmp_path, make, monkeypatch):
    """The end of a text is GPT-2's own token; a small vocabulary stands for that of GPT-2."""
    small = BpeTokenizer.train(PLAY, 300)
    monkeypatch.setattr(BpeTokenizer, "gpt2", lambda: BpeTokenizer("gpt2", small.tokens))
    one = make(write(tmp_path / "one.txt", PLAY), tokenizer="gpt2")
    end = one.tokenizer.end_of_text
    assert not (one.tokens("train").read_all() == end).any()
    for name in ("1", "2", "3"):
        write(tmp_path / f"many/{name}.txt", PLAY)
    many = make(tmp_path / "many", tokenizer="gpt2", out=str(tmp_path / "more"))
    both = np.concatenate([many.tokens(split).read_all() for split in ("train", "val")])
    assert (both == end).sum() == 3 and both[-1] == end


def test_what_is_there_already_is_not_made_again(tmp_path, make, monkeypatch):
    source = write(tmp_path / "a.txt", PLAY)
    first = make(source)
    monkeypatch.setattr(encode_blocks.Encode, "__call__", None)
    assert make(source).text_sha256 == first.text_sha256
    with pytest.raises(
        ValueError, match="out: this folder exists and has other content; name another"
    ):
        make(source, tokenizer="local")
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="file: this folder exists and has other content"):
        make(source, out=str(tmp_path / "file"))


# Stopped and gone on with


def test_what_failed_goes_on_where_it_was(tmp_path, make, monkeypatch):
    source = write(tmp_path / "a.txt", PLAY)
    expected = make(source, out=str(tmp_path / "whole"))
    encode, seen = encode_blocks.Encode.__call__, []

    def until_the_fourth(self, block: Block):
        seen.append(block.begin)
        if len(seen) == 4:
            raise OSError("the disk is full")
        return encode(self, block)

    monkeypatch.setattr(encode_blocks.Encode, "__call__", until_the_fourth)
    with pytest.raises(ValueError, match="the disk is full"):
        make(source)
    unfinished = tmp_path / "out.unfinished"
    assert len((unfinished / "done.jsonl").read_text().splitlines()) == 3
    # a kill in the midst of writing: tokens without a line, a line that is cut off
    with open(unfinished / "train.bin", "ab") as file:
        file.write(b"half a bl")
    with open(unfinished / "done.jsonl", "a") as file:
        file.write('{"blocks": 4, "tra')
    dataset = make(source)
    assert len(seen) == len(set(seen)) + 1, "a block was encoded twice beside the one that failed"
    assert (dataset.directory / "train.bin").read_bytes() == (
        expected.directory / "train.bin"
    ).read_bytes()
    assert dataset.text_sha256 == expected.text_sha256 and not unfinished.exists()
    assert {path.name for path in dataset.directory.iterdir()} == {
        *("train.bin", "val.bin", "vocab.json", "meta.json", "meta.pkl")
    }


def test_tokens_that_a_crash_of_the_machine_took_are_made_again(tmp_path, make, monkeypatch):
    source = write(tmp_path / "a.txt", PLAY)
    expected = make(source, out=str(tmp_path / "whole"))
    monkeypatch.setattr("data.prepare_files.write_meta", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        make(source)
    monkeypatch.undo()
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 5000)
    os.truncate(tmp_path / "out.unfinished/train.bin", 12_000)
    assert make(source).text_sha256 == expected.text_sha256
    again = np.fromfile(tmp_path / "out/train.bin", np.uint16)
    assert np.array_equal(again, expected.tokens("train").read_all())


def test_other_files_or_keys_do_not_go_on(tmp_path, make, monkeypatch):
    source = write(tmp_path / "a.txt", PLAY)
    monkeypatch.setattr("data.prepare_files.write_meta", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        make(source)
    monkeypatch.undo()
    with pytest.raises(
        ValueError, match="out.unfinished: was started with other files or keys; remove"
    ):
        make(source, val_fraction=0.2)


def test_what_has_no_block_yet_is_begun_anew(tmp_path, make):
    source = write(tmp_path / "a.txt", "\xff")
    source.write_bytes(b"\xff" + PLAY.encode())
    with pytest.raises(ValueError, match="not UTF-8"):
        make(source, tokenizer="char")
    write(source, PLAY)  # as the message asks for
    assert make(source, tokenizer="char").count("train") == int(len(PLAY) * 0.9)


def test_another_share_after_one_that_left_nothing(tmp_path, make):
    source = write(tmp_path / "a.txt", PLAY)
    with pytest.raises(ValueError, match="leaves no training tokens; choose another"):
        make(source, val_fraction=0.99999)
    assert make(source, val_fraction=0.5).count("train") == len(PLAY) // 2


SLOWLY = """
import sys, time
from data import encode_blocks, prepare, text_blocks

text_blocks.BLOCK_BYTES = 5000
encode = encode_blocks.Encode.__call__
encode_blocks.Encode.__call__ = lambda self, block: (time.sleep(0.3), encode(self, block))[1]
prepare.main(sys.argv[1:])
"""


def test_a_kill_costs_the_blocks_under_way(tmp_path, make):
    source = write(tmp_path / "a.txt", PLAY)
    words = [str(source), "tokenizer=char", "workers=1", f"out={tmp_path}/out"]
    process = subprocess.Popen([sys.executable, "-c", SLOWLY, *words], cwd=PROJECT)
    done = tmp_path / "out.unfinished/done.jsonl"
    until = time.monotonic() + 60
    while not (done.exists() and done.read_text().count("\n") >= 3):
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    there = done.read_text().splitlines()
    assert not (tmp_path / "out").exists()
    seen = []
    encode = encode_blocks.Encode.__call__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            encode_blocks.Encode,
            "__call__",
            lambda self, block: (seen.append(block), encode(self, block))[1],
        )
        dataset = make(source)
    expected = make(source, out=str(tmp_path / "whole"))
    sizes = [PLAY.encode()[block.begin : block.end] for block in seen]
    assert len(b"".join(sizes)) < len(PLAY) and json.loads(there[-1])["blocks"] >= 3
    assert dataset.text_sha256 == expected.text_sha256


# What is wrong with a source


@pytest.mark.parametrize(
    "files, complaint",
    [
        ({}, "contains neither *.txt nor *.parquet"),
        ({"a.txt": "x", "b.parquet": "y"}, "contains both *.txt and *.parquet"),
        ({"a.md": "x"}, "contains neither"),
    ],
)
def test_a_folder_without_texts_is_named(tmp_path, files, complaint):
    for name, text in files.items():
        write(tmp_path / name, text)
    with pytest.raises(ValueError) as raised:
        find_sources(str(tmp_path))
    assert str(raised.value).startswith(f"{tmp_path}: {complaint}")


def test_a_folder_in_it_that_cannot_be_read_is_not_left_out(tmp_path, monkeypatch):
    write(tmp_path / "a.txt", "x")
    write(tmp_path / "b" / "b.txt", "y")
    scandir = os.scandir

    def guarded(path):
        if Path(path).name == "b":
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    with pytest.raises(PermissionError):
        find_sources(str(tmp_path))


def test_out_may_be_a_link_to_an_empty_folder_of_another_disk(tmp_path, make):
    (tmp_path / "disk").mkdir()
    for name in ("disk", "to_come"):
        (tmp_path / "link").symlink_to(tmp_path / name)
        made = make(write(tmp_path / "a.txt", PLAY), out=str(tmp_path / "link"))
        assert load_dataset(tmp_path / name).count("train") == made.count("train")
        (tmp_path / "link").unlink()


@pytest.mark.parametrize("out", [".", "../disk"])
def test_out_that_cannot_be_replaced_is_refused_before_the_work(tmp_path, make, monkeypatch, out):
    for name in ("here", "disk"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(Path, "is_mount", lambda path: path.name == "disk")
    with pytest.raises(ValueError, match=f"^out={out}: .*name a folder in it, such as out="):
        make(write(tmp_path / "a.txt", PLAY), out=out)
    assert not list(tmp_path.rglob("*.unfinished"))


def test_out_that_is_a_link_to_itself_is_one_line(tmp_path, make):
    (link := tmp_path / "link").symlink_to(link)
    with pytest.raises(ValueError, match=f"^{link}: is a link that points to itself"):
        make(write(tmp_path / "a.txt", PLAY), out=str(link))


def test_what_is_no_text_is_named_with_its_byte(tmp_path, make):
    source = tmp_path / "a.txt"
    source.write_bytes(PLAY.encode()[:7000] + b"\xff" + PLAY.encode()[:7000])
    for workers in (1, 2):
        with pytest.raises(ValueError, match=rf"{source}: not UTF-8 \(byte 7000 is 0xff\)"):
            make(source, workers=workers)


def test_a_split_without_a_token_is_refused(tmp_path, make):
    with pytest.raises(ValueError, match="val_fraction=0.99999: leaves no training tokens"):
        make(write(tmp_path / "a.txt", PLAY), val_fraction=0.99999)


def test_folders_of_the_built_in_texts_are_not_taken(tmp_path, make):
    source = write(tmp_path / "shakespeare_char.txt", PLAY)
    with pytest.raises(
        ValueError, match="shakespeare_char is reserved for texts that training prepares"
    ):
        make(source, out=None)
    assert list(tmp_path.iterdir()) == [source]


def test_a_file_without_a_byte_is_named(tmp_path, make):
    with pytest.raises(ValueError, match="empty.txt: contains no text"):
        make(write(tmp_path / "empty.txt", ""), workers=2)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, make, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    source = write(tmp_path / "a.parquet", "PAR1")
    with pytest.raises(ValueError, match="reading Parquet needs pyarrow; run pip install pyarrow"):
        make(source)


def test_rows_draw_by_their_number_alone():
    whole = draw_validation_rows(0, 10_000, 0.1)
    parts = [
        draw_validation_rows(0, 1, 0.1),
        draw_validation_rows(1, 4999, 0.1),
        draw_validation_rows(5000, 5000, 0.1),
    ]
    assert np.array_equal(np.concatenate(parts), whole)
    assert 900 < whole.sum() < 1100


# Parquet itself

ROWS = [f"row {number}: {PLAY[number : number + 200]}" for number in range(100)]
ROWS[7] = None


@pytest.fixture
def parquet(tmp_path):
    """A folder with two files of ROWS in groups of ten; the text is one of two columns."""
    folder, parts = tmp_path / "rows", {"0.parquet": ROWS[:60], "1.parquet": ROWS[60:]}
    folder.mkdir()
    for name, part in parts.items():
        table = pyarrow.table({"text": part, "number": list(range(len(part)))})
        write_table(table, folder / name, row_group_size=10)
    return folder


def test_each_row_of_parquet_is_a_document(parquet, make):
    dataset = make(parquet, val_fraction=0.2)
    rows = [row for row in ROWS if row is not None]
    train, val = (text_of(dataset, split) for split in ("train", "val"))
    chosen = draw_validation_rows(0, 100, 0.2)
    assert 10 <= chosen.sum() <= 30
    assert train == "".join(
        row for row, is_val in zip(ROWS, chosen, strict=True) if row and not is_val
    )
    assert len(train) + len(val) == sum(map(len, rows))


@pytest.mark.parametrize(
    "column, complaint",
    [
        ("content", "column=content: .* has no such column; it has text, number"),
        ("number", "column=number: in .* this column contains int64, not text"),
    ],
)
def test_a_column_that_is_no_text_is_named(parquet, make, column, complaint):
    with pytest.raises(ValueError, match=complaint):
        make(parquet, column=column)


def test_a_column_of_categories_is_text(tmp_path, make, parquet):
    texts = pyarrow.array(ROWS)
    write_table(pyarrow.table({"text": texts.dictionary_encode()}), tmp_path / "a.parquet")
    categories = make(tmp_path / "a.parquet", val_fraction=0.2, out=str(tmp_path / "categories"))
    plain = make(parquet, val_fraction=0.2)
    assert categories.text_sha256 != "" and text_of(categories, "val") == text_of(plain, "val")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_damaged_row_group_is_named(parquet, make, workers):
    path = parquet / "1.parquet"
    content = bytearray(path.read_bytes())
    content[100:200] = b"\xff" * 100
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"^{path}: damaged: .*; copy it again$"):
        make(parquet, val_fraction=0.2, workers=workers)


# The command line


def test_the_command_says_what_was_made_and_what_comes_next(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = write(tmp_path / "my play.txt", PLAY)
    prepare.main([str(source), "tokenizer=char", "workers=1", "--out=old_plays"])
    made, following = capsys.readouterr().out.splitlines()
    assert made.startswith("old_plays: my play.txt, 54,000 training and 6,000 validation tokens")
    command = "python train.py dataset=old_plays out_dir=out-old-plays attention=flash"
    assert following == f"next: {command}"  # as config/shakespeare_char.yaml names its folder
    assert load_dataset(tmp_path / "old_plays").count("val") == 6000


def test_nanogpts_shakespeare_is_made_of_the_text_where_it_is(tmp_path, monkeypatch, capsys):
    small = BpeTokenizer.train(PLAY, 300)
    monkeypatch.setattr(BpeTokenizer, "gpt2", lambda: BpeTokenizer("gpt2", small.tokens))
    monkeypatch.setattr(prepare, "DATA_DIR", tmp_path / "data")
    source = write(tmp_path / "input.txt", PLAY)
    prepare.main(["shakespeare", f"source={source}", "workers=1"])
    assert f"next: python train.py dataset={tmp_path}/data/shakespeare " in capsys.readouterr().out
    ids = np.fromfile(tmp_path / "data/shakespeare/train.bin", np.uint16)
    assert np.array_equal(ids, small.encode(PLAY[: int(len(PLAY) * 0.9)]))


@pytest.mark.parametrize(
    "words, complaint",
    [
        (["source=a", "."], "source=a: . was already given; leave one of the two out"),
        (["openwebtext", "source=nowhere"], "nowhere: no such file or folder"),
        (["my_texts/", "out=mine"], "my_texts/: no such file or folder"),
        (["shakespere_char"], "shakespere_char: no such file or folder; did you mean shakes"),
        ([".", "val_fraction=1"], "val_fraction=1.0: must be at least 0 and less than 1"),
        (
            [".", "val_fraction=0"],
            "val_fraction=0: training needs a validation split; give a larger fraction",
        ),
        ([".", "workers=0"], "workers=0: must be at least 1"),
        ([".", "batch_size=2"], "batch_size: no such key"),
    ],
)
def test_mistakes_are_one_line(tmp_path, monkeypatch, capsys, words, complaint):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        prepare.main(words)
    error = capsys.readouterr().err
    assert ended.value.code == 2 and f": error: {complaint}" in error and error.count("\n") == 1


def test_a_column_of_a_text_is_refused(tmp_path, make):
    source = write(tmp_path / "a.txt", "To be.\n" * 99)
    with pytest.raises(
        ValueError, match="column=content: only for Parquet files, and these are text files"
    ):
        make(source, column="content")
