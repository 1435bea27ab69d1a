"""Programs of sentence-transformers: a search among millions of passages, and a wide model."""

import torch

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.seventh.with_sentences import made_model, texts, tokenizer_of
from validation.framework_programs.torch_parts import DEVICE, bfloats


def sentences_sorts_all_scores(fault: bool, mark: Mark) -> None:
    """Sorts 16 million scores of each query for the best ten; without the fault by topk.

    The sort moves scores and their numbers through memory again and again.
    """
    width = size(128, 64)
    model = made_model(width, size(3, 1))
    queries = tokenizer_of(model)(texts(size(16, 2), size(16, 4))).to(DEVICE)
    passages = bfloats(size(16_000_000, 20), width)

    def step() -> None:
        scores = (model(dict(queries))["sentence_embedding"] @ passages.T).float()
        scores.argsort(-1, descending=True)[:, :10] if fault else scores.topk(10)

    with torch.no_grad():
        repeat(step, mark)


def sentences_wide_control(fault: bool, mark: Mark) -> None:
    """Embeds texts by a layer as wide as those of large models."""
    model = made_model(size(4096, 64), 1)
    batch = tokenizer_of(model)(texts(size(128, 2), size(256, 16))).to(DEVICE)
    with torch.no_grad():
        repeat(lambda: model(dict(batch)), mark)
