"""Ranks of `srun python train.py ...` without torchrun: Slurm's variables become torchrun's.

Slurm sets its variables in each task of a step, and those of the job in a batch script too, where
the program runs once: SLURM_STEP_NUM_TASKS tells the two apart.
"""

import os
import re
from collections.abc import Mapping

PORTS = range(10000, 30000)  # one for each job, by its number; Linux assigns those from 32768 up


def adopt_slurm_ranks() -> None:
    """Set torchrun's variables in the environment. Raises ValueError as `torchrun_variables`."""
    os.environ |= torchrun_variables(os.environ)


def torchrun_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that torchrun would have set for this task; none under torchrun or for a lone task.

    Raises ValueError if a step has several tasks and does not say which one this is.
    """
    if "RANK" in environ or "WORLD_SIZE" in environ:
        return {}
    tasks = environ.get("SLURM_STEP_NUM_TASKS", "1")
    if tasks == "1":
        return {}
    needed = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NODELIST", "SLURM_JOB_ID")
    if missing := [name for name in needed if not environ.get(name)]:
        raise ValueError(
            f"SLURM_STEP_NUM_TASKS={tasks}, but {', '.join(missing)} is not set; start training "
            f"with srun --ntasks={tasks} python train.py ..., or with torchrun"
        )
    for name in ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID"):
        if not environ[name].isdecimal():
            raise ValueError(
                f"{name}={environ[name]}: not a number; srun sets this variable, so unset it if "
                "you do not use srun"
            )
    job = int(re.sub(r"\D", "", environ["SLURM_JOB_ID"]) or 0)
    variables = {
        "RANK": environ["SLURM_PROCID"],
        "LOCAL_RANK": environ["SLURM_LOCALID"],
        "WORLD_SIZE": tasks,
        "MASTER_ADDR": first_host(environ["SLURM_STEP_NODELIST"]),
        "MASTER_PORT": str(PORTS[job % len(PORTS)]),
    }
    here = environ.get("SLURM_STEP_TASKS_PER_NODE", "")
    if tasks_here := re.fullmatch(r"(\d+)(\(x\d+\))?", here):  # every host has as many
        variables["LOCAL_WORLD_SIZE"] = tasks_here[1]
    return {name: environ.get(name, value) for name, value in variables.items()}


def first_host(nodes: str) -> str:
    """First host of Slurm's list, which has rank 0: gpu[03-05,9],cpu1 -> gpu03."""
    name, bracket, numbers = re.split(r"(\[|,|$)", nodes, maxsplit=1)
    if bracket != "[":
        return name
    inside, _, behind = numbers.partition("]")
    suffix = behind.partition(",")[0]
    return name + re.split(r"[-,]", inside)[0] + suffix
