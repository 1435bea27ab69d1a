"""Converts nanoGPT's ckpt.pt to one of ours: the same model, whose tokenizer the file lacks.

Called by training.disk.checkpoint_file, which then checks every entry as it does those of our own.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from torch import Tensor

from cli.records import entry
from configs.model import ModelConfig
from data.token_folder import tokenizer_of

COMPILED = "_orig_mod."  # what torch.compile puts before each name
# causal masks of four dimensions, which nanoGPT saves when it runs without flash attention
MASKS = re.compile(r"transformer\.h\.\d+\.attn\.bias")
VOCABULARY = ("transformer.wte.weight", "lm_head.weight")  # one row for each token
SHAPE = ("n_layer", "n_head", "n_embd", "block_size")


def is_nanogpts(state: Mapping[str, object]) -> bool:
    return isinstance(state.get("model_args"), dict) and "tokenizer" not in state


def convert_checkpoint(path: Path, state: Mapping[str, object]) -> dict[str, object]:
    """The entries of a checkpoint of ours, without those that only a resume needs.

    nanoGPT's vocabulary is often padded, to 50,304 rows for GPT-2's 50,257 tokens; rows without a
    token are dropped. Raises ValueError or KeyError where something is missing or wrong.
    """
    asked, trained = entry(state, "model_args", dict), entry(state, "config", dict)
    shape = {name: asked[name] for name in SHAPE}
    rest = {name: asked[name] for name in ("bias", "dropout") if name in asked}
    # nanoGPT's defaults. They are of a valid instance, because `shape` may hold anything.
    config = asdict(ModelConfig(dropout=0.0, bias=True)) | shape | rest
    folder = tokens_folder(path, trained["dataset"])
    tokenizer = tokenizer_of(folder)
    model = entry(state, "model", dict)
    weights = {str(name).removeprefix(COMPILED): weight for name, weight in model.items()}
    weights = {
        name: w for name, w in weights.items() if not (MASKS.fullmatch(name) and w.dim() > 1)
    }
    rows = min(len(weights[name]) for name in VOCABULARY)
    if tokenizer.vocab_size > rows:
        raise ValueError(
            f"has {rows:,} tokens, which meta.pkl describes, and there is no meta.pkl for "
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
    """Folder with the tokens' meta.pkl: ckpt.pt's own, or data/DATASET beside it or from here.

    Without a meta.pkl it is data/DATASET in the checkout, and tokens are GPT-2's, as in nanoGPT.
    """
    beside = path.parent.absolute().parent / "data" / dataset
    places = [path.parent, beside, Path("data") / dataset]
    return next((place for place in places if os.path.lexists(place / "meta.pkl")), beside)
