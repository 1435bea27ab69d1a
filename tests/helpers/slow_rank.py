"""A training of several ranks, one of which is late in each iteration."""

import statistics
from collections.abc import Iterable
from pathlib import Path

from profiling.shared.metric_names import RANKS, SLOWEST_RANK

SCRIPT = """
import os, time
import train
from configs import command_line
from training.metrics import slow_ranks

def accumulate(*args, accumulate=train.accumulate):
    accumulate(*args)
    if os.environ["RANK"] == "{rank}":
        time.sleep({ms} / 1e3)

train.accumulate = accumulate
slow_ranks.LONG_S = {said_after_s}
command_line.run(train.train)
"""


def train_with_a_slow_rank(folder: Path, rank: int, ms: float, said_after_s: float) -> Path:
    """Write a script that replaces train.py: `rank` sleeps before gradients are averaged."""
    path = folder / "train_with_a_slow_rank.py"
    path.write_text(SCRIPT.format(rank=rank, ms=ms, said_after_s=said_after_s))
    return path


def describe_waits(rows: Iterable[dict[str, float]]) -> str:
    """One line about the waits of ranks in these rows: median (least to most) of each figure."""
    names = {name for row in rows for name in row if name.startswith(PLACES)}
    return "; ".join(f"{name} {spread([row[name] for row in rows])}" for name in sorted(names))


PLACES = tuple(metric.name for metric in (*RANKS, SLOWEST_RANK)) + ("time/step_ms",)


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
