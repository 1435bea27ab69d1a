"""Checkpoints in the format of nanoGPT, and what its model computes of the weights in them."""

import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.helpers.token_folders import CHARACTERS

SHAPE = {"n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 12}
Weights = dict[str, Tensor]


def random_weights(vocab_size: int, bias: bool) -> Weights:
    """Random weights under nanoGPT's names, with norms and biases far from 1 and 0."""
    generator = torch.Generator().manual_seed(5)
    width = SHAPE["n_embd"]
    sizes = {"attn.c_attn": (3, 1), "attn.c_proj": (1, 1), "mlp.c_fc": (4, 1), "mlp.c_proj": (1, 4)}
    shapes = {"wte.weight": (vocab_size, width), "wpe.weight": (SHAPE["block_size"], width)}
    for block in range(SHAPE["n_layer"]):
        for name, (rows, columns) in sizes.items():
            shapes[f"h.{block}.{name}.weight"] = rows * width, columns * width
            shapes[f"h.{block}.{name}.bias"] = (rows * width,)
        for norm in (f"h.{block}.ln_1", f"h.{block}.ln_2"):
            shapes |= {f"{norm}.weight": (width,), f"{norm}.bias": (width,)}
    shapes |= {"ln_f.weight": (width,), "ln_f.bias": (width,)}
    made = {
        f"transformer.{name}": torch.randn(shape, generator=generator) / 3
        for name, shape in shapes.items()
        if bias or not name.endswith("bias")
    }
    return made | {"lm_head.weight": made["transformer.wte.weight"]}


def write_nanogpt_checkpoint(
    path: Path,
    vocab_size: int = len(CHARACTERS),
    bias: bool = False,
    dataset: str = "mine",
    prefix: str = "",
    masks: bool = False,
) -> Weights:
    """Write ckpt.pt as nanoGPT's train.py does, and return its weights without the names' `prefix`.

    `masks` adds the buffers that nanoGPT's attention has where PyTorch's own is not available.
    """
    weights = random_weights(vocab_size, bias)
    buffers = {
        f"transformer.h.{block}.attn.bias": torch.ones(1, 1, 12, 12).tril()
        for block in range(SHAPE["n_layer"] if masks else 0)
    }
    state = {
        "model": {prefix + name: tensor for name, tensor in (weights | buffers).items()},
        "optimizer": {"state": {}, "param_groups": [{"lr": 1e-3, "params": [0, 1]}]},
        "model_args": {**SHAPE, "bias": bias, "vocab_size": vocab_size, "dropout": 0.2},
        "iter_num": 250,
        "best_val_loss": torch.tensor(1.5),  # a tensor, as in nanoGPT
        "config": {"dataset": dataset, "batch_size": 64, "out_dir": "out", "compile": True},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path)
    return weights


def reference_logits(weights: Weights, tokens: Tensor) -> Tensor:
    """Logits (T, V) of tokens (T), computed as GPT-2 does, by plain products and softmax."""
    of = {name.removeprefix("transformer."): tensor for name, tensor in weights.items()}

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ of[f"{name}.weight"].T + of.get(f"{name}.bias", torch.zeros(()))

    def norm(x: Tensor, name: str) -> Tensor:
        x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()
        return x * of[f"{name}.weight"] + of.get(f"{name}.bias", torch.zeros(()))

    width, heads = SHAPE["n_embd"], SHAPE["n_head"]
    later = torch.ones(len(tokens), len(tokens)).triu(1).bool()
    x = of["wte.weight"][tokens] + of["wpe.weight"][: len(tokens)]
    for block in range(SHAPE["n_layer"]):
        q, k, v = (
            each.view(len(tokens), heads, -1).transpose(0, 1)
            for each in linear(norm(x, f"h.{block}.ln_1"), f"h.{block}.attn.c_attn").split(width, 1)
        )
        scores = (q @ k.mT / math.sqrt(width // heads)).masked_fill(later, -math.inf)
        y = (scores.softmax(-1) @ v).transpose(0, 1).reshape(len(tokens), width)
        x = x + linear(y, f"h.{block}.attn.c_proj")
        h = F.gelu(linear(norm(x, f"h.{block}.ln_2"), f"h.{block}.mlp.c_fc"))
        x = x + linear(h, f"h.{block}.mlp.c_proj")
    return norm(x, "ln_f") @ of["lm_head.weight"].T
