"""Cost of the hook that `profiling run -- COMMAND` puts into a program, per step outside a window.

    python -m benchmarks attach
    python -m benchmarks attach widths=16,128,512 steps=2000 rounds=12
    python -m benchmarks attach gpu=true widths=256,8192,32768 steps=600 traceml=true

First the hook's own calls alone: a loop of stubs (a module, a backward and an optimizer that do
nothing) in pairs of processes on one core, bare and hooked, which take turns of 20 ms. The CPU time
of a step is compared over 30 turns, in which the hook writes rows, and the median of six such
differences is that of a pair. With `gpu` the processes use CUDA. Then steps of a small model on one
thread of the CPU, or on a GPU, in bare and hooked processes that take turns; a process counts by
the median of its steps. With `traceml` other processes run under `traceml run`, their steps
instrumented as its guide says (pip install traceml-ai).
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Literal

from benchmarks.answering import AnsweringProcess
from benchmarks.measuring import PROJECT, Keys, free_port, key, measure_in_turns, spread
from profiling.launch.any_program.start import HOOK, HookSettings, with_hook
from profiling.launch.experiment.baselines import cpu_name

PROGRAM = PROJECT / "benchmarks" / "attach_program.py"
TURNS = 180  # of a bare and a hooked process of stubs,
COMPARED = 30  # of which so many are compared as one: the hook writes rows twice a second
STUB_WAYS = ("bare", "hooked")
Way = Literal["bare", "hooked", "traceml"]


@dataclass
class AttachConfig(Keys):
    widths: str = key("16,256,1024", "of the model's layers, by commas; empty: the stubs alone")
    steps: int = key(2000, "of each process", least=100)
    rounds: int = key(12, "bare and hooked processes of each width", least=2)
    stub_rounds: int = key(7, "pairs of processes of stubs", least=1)
    gpu: bool = key(False, "the model is on the GPU")
    traceml: bool = key(False, "run the model under TraceML, too")

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers(self.widths)


def main(config: AttachConfig) -> None:
    print(f"{cpu_name()}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    added = []
    for pair_us in stubs_added_us(config.stub_rounds, config.gpu):
        added.append(median(pair_us))
        print(f"stubs: {spread(pair_us, 2)} us", flush=True)
    print(f"the hook's own calls: {spread(added, 2)} us per step, of {len(added)} pairs\n")
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


def stubs_added_us(pairs: int, gpu: bool) -> Iterator[list[float]]:
    """Microseconds that the hook adds to a step of stubs, a list for each pair of processes."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        programs = [running.enter_context(stubs(Path(folder, str(i)), gpu)) for i in range(pairs)]
        for program in programs:  # once all answer, nothing runs beside the pair that is asked
            for way in STUB_WAYS:
                program.ask(way)
        for program in programs:
            means_us = measure_in_turns(
                {way: partial(program.ask, way) for way in STUB_WAYS}, TURNS
            )
            added_us = [each - bare for bare, each in zip(*means_us.values(), strict=True)]
            yield [fmean(added_us[i : i + COMPARED]) for i in range(0, TURNS, COMPARED)]


def stubs(folder: Path, gpu: bool) -> AnsweringProcess:
    """A bare and a hooked process of stubs, which it names when it is asked for a mean."""
    folder.mkdir()
    words = [sys.executable, str(PROGRAM), "stubs", "cuda" if gpu else "cpu", str(HOOK)]
    return AnsweringProcess(PROGRAM.name, [*words, str(folder)], folder / "log")


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
