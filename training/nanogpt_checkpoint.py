"""nanoGPT's ckpt.pt as one of ours: the same model, whose tokens the file does not hold.

Called by training.checkpoint_file, which then checks every entry as it does those of our own.
"""

import os
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from configs.model import ModelConfig
from data.token_folder import tokenizer_of

COMPILED = "_orig_mod."  # what torch.compile puts before each name
MASKS = re.compile(
    r"transformer\.h\.\d+\.attn\.bias"
)  # without flash attention, of four dimensions
VOCABULARY = ("transformer.wte.weight", "lm_head.weight")  # have a row for each token
SHAPE = ("n_layer", "n_head", "n_embd", "block_size")


def is_nanogpts(state: dict[str, Any]) -> bool:
    return isinstance(state.get("model_args"), dict) and "tokenizer" not in state


def as_ours(path: Path, state: dict[str, Any]) -> dict[str, Any]:
    """The entries that a checkpoint of ours has, without those that only a resume needs.

    Its vocabulary is often padded, 50,304 for GPT-2's 50,257 tokens: rows without a token are left
    out. Raises ValueError or KeyError of what is missing or wrong.
    """
    asked, trained = state["model_args"], state["config"]
    shape = {name: asked[name] for name in SHAPE}
    rest = {name: asked[name] for name in ("bias", "dropout") if name in asked}
    # its default; asdict of a valid instance, for `shape` may hold anything
    config = asdict(ModelConfig(dropout=0.0, bias=True)) | shape | rest
    folder = tokens_folder(path, trained["dataset"])
    tokenizer = tokenizer_of(folder)
    weights = {str(name).removeprefix(COMPILED): weight for name, weight in state["model"].items()}
    weights = {
        name: w for name, w in weights.items() if not (MASKS.fullmatch(name) and w.dim() > 1)
    }
    rows = min(len(weights[name]) for name in VOCABULARY)
    if tokenizer.vocab_size > rows:
        raise ValueError(
            f"of {rows:,} tokens, which meta.pkl describes, and there is none for "
            f"dataset={trained['dataset']} in {folder}; copy it to {path.parent}"
        )
    for name in VOCABULARY:
        weights[name] = weights[name][: tokenizer.vocab_size]
    best = state["best_val_loss"]
    return {
        "model": weights,
        "config": config,
        "tokenizer": tokenizer.to_record(),
        "iter_num": state["iter_num"],
        "best_val_loss": best.item() if isinstance(best, Tensor) else best,
        "text": {"source": f"{trained['dataset']}, by nanoGPT"},
    }


def tokens_folder(path: Path, dataset: str) -> Path:
    """Where the tokens' meta.pkl lies: beside ckpt.pt, or in data/ beside its folder or from here.

    Without one it is the checkout's folder, and tokens are GPT-2's, as in nanoGPT.
    """
    beside = path.parent.absolute().parent / "data" / dataset
    places = [path.parent, beside, Path("data") / dataset]
    return next((place for place in places if os.path.lexists(place / "meta.pkl")), beside)
