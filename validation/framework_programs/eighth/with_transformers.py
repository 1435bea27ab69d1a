"""A program of transformers: it generates text."""

import torch
from transformers import LlamaConfig

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.seventh.with_transformers import VOCAB, made
from validation.framework_programs.torch_parts import DEVICE


def lm_bans_ngrams(fault: bool, mark: Mark) -> None:
    """Generates with no_repeat_ngram_size=3; without the fault words may come again.

    For each token, Python takes all texts apart into triples of words anew.
    """
    width, new = size(1024, 64), 4
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=size(4, 1),
        num_attention_heads=width // 64,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = made(config).to(torch.bfloat16).eval()
    words = torch.randint(1, VOCAB, (size(64, 2), size(512, 8)), device=DEVICE)
    seen = torch.ones_like(words)

    def step() -> None:
        model.generate(
            words,
            attention_mask=seen,
            max_new_tokens=new,
            min_new_tokens=new,
            do_sample=False,
            no_repeat_ngram_size=3 if fault else 0,
        )

    repeat(step, mark)
