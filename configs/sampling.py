"""The keys of sample.py, and what its --help says above them."""

from dataclasses import dataclass

from cli.keys import key
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

    out_dir: str = key("out-shakespeare-char", "folder of the run, with its ckpt.pt")
    start: str = key(
        "\\n", "the prompt, where \\n means a new line; FILE:PATH: a UTF-8 text file, as it is"
    )
    num_samples: int = key(10, "texts to write, one after the other", least=1)
    max_new_tokens: int = key(500, "tokens to add to the prompt", least=0)
    temperature: float = key(
        0.8, "1: as the model says; lower: safer; 0: always the likeliest token", least=0
    )
    top_k: int | None = key(200, "draw among this many likeliest tokens; null: among all", least=1)
    seed: int = key(1337, "of the first sample; the next one's is one higher", least=0, below=2**32)
    device: str = key("auto", "auto, cpu, cuda, cuda:N or mps")
    dtype: str = key(
        "auto",
        "of weights and activations; auto: bfloat16 where the GPU has it",
        ("auto", "float32", "bfloat16", "float16"),
    )
    attention: str | None = key(
        None, "null: as in training, or auto where that does not run", CHOICES
    )

    def __post_init__(self) -> None:
        # the keys that training has too obey its rules
        TrainingConfig(out_dir=self.out_dir, device=self.device)
