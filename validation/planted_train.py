"""train.py with a bottleneck in it: `python -m validation planted` starts it.

    PLANT=slow_loader python -m validation.planted_train config/shakespeare_char.yaml ...

The trainer is the real one; only the named fault is put into one of its parts beforehand.
"""

import os

from validation.plants.ends import ENDS
from validation.plants.first import FIRST
from validation.plants.ranks import OF_RANKS
from validation.plants.second import SECOND

SERIES = {1: FIRST, 2: SECOND}
PLANTS = {**FIRST, **SECOND}


if __name__ == "__main__":
    from configs import command_line
    from train import train

    (PLANTS | OF_RANKS | ENDS)[os.environ["PLANT"]].put()
    command_line.run(train)
