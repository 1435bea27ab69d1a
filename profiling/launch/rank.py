"""One rank of a profiled torchrun job: becomes nsys in the chosen ranks, the trainer in the others.

    rank.py RANKS NSYS profile OPTIONS ... -- PYTHON train.py ...

torchrun starts it as a script, once for each rank; profiling.launch.command writes its arguments.
{gpu} in an option becomes the GPU of the rank: two nsys cannot sample the metrics of one GPU.
"""

import os
import sys


def command(arguments: list[str], environ: dict[str, str]) -> list[str]:
    """The command line that this rank becomes."""
    ranks, *words = arguments
    end = words.index("--")
    nsys, program = words[:end], words[end + 1 :]
    if environ["RANK"] not in ranks.split(","):
        return program
    local_rank = int(environ.get("LOCAL_RANK", "0"))
    visible = environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    gpu = visible[local_rank] if local_rank < len(visible) and visible[0] else str(local_rank)
    return [word.replace("{gpu}", gpu) for word in nsys] + program


if __name__ == "__main__":
    words = command(sys.argv[1:], dict(os.environ))
    os.execvp(words[0], words)
