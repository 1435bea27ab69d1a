"""Programs of sentence-transformers, with a model and a tokenizer that are made here."""

import random
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch.utils.data import DataLoader
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, endless

WORDS = [f"word{i}" for i in range(1_000)]
Tokenize = Callable[[list[str]], Any]


def made_model(width: int, layers: int) -> SentenceTransformer:
    """A BERT in bfloat16 with mean pooling, as sentence-transformers reads it from a folder."""
    config = BertConfig(
        vocab_size=len(WORDS) + 2,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
    )
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=512
    )
    with TemporaryDirectory(prefix="sentences-") as folder:
        BertModel(config).save_pretrained(folder)
        fast.save_pretrained(folder)
        return SentenceTransformer(folder, device=DEVICE).to(torch.bfloat16).eval()


def texts(count: int, words: int) -> list[str]:
    return [
        " ".join(random.choices(WORDS, k=random.randint(words // 2, words))) for _ in range(count)
    ]


def tokenizer_of(model: SentenceTransformer, padding: bool | str = True) -> Tokenize:
    return lambda batch: model.tokenizer(batch, padding=padding, return_tensors="pt")


def sentences_tokenized(fault: bool, mark: Mark) -> None:
    """The loader tokenizes each batch in the loop's own process; without the fault it did before.

    Texts become lists of numbers, then tensors, while the GPU has nothing to do.
    """
    model, batch = made_model(size(384, 64), size(3, 1)), size(512, 4)
    tokenize = tokenizer_of(model)
    corpus = texts(8 * batch, size(256, 16))
    loader: DataLoader[Any] = DataLoader(corpus, batch, collate_fn=tokenize)  # type: ignore[arg-type]
    batches = endless(loader if fault else list(loader))
    with torch.no_grad():
        repeat(lambda: model(next(batches).to(DEVICE)), mark)


def sentences_home(fault: bool, mark: Mark) -> None:
    """Takes the embedding of each token home; without the fault that of each sentence.

    They go to pageable memory, which takes longer than computing them.
    """
    model = made_model(size(384, 64), size(3, 1))
    batch = tokenizer_of(model)(texts(size(256, 4), size(256, 16))).to(DEVICE)
    wanted = "token_embeddings" if fault else "sentence_embedding"
    with torch.no_grad():
        repeat(lambda: model(dict(batch))[wanted].float().cpu(), mark)


def sentences_padded(fault: bool, mark: Mark) -> None:
    """Pads short texts to 512 tokens; without the fault to the longest of the batch.

    Nearly all of the matrix products are of padding.
    """
    model = made_model(size(1024, 64), size(6, 1))
    tokenize = tokenizer_of(model, "max_length" if fault else True)
    batch = tokenize(texts(size(128, 2), size(64, 16))).to(DEVICE)
    with torch.no_grad():
        repeat(lambda: model(dict(batch)), mark)
