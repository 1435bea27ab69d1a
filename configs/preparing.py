"""The keys of `python -m data.prepare` for texts of any size."""

from dataclasses import dataclass

from cli.keys import check_values, key


@dataclass
class FilesConfig:
    """Keys of the preparation of text files or Parquet, without sections."""

    source: str = key("", "the first word: a file, or a folder with *.txt or *.parquet")
    out: str | None = key(
        None, "folder to create; null: named after the source, in the folder of prepared texts"
    )
    tokenizer: str = key(
        "gpt2",
        "gpt2: GPT-2's byte pairs; char: characters; local: byte pairs trained on the start of "
        "the text",
        ("gpt2", "char", "local"),
    )
    bpe_vocab_size: int = key(2048, "tokens of a local BPE vocabulary, at least 256", least=256)
    column: str = key("text", "for Parquet files: the column with the text")
    val_fraction: float | None = key(
        None,
        "share for validation: the end of text files, or some rows of Parquet; null: 0.1 of "
        "text, 0.0005 of Parquet, as in nanoGPT",
        least=0,
        below=1,
    )
    workers: int | None = key(None, "encoding processes; null: one per core", least=1)

    def __post_init__(self) -> None:
        check_values(self)
        if self.val_fraction == 0:
            raise ValueError(
                "val_fraction=0: training needs a validation split; give a larger fraction"
            )
        if self.out is not None and not self.out.strip():
            raise ValueError("out: must not be empty")
