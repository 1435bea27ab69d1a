"""GPT-2s with reproducible weights, and logits that transformers computed from them.

python -m tests.helpers.gpt2        writes tests/goldens/gpt2/logits.json anew, by transformers
"""

import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from configs.model import ModelConfig
from data.tokenizers import _byte_of_letter
from kernels.fused_model import make_model
from model import GPT
from tests.paths import GOLDENS

LOGITS = GOLDENS / "gpt2" / "logits.json"
SHAPE = dict(n_layer=2, n_head=3, n_embd=24, block_size=12)
VOCAB = 29
ACTIVATIONS = {"gelu_tanh": "gelu_new", "gelu": "gelu"}
TOKENS = [[3, 1, 4, 1, 5, 9, 2, 6, 28, 0], [27, 18, 28, 18, 2, 8, 4, 5, 9, 0]]


def tiny_config(activation: str = "gelu_tanh", **keys) -> ModelConfig:
    return ModelConfig(**{**SHAPE, "dropout": 0.0, "bias": True, "activation": activation, **keys})


def waves(config: ModelConfig, vocab_size: int = VOCAB) -> dict[str, Tensor]:
    """Weights of our model by a formula, so that no generator of random numbers matters.

    Norms and biases too are far from 1 and 0, and logits are some units large.
    """
    state = make_model(config, vocab_size).state_dict()
    for number, (name, weight) in enumerate(sorted(state.items())):
        values = np.sin(np.arange(weight.numel()) * (1.7 + 0.13 * number) + number)
        size = 1.0 if name.endswith("wte.weight") else 0.4
        values = size * values + (1.0 if "ln_" in name and name.endswith("weight") else 0.0)
        weight.copy_(torch.from_numpy(values.reshape(weight.shape)))
    state["lm_head.weight"] = state["transformer.wte.weight"]
    return state


def tiny_gpt2(config: ModelConfig, vocab_size: int = VOCAB) -> GPT:
    model = make_model(config, vocab_size).eval()
    model.load_state_dict(waves(config, vocab_size))
    return model


def vocabulary(tokens: list[bytes]) -> dict[str, int]:
    """Token -> id of these tokens and <|endoftext|>, spelt as in GPT-2's vocab.json."""
    letters = {byte: letter for letter, byte in _byte_of_letter().items()}
    words = ["".join(letters[byte] for byte in token) for token in tokens]
    return {word: rank for rank, word in enumerate([*words, "<|endoftext|>"])}


@torch.no_grad()
def logits_of(model: GPT, tokens: Tensor) -> Tensor:
    """Logits at all positions, (B, T, V)."""
    return model(tokens, tokens)[0]


def write_logits() -> None:
    """Write the logits of transformers' own model, which reads the weights from our file."""
    import transformers

    from training.disk.gpt2 import write

    made: dict[str, object] = {
        "by": f"transformers {transformers.__version__}, torch {torch.__version__}"
    }
    for activation in ACTIVATIONS:
        folder = Path("/tmp", f"gpt2-{activation}")
        config = tiny_config(activation)
        write(folder, waves(config), config, has_gpt2_s=False)
        model = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
        with torch.no_grad():
            logits = model(torch.tensor(TOKENS)).logits
        made[activation] = [[[round(v, 5) for v in at] for at in row] for row in logits.tolist()]
    LOGITS.parent.mkdir(exist_ok=True)
    LOGITS.write_text(json.dumps(made) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_logits()
