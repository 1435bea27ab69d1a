"""A training of several ranks, one of which is late in each iteration."""

from pathlib import Path

SCRIPT = """
import os, time
import train
from configs import command_line
from training import slow_ranks

def accumulate(*args, accumulate=train.accumulate):
    accumulate(*args)
    if os.environ["RANK"] == "{rank}":
        time.sleep({ms} / 1e3)

train.accumulate = accumulate
slow_ranks.LONG_S = {said_after_s}
command_line.run(train.train)
"""


def train_with_a_slow_rank(folder: Path, rank: int, ms: float, said_after_s: float) -> Path:
    """A script that stands for train.py; `rank` sleeps before gradients are averaged."""
    path = folder / "train_with_a_slow_rank.py"
    path.write_text(SCRIPT.format(rank=rank, ms=ms, said_after_s=said_after_s))
    return path
