"""Data set made for nanoGPT: what its train.py reads, and nothing else of the checkout."""

import pickle

import numpy as np

from validation.made_nanogpt import make_nanogpt


def test_the_code_and_a_data_set_are_there_and_no_other_data(tmp_path):
    checkout, folder = tmp_path / "nanoGPT", tmp_path / "made" / "copy"
    for name in ("train.py", "config/train_shakespeare_char.py", "data/openwebtext/train.bin"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("text")
    make_nanogpt(checkout, folder, "made", characters=65)
    data = folder / "data" / "made"
    made = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert made == {"train.py", "config/train_shakespeare_char.py"} | {
        f"data/made/{name}" for name in ("train.bin", "val.bin", "meta.pkl")
    }
    tokens = np.fromfile(data / "train.bin", np.uint16)
    assert len(tokens) > 50_000 and tokens.max() < 65
    assert pickle.loads((data / "meta.pkl").read_bytes()) == {"vocab_size": 65}
    make_nanogpt(checkout, tmp_path / "bytes", "made")
    assert not (tmp_path / "bytes/data/made/meta.pkl").exists()
    assert np.fromfile(tmp_path / "bytes/data/made/val.bin", np.uint16).max() > 64
