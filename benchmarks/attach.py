"""Cost of the hook that `profiling run -- COMMAND` puts into a program, per step outside a window.

    python -m benchmarks attach
    python -m benchmarks attach widths=16,128,512 steps=2000 rounds=12
    python -m benchmarks attach gpu=true widths=256,8192,32768 steps=600 traceml=true

First the hook's own calls alone: a loop of stubs (a module, a backward and an optimizer that do
nothing) in two processes on one core, bare and hooked, which take turns of a tenth of a second. The
CPU time of a step in six turns is compared, in which the hook writes rows, and the median of ten
such differences is printed. With `gpu` the processes use CUDA. Then steps of a small model on one
thread of the CPU, or on a GPU, in bare and hooked processes that take turns; a process counts by
the median of its steps. With `traceml` other processes run under `traceml run`, their steps
instrumented as its guide says (pip install traceml-ai).
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Literal

from benchmarks.answering import AnsweringProcess
from benchmarks.measuring import PROJECT, Keys, free_port, key, measure_in_turns, spread
from profiling.launch.any_program.start import HOOK, HookSettings, with_hook

PROGRAM = PROJECT / "benchmarks" / "attach_program.py"
TURNS = 60  # of a bare and a hooked process of stubs,
COMPARED = 6  # of which so many are compared as one: the hook writes rows twice a second
Way = Literal["bare", "hooked", "traceml"]


@dataclass
class AttachConfig(Keys):
    widths: str = key("16,256,1024", "of the model's layers, by commas; empty: the stubs alone")
    steps: int = key(2000, "of each process", least=100)
    rounds: int = key(12, "bare and hooked processes of each width", least=2)
    stub_rounds: int = key(5, "processes of stubs", least=1)
    gpu: bool = key(False, "the model is on the GPU")
    traceml: bool = key(False, "run the model under TraceML, too")

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers(self.widths)


def main(config: AttachConfig) -> None:
    added = []
    for _ in range(config.stub_rounds):
        added.append(stubs_added_us(config.gpu))
        print(f"stubs: {added[-1]:.2f} us", flush=True)
    print(f"the hook's own calls: {spread(added, 2)} us per step, of {len(added)} processes\n")
    widths = numbers(config.widths)
    ways: tuple[Way, ...] = ("bare", "hooked", "traceml") if config.traceml else ("bare", "hooked")
    if widths:
        print("| width | | us per step | added, us | of bare |\n|---:|---|---:|---:|---:|")
    for width in widths:
        measures = {way: partial(model_us, way, width, config.steps, config.gpu) for way in ways}
        us = measure_in_turns(measures, config.rounds)
        for way in ways:
            pairs = list(zip(us["bare"], us[way], strict=True))
            row = (
                way,
                spread(us[way], 1),
                spread([each - bare for bare, each in pairs], 1),
                f"{median(each / bare for bare, each in pairs):.4f}",
            )
            print(f"| {width} | {' | '.join(row)} |", flush=True)


def numbers(widths: str) -> list[int]:
    """Widths given by commas. Raises ValueError for one that is no number from 1 on."""
    words = [word for word in widths.split(",") if word]
    if not all(word.isdecimal() and int(word) for word in words):
        raise ValueError(f"widths={widths}: give numbers from 1 on, by commas")
    return [int(word) for word in words]


def stubs_added_us(gpu: bool) -> float:
    """Microseconds that the hook adds to a step of stubs."""
    with tempfile.TemporaryDirectory() as folder, on_one_core():
        command = [sys.executable, str(PROGRAM), "stubs", "cuda" if gpu else "cpu"]
        commands = {"bare": command, "hooked": [*command, str(HOOK), folder]}
        logs = {way: Path(folder) / f"{way}.log" for way in commands}
        bare, hooked = (
            AnsweringProcess(f"{PROGRAM.name}, {way},", words, logs[way])
            for way, words in commands.items()
        )
        with bare, hooked:
            means_us = measure_in_turns({bare: bare.ask, hooked: hooked.ask}, TURNS)
    added_us = [each - bare for bare, each in zip(means_us[bare], means_us[hooked], strict=True)]
    return median(fmean(added_us[i : i + COMPARED]) for i in range(0, TURNS, COMPARED))


@contextmanager
def on_one_core() -> Iterator[None]:
    """Start the processes of the block on one core, where the system can tell them to."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def model_us(way: Way, width: int, steps: int, gpu: bool) -> float:
    with tempfile.TemporaryDirectory() as folder:
        file, environ = Path(folder) / "us.txt", dict(os.environ)
        device = "cuda" if gpu else "cpu"
        words = [str(PROGRAM), str(width), str(steps), device, str(file)]
        if way == "traceml":
            command = ["traceml", "run", "--mode", "summary", "--logs-dir", folder]
            command += ["--aggregator-port", str(free_port()), "--master-port", str(free_port())]
            command += [words[0]]
            run([*command, "--args", *words[1:], way], environ)
        else:
            settings = HookSettings(folder, ["model"], "none")  # no window
            environ = with_hook(environ, settings) if way == "hooked" else environ
            run([sys.executable, *words], environ)
        return float(file.read_text())


def run(command: list[str], environ: dict[str, str]) -> str:
    """Text that the program prints. Raises ValueError with its last words if it fails."""
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"{PROGRAM.name} ended with {done.returncode}: {done.stderr[-300:]}")
    return done.stdout
