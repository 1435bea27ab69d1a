"""One program in a process of its own, started by `python -m validation foreign`.

    python -m validation.framework_programs NAME fault|without [COMMAND]

Reads commands from stdin, or has this one; session.py lists them. Answers go to stdout, or to the
file that the variable ANSWERS names; what the program itself prints goes to stderr.
"""

import os
import random
import sys
from importlib import import_module

import numpy as np

from validation.framework_programs.series import PROGRAMS
from validation.framework_programs.session import Finished, Session, device_of

ANSWERS = "ANSWERS"


def main(words: list[str]) -> None:
    name, side, *command = words
    (program,) = (each for each in PROGRAMS if each.name == name)
    file = os.environ.get(ANSWERS)
    answers = open(file or os.dup(sys.stdout.fileno()), "w")  # noqa: SIM115 kept to the end
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    random.seed(0)
    np.random.seed(0)
    run = getattr(import_module(f"validation.framework_programs.{program.module}"), name)
    commands = [" ".join(command)] if command else sys.stdin
    device = device_of(program.own_profiler)
    session = Session(device, commands, lambda line: print(line, file=answers, flush=True))
    try:
        run(side == "fault" and not program.control, session.mark)
    except Finished:
        answers.close()


if __name__ == "__main__":
    main(sys.argv[1:])
