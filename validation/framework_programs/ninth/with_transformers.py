"""Programs of transformers without its Trainer: language models that read long prompts."""

from typing import Any

import torch
from transformers import LlamaConfig

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.seventh.with_transformers import VOCAB, made
from validation.framework_programs.torch_parts import DEVICE


def llama(width: int, wide: int, layers: int, head: int) -> Any:
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=width,
        intermediate_size=wide,
        num_hidden_layers=layers,
        num_attention_heads=width // head,
        eos_token_id=None,
        pad_token_id=0,
        dtype=torch.bfloat16,
    )
    return made(config).to(torch.bfloat16).eval()


def lm_offloads_cache(fault: bool, mark: Mark) -> None:
    """Generates four tokens with cache_implementation="offloaded"; without the fault "dynamic".

    Each layer's keys and values go to the host and come back for each token.
    """
    model = llama(size(512, 64), size(1024, 128), size(8, 1), 64)
    words = torch.randint(1, VOCAB, (size(32, 2), size(1000, 8)), device=DEVICE)
    cache, seen = "offloaded" if fault and DEVICE == "cuda" else "dynamic", torch.ones_like(words)

    def step() -> None:
        model.generate(words, attention_mask=seen, max_new_tokens=4, cache_implementation=cache)

    repeat(step, mark)


def lm_prompts_control(fault: bool, mark: Mark) -> None:
    """Reads prompts by two layers as wide as those of the largest models."""
    model = llama(size(8192, 128), size(28_672, 256), 2, 128)
    words = torch.randint(1, VOCAB, (2, size(2048, 16)), device=DEVICE)
    with torch.no_grad():
        repeat(lambda: model(input_ids=words, use_cache=False, logits_to_keep=1), mark)
