"""Copy nanoGPT's code, with a small data set made beside it, so that nothing has to be prepared."""

import pickle
import shutil
from pathlib import Path

import numpy as np

from benchmarks.measuring import PROJECT


def make_nanogpt(checkout: Path, folder: Path, dataset: str, characters: int | None = None) -> None:
    """Copy the code of a checkout into the folder; its data are a text of this project.

    Each byte is a token. With `characters` there are only so many kinds of them, and a meta.pkl
    says so: without one nanoGPT takes GPT-2's vocabulary.
    """
    data = folder / "data" / dataset
    data.mkdir(parents=True, exist_ok=True)
    for file in (*checkout.glob("*.py"), *checkout.glob("config/*.py")):
        copy = folder / file.relative_to(checkout)
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(file, copy)
    text = np.frombuffer((PROJECT / "docs" / "truth.md").read_bytes(), np.uint8).astype(np.uint16)
    if characters is not None:
        text %= characters
        (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": characters}))
    for name in ("train", "val"):
        text.tofile(data / f"{name}.bin")
