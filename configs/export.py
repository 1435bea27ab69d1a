"""The keys of `python -m training.export`, and the text of its --help above them."""

import os
from dataclasses import dataclass

from cli.keys import check_values, key

HELP = """\
Writes the weights of a run for Hugging Face's transformers: model.safetensors under its names for
GPT-2, and config.json. The tokenizer stays in the checkpoint; GPT-2's is `gpt2` there too.

usage: python -m training.export [KEY=VALUE ...]        also --KEY=VALUE

examples
  python -m training.export out_dir=out-finetune-shakespeare folder=my-gpt2
  python -c "from transformers import AutoModelForCausalLM as M; M.from_pretrained('my-gpt2')"
  python train.py config/finetune_shakespeare.yaml init_from=weights weights=my-gpt2
"""


@dataclass
class ExportConfig:
    """Keys of the export, without sections."""

    out_dir: str = key("out-shakespeare-char", "folder of the run with its checkpoint")
    checkpoint: str = key(
        "ckpt.pt",
        "ckpt.pt, the newest, or ckpt_best.pt, the best, if there is one besides the newest",
        ("ckpt.pt", "ckpt_best.pt"),
    )
    folder: str = key("exported", "folder to write, created if it does not exist")

    def __post_init__(self) -> None:
        check_values(self)
        self.out_dir, self.folder = map(os.path.expanduser, (self.out_dir, self.folder))
