"""The keys that decide which text is trained on and how its batches reach the device."""

import os
from dataclasses import dataclass

from cli.keys import key

BUILT_IN = ("shakespeare_char", "shakespeare_bpe")


@dataclass
class DataConfig:
    """Flat keys of the configuration; `configs.Config` inherits them."""

    dataset: str = key(
        "shakespeare_char",
        "what to train on: shakespeare_char or shakespeare_bpe, prepared at first use in data/ "
        "(of an installation: in the user's cache); or a folder of tokens, by path or by its "
        "name in data/",
        role="text",
        path=True,
    )
    data_source: str | None = key(
        None, "a text file of your own (UTF-8) instead of tiny Shakespeare", role="text", path=True
    )
    offline_fallback: bool = key(
        True,
        "without a network, use the built-in substitute text; false: stop instead",
        role="start",
    )
    tokenizer: str = key(
        "auto",
        "for shakespeare_bpe: gpt2, local (trained on the text), auto (gpt2 if available)",
        ("auto", "gpt2", "local"),
        role="text",
    )
    bpe_vocab_size: int = key(
        2048, "tokens of a local BPE vocabulary, at least 256", least=256, role="text"
    )
    batch_size: int = key(64, "sequences in a micro-batch, on each rank", least=1, role="work")
    eval_batch_size: int | None = key(
        None,
        "sequences evaluated at once on each rank; null: chosen for device and model",
        least=1,
        role="watching",
    )
    token_storage: str = key(
        "auto",
        "where to keep the tokens: device, mmap (read from disk, pinned and prefetched), auto "
        "(device if they fit)",
        ("auto", "device", "mmap"),
        role="speed",
    )

    @property
    def dataset_name(self) -> str:
        """Name of the dataset in the names of runs: the last part of its path."""
        return os.path.basename(os.path.abspath(self.dataset))
