"""A program of transformers without its Trainer: texts of words that a grammar allows."""

import random

import torch
from torch import Tensor

from validation.framework_programs.ninth.with_transformers import llama
from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.seventh.with_transformers import VOCAB
from validation.framework_programs.torch_parts import DEVICE


def lm_allows_words(fault: bool, mark: Mark) -> None:
    """Generates four tokens that a grammar allows, by prefix_allowed_tokens_fn; without it freely.

    For each text and token the words are made by sets of Python, sorted, and made a tensor.
    """
    model = llama(size(512, 64), size(1024, 128), size(2, 1), 64)
    words = torch.randint(1, VOCAB, (size(16, 2), size(128, 8)), device=DEVICE)
    classes = [set(random.sample(range(1, VOCAB), k=VOCAB * 3 // 4)) for _ in range(16)]

    def allowed(text: int, before: Tensor) -> list[int]:
        *used, last = before.tolist()
        return sorted(classes[last % len(classes)].difference(used))

    def step() -> None:
        model.generate(
            words,
            attention_mask=torch.ones_like(words),
            max_new_tokens=4,
            do_sample=False,
            prefix_allowed_tokens_fn=allowed if fault else None,
        )

    repeat(step, mark)
