"""The keys that say which text is trained on and how its batches reach the device."""

from dataclasses import dataclass, field


@dataclass
class DataConfig:
    """Flat keys of the configuration; `configs.Config` inherits them."""

    dataset: str = field(
        default="shakespeare_char",
        metadata={
            "help": "what to train on; prepared at first use under data/",
            "choices": ("shakespeare_char", "shakespeare_bpe"),
        },
    )
    data_source: str | None = field(
        default=None,
        metadata={"help": "a text file of your own (UTF-8) instead of tiny Shakespeare"},
    )
    offline_fallback: bool = field(
        default=True,
        metadata={"help": "without a network use the built-in stand-in text; false: stop instead"},
    )
    tokenizer: str = field(
        default="auto",
        metadata={
            "help": "for shakespeare_bpe: gpt2, local (trained on the text), "
            "auto (gpt2 where it can be had)",
            "choices": ("auto", "gpt2", "local"),
        },
    )
    bpe_vocab_size: int = field(
        default=2048, metadata={"help": "tokens of a local BPE vocabulary, at least 256"}
    )
    batch_size: int = field(
        default=64, metadata={"help": "sequences in a micro-batch, on each rank"}
    )
    token_storage: str = field(
        default="auto",
        metadata={
            "help": "where tokens live: device, mmap (read from disk, pinned and prefetched), "
            "auto (device when they fit)",
            "choices": ("auto", "device", "mmap"),
        },
    )

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size={self.batch_size}: must be at least 1")
        if self.bpe_vocab_size < 256:
            raise ValueError(
                f"bpe_vocab_size={self.bpe_vocab_size}: must be at least 256, one for each byte"
            )
