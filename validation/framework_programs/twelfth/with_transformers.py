"""Programs of transformers: words that end a text, and beams."""

from heapq import nlargest
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, StoppingCriteria, StoppingCriteriaList

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.seventh.with_transformers import VOCAB, made
from validation.framework_programs.torch_parts import DEVICE


def llama(layers: int) -> Any:
    width = size(512, 64)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        eos_token_id=None,
        pad_token_id=0,
    )
    return made(config).to(torch.bfloat16).eval()


class Stops(StoppingCriteria):
    """Ends a text at one of some words, which are compared one by one, or all at once."""

    def __init__(self, words: list[int], one_by_one: bool) -> None:
        self.words, self.one_by_one = words, one_by_one
        self.on_gpu = torch.tensor(words, device=DEVICE)

    def __call__(self, input_ids: Tensor, scores: Tensor, **given: Any) -> Tensor:
        if self.one_by_one:
            ended = [any(text[-1] == word for word in self.words) for text in input_ids]
            return torch.tensor(ended, device=input_ids.device)
        return torch.isin(input_ids[:, -1], self.on_gpu)


def lm_stops_word_by_word(fault: bool, mark: Mark) -> None:
    """Compares the last word of each text with each of eight that end it; without it all at once.

    The host asks the GPU for the answer of each comparison, 256 times for each new word.
    """
    model = llama(2)
    stops = StoppingCriteriaList([Stops(list(range(VOCAB, VOCAB + 8)), fault)])  # never chosen
    prompts = torch.randint(1, VOCAB, (size(32, 2), size(64, 4)), device=DEVICE)
    seen = {"attention_mask": torch.ones_like(prompts)}
    repeat(lambda: model.generate(prompts, **seen, max_new_tokens=4, stopping_criteria=stops), mark)


def lm_beams_on_host(fault: bool, mark: Mark) -> None:
    """Goes on with the best of eight beams by a heap of Python; without the fault by topk.

    65,536 numbers come to the host and become as many tuples.
    """
    beams = size(8, 2)
    model = llama(size(4, 1))
    texts = torch.randint(1, VOCAB, (beams, size(64, 4)), device=DEVICE)
    scores = torch.zeros(beams, 1, device=DEVICE)

    def step() -> None:
        chances = model(texts, use_cache=False).logits[:, -1].float().log_softmax(-1) + scores
        if fault:
            rows = enumerate(chances.tolist())
            sums = ((both, beam, word) for beam, row in rows for word, both in enumerate(row))
            best, froms, words = torch.tensor(nlargest(beams, sums), device=DEVICE).T
            places = (froms * VOCAB + words).long()
        else:
            best, places = chances.flatten().topk(beams)
        scores.copy_(best[:, None])
        texts.copy_(torch.cat([texts[places // VOCAB, 1:], places[:, None] % VOCAB], 1))

    with torch.no_grad():
        repeat(step, mark)
