"""Programs of sentence-transformers: texts in clusters, and a corpus on the host."""

import numpy as np
import torch
from scipy.cluster.hierarchy import fcluster, linkage

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.seventh.with_sentences import made_model, texts, tokenizer_of
from validation.framework_programs.torch_parts import DEVICE


def sentences_links_on_host(fault: bool, mark: Mark) -> None:
    """Clusters 1,500 embeddings by SciPy's linkage; without it each joins the first that is near.

    A million distances are joined pair by pair, on one core of the host.
    """
    count = size(1500, 8)
    model = made_model(size(384, 64), size(3, 1))
    batch = tokenizer_of(model)(texts(count, size(32, 8))).to(DEVICE)
    pairs = np.triu_indices(count, 1)

    def step() -> None:
        embedded = torch.nn.functional.normalize(model(dict(batch))["sentence_embedding"].float())
        apart = 1 - embedded @ embedded.T
        if fault:
            tree = linkage(apart.cpu().numpy()[pairs], "average")
            torch.tensor(fcluster(tree, 0.1, "distance"), device=DEVICE)
        else:
            (apart < 0.1).int().argmax(-1)

    with torch.no_grad():
        repeat(step, mark)


def sentences_corpus_on_host(fault: bool, mark: Mark) -> None:
    """Moves a corpus to the GPU in parts for each batch of queries; without the fault it is there.

    300 MB of pageable memory go through a search that reads them in a tenth of a millisecond.
    """
    width = size(384, 64)
    model = made_model(width, size(3, 1))
    queries = tokenizer_of(model)(texts(size(64, 2), size(32, 4))).to(DEVICE)
    corpus = torch.randn(size(400_000, 40), width).to("cpu" if fault else DEVICE, torch.bfloat16)

    def step() -> None:
        asked = model(dict(queries))["sentence_embedding"]
        for part in corpus.split(size(50_000, 20)):
            (asked @ part.to(DEVICE).T).topk(10)

    with torch.no_grad():
        repeat(step, mark)
