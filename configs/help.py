"""The text of --help: what the program does, how it is called, and the table of its keys.

Called by configs.command_line for train.py and, for its table, by sample.py.
"""

import textwrap
from operator import attrgetter
from typing import Any

from cli.keys import keys, spell

WIDTH = 108
KEY_WIDTH = 34

TRAIN_HELP = """\
Trains a GPT on Shakespeare, or on a text of yours; every run can be profiled and compared.

usage: python train.py [FLAGS] [FILE] [KEY=VALUE ...]

  FILE        one of configs/ ({files})
              as NAME, config/NAME.yaml or configs/NAME.yaml, or a path to any other YAML file
  KEY=VALUE   also --KEY=VALUE; overrides FILE, as FILE overrides the defaults

examples
  python train.py config/shakespeare_char.yaml                  the main experiment
  python train.py config/shakespeare_char.yaml attention=flash  with one key changed
  python train.py config/shakespeare_char_cpu.yaml              a size for a CPU
  python train.py -m attention=slow,flash                       a run with each, in its own folder
  python train.py init_from=resume max_iters=8000               go on from out_dir/ckpt.pt
  python train.py data_source=my.txt out_dir=out-mine           a text of your own
  python train.py wandb.mode=offline wandb.project=mine         Weights & Biases, no network
  python train.py profile=torch profile.steps=5                 capture five iterations

flags (Hydra's)
  -m, --multirun           train once for each combination: a=1,2  a=choice(1,2)  a=range(1,4)
  --cfg job                print the configuration as YAML and stop; --resolve: without ${{...}}
  --info [WHAT]            how Hydra composed it
  --config-name NAME       the same as FILE
  -sc install=bash         tab completion: eval "$(python train.py -sc install=bash)"
  --hydra-help, --version  of Hydra
"""


def key_table(config: Any) -> str:
    """Every key with its value in the dataclass instance `config`, meaning and choices."""
    lines = []
    section = None
    for key in keys(type(config)).values():
        if key.section != section:
            section = key.section
            lines += ["", f"keys: {section}"]
        spelled = f"  {key.name}={spell(attrgetter(key.name)(config))}"
        choices = f" [{' | '.join(key.choices)}]" if key.choices else ""
        text = textwrap.wrap(key.help + choices, WIDTH - KEY_WIDTH) or [""]
        if len(spelled) >= KEY_WIDTH:
            lines.append(spelled)
            spelled = ""
        lines += [f"{spelled:{KEY_WIDTH}}{text[0]}", *(" " * KEY_WIDTH + t for t in text[1:])]
    return "\n".join(lines[1:])
