"""train.py with a bottleneck in it: `python -m validation planted` starts it.

    PLANT=slow_loader python -m validation.planted_train config/shakespeare_char.yaml ...

The trainer is the real one; only the named fault is put into one of its parts beforehand. One of
several trainings that take turns (validation.turns) also waits for its own, and saves no
checkpoint.
"""

import os

from validation import turns
from validation.plants.ends import ENDS
from validation.plants.first import FIRST
from validation.plants.ranks import OF_RANKS
from validation.plants.second import SECOND

SERIES = {1: FIRST, 2: SECOND}
PLANTS = {**FIRST, **SECOND}


if __name__ == "__main__":
    import train as trainer
    from configs import command_line
    from training.disk import checkpoint

    (PLANTS | OF_RANKS | ENDS)[os.environ["PLANT"]].put()
    takes_turn = turns.TURN in os.environ
    if takes_turn:
        trainer.warm_up = turns.in_turn(trainer.warm_up)  # type: ignore[attr-defined]
        checkpoint.save = lambda run: None
    command_line.run(trainer.train)
    if takes_turn:
        turns.note(turns.ENDED)
