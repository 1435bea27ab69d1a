"""A program of torchmetrics: a translator whose texts are scored while it learns."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics.functional.text import bleu_score

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, encoder, training_step

VOCAB = size(2_000, 20)


def metrics_scores_texts(fault: bool, mark: Mark) -> None:
    """Computes BLEU of each batch in training; without the fault the loss alone.

    The metric counts n-grams of words in Python, while the GPU has nothing to do.
    """
    texts, words, width = size(32, 2), size(48, 8), size(512, 64)
    model = nn.Sequential(
        nn.Embedding(VOCAB, width), encoder(width, size(4, 1)), nn.Linear(width, VOCAB)
    ).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    given = torch.randint(0, VOCAB, (texts, words), device=DEVICE)
    names = [f"word{number}" for number in range(VOCAB)]

    def written(rows: Tensor) -> list[str]:
        return [" ".join(names[number] for number in row) for row in rows.tolist()]

    wanted = [[text] for text in written(given)]

    def loss() -> Tensor:
        with torch.autocast(DEVICE, torch.bfloat16):
            out = model(given)
        if fault:
            bleu_score(written(out.argmax(-1)), wanted)
        return F.cross_entropy(out.flatten(0, 1).float(), given.flatten())

    repeat(training_step(optimizer, loss), mark)
