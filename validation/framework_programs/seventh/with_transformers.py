"""Programs of transformers without its Trainer: language models in loops of their own."""

from typing import Any

import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPTNeoXConfig, LlamaConfig

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, training_step

VOCAB = size(8_192, 128)


def made(config: Any, attention: str = "sdpa") -> Any:
    with torch.device(DEVICE):  # random numbers by the thousand millions are quicker there
        return AutoModelForCausalLM.from_config(config, attn_implementation=attention)


def lm_eager_attention(fault: bool, mark: Mark) -> None:
    """Trains with attn_implementation="eager" on long texts; without the fault "sdpa".

    The scores of all pairs of tokens go to memory and back several times.
    """
    width = size(1024, 64)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=size(4, 1),
        num_attention_heads=width // 64,
    )
    model = made(config, "eager" if fault else "sdpa").to(torch.bfloat16).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    words = torch.randint(0, VOCAB, (4, size(2048, 16)), device=DEVICE)
    repeat(training_step(optimizer, lambda: model(input_ids=words, labels=words).loss), mark)


def lm_without_cache(fault: bool, mark: Mark) -> None:
    """Generates five tokens with use_cache=False, behind prompts of 512.

    The model computes the whole prompt again for each token.
    """
    width = size(2048, 64)
    config = GPTNeoXConfig(
        vocab_size=VOCAB,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=size(8, 1),
        num_attention_heads=width // 64,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = made(config).to(torch.bfloat16).eval()
    words = torch.randint(1, VOCAB, (size(16, 2), size(512, 8)), device=DEVICE)
    seen = torch.ones_like(words)

    def step() -> None:
        model.generate(
            words,
            attention_mask=seen,
            max_new_tokens=5,
            min_new_tokens=5,
            do_sample=False,
            use_cache=not fault,
        )

    repeat(step, mark)


def lm_one_by_one(fault: bool, mark: Mark) -> None:
    """Accumulates the gradients of 16 texts one by one; without the fault of all at once.

    A short text gives a kernel so little work that launching it takes longer.
    """
    config = GPT2Config(vocab_size=VOCAB, n_embd=size(512, 64), n_layer=size(4, 1), n_head=8)
    model = made(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    words = torch.randint(0, VOCAB, (size(16, 4), size(128, 8)), device=DEVICE)
    parts = words.split(1 if fault else len(words))

    def step() -> None:
        for part in parts:
            with torch.autocast(DEVICE, torch.bfloat16):
                loss = model(input_ids=part, labels=part).loss / len(parts)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    repeat(step, mark)
