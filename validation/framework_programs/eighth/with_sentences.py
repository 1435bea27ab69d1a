"""A program of sentence-transformers: a search by the distance of embeddings."""

import torch
from torch import Tensor

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.seventh.with_sentences import made_model, texts, tokenizer_of
from validation.framework_programs.torch_parts import DEVICE


def sentences_broadcast(fault: bool, mark: Mark) -> None:
    """Takes the differences of all queries and passages; without the fault their products.

    Both rank alike, for all have length one, but the differences are tensors of gigabytes.
    """
    width, count = size(384, 64), size(64, 2)
    model = made_model(width, size(3, 1))
    queries = tokenizer_of(model)(texts(count, size(32, 8))).to(DEVICE)
    passages = torch.nn.functional.normalize(torch.randn(size(160_000, 40), width, device=DEVICE))
    parts = passages.split(size(20_000, 10))

    def near(asked: Tensor, part: Tensor) -> Tensor:
        if fault:
            return -(asked[:, None] - part).square().sum(-1)
        return asked @ part.T

    def step() -> None:
        asked = model(dict(queries))["sentence_embedding"].float()
        asked = torch.nn.functional.normalize(asked)
        torch.cat([near(asked, part) for part in parts], 1).topk(10)

    with torch.no_grad():
        repeat(step, mark)
