"""Programs of transformers in loops of their own: a teacher's answers, entropies, and a text."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import GPT2Config, LlamaConfig

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.seventh.with_transformers import made
from validation.framework_programs.torch_parts import DEVICE

VOCAB = size(32_768, 128)


def llama(width: int, layers: int, vocab: int) -> Any:
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
    )
    return made(config).to(torch.bfloat16).train()


def lm_distills_all_words(fault: bool, mark: Mark) -> None:
    """Learns from a teacher's logits of all words on the host; without the fault the best 32.

    268 MB of pageable memory for each batch, nearly all of them of words with no chance.
    """
    shape = size(16, 2), size(256, 8)
    best = 32
    student = llama(size(512, 64), 2, VOCAB)
    optimizer = torch.optim.AdamW(student.parameters(), 1e-4, fused=True)
    words = torch.randint(0, VOCAB, shape, device=DEVICE)
    of_teacher = torch.randn(*shape, VOCAB if fault else best).to(torch.bfloat16)
    which = torch.randint(0, VOCAB, (*shape, best))

    def step() -> None:
        logits = student(input_ids=words, use_cache=False).logits
        if not fault:
            logits = logits.gather(-1, which.to(DEVICE))
        wanted = of_teacher.to(DEVICE).softmax(-1)
        F.cross_entropy(logits.flatten(0, 1), wanted.flatten(0, 1)).backward()
        optimizer.step()
        optimizer.zero_grad()

    repeat(step, mark)


def lm_adds_entropy(fault: bool, mark: Mark) -> None:
    """Rewards a policy's entropy over 131,072 words by its formula; without the fault not at all.

    Chances, their logarithms and their products are tensors of a gigabyte and more.
    """
    vocab, width, count = size(131_072, 128), size(512, 64), size(4096, 8)
    policy = llama(width, 1, vocab)
    optimizer = torch.optim.AdamW(policy.parameters(), 1e-4, fused=True)
    words = torch.randint(0, vocab, (4, count // 4), device=DEVICE)
    rewards = torch.randn(count, device=DEVICE)

    def step() -> None:
        logits = policy(input_ids=words, use_cache=False).logits.flatten(0, 1)
        surprises = F.cross_entropy(logits, words.flatten(), reduction="none")
        loss = (surprises * rewards).mean()
        if fault:
            chances = logits.float().softmax(-1)
            loss = loss + 0.01 * (chances * (chances + 1e-8).log()).sum(-1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    repeat(step, mark)


def lm_writes_control(fault: bool, mark: Mark) -> None:
    """Writes eight words behind one short prompt by a small GPT-2, as generate() does it."""
    config = GPT2Config(
        n_embd=size(512, 64),
        n_layer=size(8, 1),
        n_head=8,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = made(config).eval()
    prompt: Tensor = torch.randint(1, 1000, (1, 16), device=DEVICE)
    seen = {"attention_mask": torch.ones_like(prompt)}
    repeat(lambda: model.generate(prompt, **seen, max_new_tokens=8), mark)
