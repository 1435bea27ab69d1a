"""The keys of sample.py, and what its --help says above them."""

import math
from dataclasses import dataclass, field

from configs.attention import CHOICES
from configs.training import TrainingConfig

HELP = """\
Writes text with a trained GPT, as it comes. Log lines go to stderr, stdout has the text alone.

usage: python sample.py [KEY=VALUE ...]        also --KEY=VALUE

examples
  python sample.py                                              ten samples of the main experiment
  python sample.py start="ROMEO:" num_samples=1                 one that goes on from ROMEO:
  python sample.py start="To be,\\nor not" temperature=0         always the likeliest token
  python sample.py start=FILE:prompt.txt max_new_tokens=2000    a prompt from a file
  python sample.py out_dir=out-mine top_k=null > text.txt       of another run, into a file
"""


@dataclass
class SampleConfig:
    """Flat keys, under nanoGPT's names."""

    out_dir: str = field(
        default="out-shakespeare-char", metadata={"help": "folder of the run, with its ckpt.pt"}
    )
    start: str = field(
        default="\\n",
        metadata={
            "help": "the prompt, where \\n means a new line; FILE:PATH: a UTF-8 text file, as it is"
        },
    )
    num_samples: int = field(default=10, metadata={"help": "texts to write, one after the other"})
    max_new_tokens: int = field(default=500, metadata={"help": "tokens to add to the prompt"})
    temperature: float = field(
        default=0.8,
        metadata={"help": "1: as the model says; lower: safer; 0: always the likeliest token"},
    )
    top_k: int | None = field(
        default=200, metadata={"help": "draw among this many likeliest tokens; null: among all"}
    )
    seed: int = field(
        default=1337, metadata={"help": "of the first sample; the next one's is one higher"}
    )
    device: str = field(default="auto", metadata={"help": "auto, cpu, cuda, cuda:N or mps"})
    dtype: str = field(
        default="auto",
        metadata={
            "help": "of weights and activations; auto: bfloat16 where the GPU has it",
            "choices": ("auto", "float32", "bfloat16", "float16"),
        },
    )
    attention: str | None = field(
        default=None,
        metadata={
            "help": "null: as in training, or auto where that does not run",
            "choices": CHOICES,
        },
    )

    def __post_init__(self) -> None:
        # the keys that training has too obey its rules
        TrainingConfig(out_dir=self.out_dir, seed=self.seed, device=self.device)
        for key, least in (("num_samples", 1), ("max_new_tokens", 0), ("top_k", 1)):
            value = getattr(self, key)
            if value is not None and value < least:
                raise ValueError(f"{key}={value}: must be at least {least}")
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature={self.temperature}: must be a number from 0 up")
