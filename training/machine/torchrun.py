"""Reads from the environment what torchrun, or a Slurm step, says about the ranks.

Called by distributed, which joins the ranks, and wherever their placement on hosts matters.
"""

import os

from cli.slurm import adopt_slurm_ranks


def local_rank_and_world_size() -> tuple[int, int]:
    """This process's rank on its host, and the number of ranks.

    Raises ValueError if the environment is wrong.
    """
    adopt_slurm_ranks()  # here, too, because tasks of submitit do not begin in train.py
    world_size = from_torchrun("WORLD_SIZE", 1)
    if world_size == 0:
        raise ValueError(
            "WORLD_SIZE=0: a run needs at least one rank; torchrun sets WORLD_SIZE, so unset it "
            "if you do not use torchrun"
        )
    ranks_here(world_size)
    return from_torchrun("LOCAL_RANK", 0), world_size


def ranks_here(world_size: int) -> int | None:
    """Number of ranks on this host, or None if it is not known.

    Raises ValueError for an impossible number.
    """
    number = from_torchrun("LOCAL_WORLD_SIZE", 1)
    if world_size == 1:
        return 1
    if not os.environ.get("LOCAL_WORLD_SIZE"):
        return None
    if not 1 <= number <= world_size:
        raise ValueError(
            f"LOCAL_WORLD_SIZE={number}: a host must have 1 to {world_size} of the {world_size} "
            "ranks (WORLD_SIZE); torchrun sets both variables, so unset them if you do not use "
            "torchrun"
        )
    return number


def from_torchrun(name: str, alone: int) -> int:
    """Number in the environment variable `name`, or `alone` in a run without torchrun.

    Raises ValueError if it is no number.
    """
    word = os.environ.get(name) or str(alone)
    if not word.isdecimal() or len(word) > 9:
        raise ValueError(
            f"{name}={word}: not a number; torchrun sets {name}, so unset it if you do not use "
            "torchrun"
        )
    return int(word)
