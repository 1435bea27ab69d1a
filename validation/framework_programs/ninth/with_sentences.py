"""A program of sentence-transformers: a search among passages that do not change."""

from typing import Any

import torch
from torch import Tensor

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.seventh.with_sentences import made_model, texts, tokenizer_of
from validation.framework_programs.torch_parts import DEVICE


def sentences_embeds_again(fault: bool, mark: Mark) -> None:
    """Embeds all passages again for each batch of queries; without the fault once, before.

    Nearly all of the products are of texts whose embeddings are known.
    """
    model = made_model(size(2048, 64), size(3, 1))
    tokenize = tokenizer_of(model)
    passages = tokenize(texts(size(160, 4), size(256, 16))).to(DEVICE)
    queries = tokenize(texts(size(16, 2), size(16, 4))).to(DEVICE)

    def embedded(batch: dict[str, Tensor]) -> Any:
        return model(dict(batch))["sentence_embedding"]

    with torch.no_grad():
        known = embedded(passages)

        def step() -> None:
            found = embedded(passages) if fault else known
            (embedded(queries) @ found.T).topk(size(10, 2))

        repeat(step, mark)
