"""One program in a process of its own, started by `python -m validation pairs`.

    python -m validation.pair_programs NAME VARIANT,VARIANT SOCKET

Holds the variants, and answers commands, lines that come by the socket:

    VARIANT time STEPS SETTLE
    VARIANT nsys STEPS
    VARIANT torch|jax STEPS FILE
    end

The first answer is `ready` and the variants that could be made; the others are milliseconds a step.
The commands are those of validation.framework_programs.session.
"""

import gc
import random
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import torch

from validation.foreign_programs.parts import Step
from validation.framework_programs.session import WARM_UP, Finished, Session, Steps, device_of
from validation.pair_programs import built, existing
from validation.pair_programs.series import PROGRAMS, Program, with_change, words_of

Answer = Callable[[str], object]


@dataclass(frozen=True)
class Held:
    """A variant that has warmed up, and the precision of products that it asked for."""

    step: Step
    precision: str


def main(words: list[str]) -> None:
    name, variants, address = words
    program = PROGRAMS[name]
    warnings.filterwarnings("ignore")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        lines = connection.makefile("rw")

        def answer(line: str) -> None:
            print(line, file=lines, flush=True)

        if program.apart:
            serve_loop(program, variants, lines, answer)
        else:
            serve_steps(program, variants.split(","), lines, answer)


def seed() -> None:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)


def serve_loop(program: Program, variant: str, lines: IO[str], answer: Answer) -> None:
    """Run a program that has the loop; it ends by `Finished`, raised where it marks a step."""
    seed()
    commands = (line.removeprefix(f"{variant} ") for line in lines)
    session = Session(device_of(program.module), commands, answer)
    try:
        if program.source == "frameworks":
            existing.run_framework(program.module, program.name, variant, session.mark)
        else:
            keys, plant = words_of(program.name, variant)
            existing.run_trainer(keys, plant.put if plant else lambda: None, session.mark)
    except Finished:
        pass


def serve_steps(program: Program, variants: list[str], lines: IO[str], answer: Answer) -> None:
    session = Session(device_of(program.module), (), lambda _: None)
    held = dict(hold_all(program, variants, session))
    answer(" ".join(["ready", *held]))
    for line in lines:
        variant, *rest = line.split()
        if variant == "end":
            return
        task, steps, *more = rest
        chosen = held[variant]
        torch.set_float32_matmul_precision(chosen.precision)
        does: dict[str, Callable[..., Steps]]
        does = {"time": session.time, "torch": session.torch, "nsys": session.nsys}
        answer(f"{drive(does[task](int(steps), *more), chosen.step):.6f}")


def hold_all(program: Program, variants: list[str], session: Session) -> Iterator[tuple[str, Held]]:
    """Make and warm up each variant; one that cannot be made is left out, and the log says why."""
    for variant in variants:
        seed()
        torch.set_float32_matmul_precision("highest")
        try:
            step = make_step(program, variant)
            for _ in range(WARM_UP):
                step()
            session.wait()
            yield variant, Held(step, torch.get_float32_matmul_precision())
        except Exception:
            print(f"{variant}: cannot be made", file=sys.stderr)
            traceback.print_exc()
            gc.collect()


def make_step(program: Program, variant: str) -> Step:
    if program.source == "built":
        return built.build(with_change(program.name, variant))
    return existing.foreign_step(program.name, variant)


def drive(steps: Steps, step: Step) -> float:
    """Run a step of the program wherever the session yields; returns its milliseconds a step."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            ms: float = end.value
            return ms
        step()


if __name__ == "__main__":
    main(sys.argv[1:])
