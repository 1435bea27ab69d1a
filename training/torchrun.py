"""What torchrun, or a Slurm step, tells this process of the ranks: numbers in its environment.

Called by distributed, which joins them, and by all that asks how they lie on hosts.
"""

import os

from cli.slurm import adopt_slurm_ranks


def launched() -> tuple[int, int]:
    """(this process's number on its host, how many ranks there are). Raises ValueError."""
    adopt_slurm_ranks()  # submitit's tasks do not begin in train.py
    world_size = from_torchrun("WORLD_SIZE", 1)
    if world_size == 0:
        raise ValueError("WORLD_SIZE=0: a run has a rank; torchrun sets WORLD_SIZE, else unset it")
    ranks_here(world_size)
    return from_torchrun("LOCAL_RANK", 0), world_size


def ranks_here(world_size: int) -> int | None:
    """How many of the ranks are on this host; None: it is not told. ValueError if it cannot be."""
    number = from_torchrun("LOCAL_WORLD_SIZE", 1)
    if world_size == 1:
        return 1
    if not os.environ.get("LOCAL_WORLD_SIZE"):
        return None
    if not 1 <= number <= world_size:
        raise ValueError(
            f"LOCAL_WORLD_SIZE={number}: a host has 1 to {world_size} of {world_size} ranks "
            "(WORLD_SIZE); torchrun sets both, else unset them"
        )
    return number


def from_torchrun(name: str, alone: int) -> int:
    """A number that torchrun leaves in the environment; `alone` in a plain run."""
    word = os.environ.get(name) or str(alone)
    if not word.isdecimal() or len(word) > 9:
        raise ValueError(f"{name}={word}: not a number; torchrun sets {name}, else unset it")
    return int(word)
