"""How OpenMP's threads should wait for each other: a run on a CPU, alone and beside a busy process.

    python -m benchmarks waiting_threads data_source=input.txt

Trains the CPU's experiment with each way of waiting, in turns, and prints the median step of each
way: with the machine to itself, and with one other process that computes all along. A way is what
the environment says before torch is imported; GOMP_SPINCOUNT=300000 is what libgomp does unasked.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.measuring import Keys, key, measure_in_turns, run_process
from cli import threads

SETTLING_STEPS = 10  # left out at the start: caches, first touches
SPIN_COUNTS = (300_000, 100_000, 10_000, 5000, 2000, 1000)
WAYS = [
    *(f"{threads.SPIN_COUNT}={count}" for count in SPIN_COUNTS),
    "OMP_WAIT_POLICY=passive",
    "OMP_NUM_THREADS=1",
]

ALONE, BESIDE = ", alone", ", beside a busy process"


@dataclass
class WaitingConfig(Keys):
    ways: str = key(",".join(WAYS), "VARIABLE=VALUE, by comma")
    repetitions: int = key(3, "of each way, alone and beside the busy process", least=1)
    steps: int = key(100, "iterations of a run", least=SETTLING_STEPS + 10)
    data_source: str | None = key(None, "a text of your own", file=True)


def main(config: WaitingConfig) -> None:
    ways = config.ways.split(",")
    measures = {
        f"{way}{where}": partial(step_ms, way, busy, config)
        for where, busy in ((ALONE, False), (BESIDE, True))
        for way in ways
    }
    times_ms = measure_in_turns(measures, config.repetitions)
    print("| way | alone: ms (least, most) | beside a busy process |\n|---|---:|---:|")
    for way in ways:
        alone, beside = (format_times(times_ms[way + where]) for where in (ALONE, BESIDE))
        print(f"| {way} | {alone} | {beside} |")


def format_times(times_ms: list[float]) -> str:
    return f"{median(times_ms):.1f} ({min(times_ms):.1f}, {max(times_ms):.1f})"


def step_ms(way: str, busy: bool, config: WaitingConfig) -> float:
    """Median step in ms of one run, in a process of its own. Raises ValueError where it fails."""
    variable, _, value = way.partition("=")
    environ = {name: text for name, text in os.environ.items() if name not in threads.VARIABLES}
    with TemporaryDirectory() as folder, neighbour(busy):
        words = ["train.py", "shakespeare_char_cpu", f"max_iters={config.steps}", "eval_iters=1"]
        words += [f"out_dir={folder}/out", "wandb.mode=disabled"]
        if config.data_source:
            words.append(f"data_source={Path(config.data_source).resolve()}")
        log = Path(folder, "log")
        with open(log, "wb") as file:
            ended = run_process([sys.executable, *words], file, environ=environ | {variable: value})
        if ended.status:
            raise ValueError(f"train.py ended with {ended.status}: {log.read_text()[-200:]}")
        times_ms = json.loads(Path(folder, "out", "step_times.json").read_text())["ms"]
    return median(ms for ms in times_ms[SETTLING_STEPS:] if ms is not None)


@contextmanager
def neighbour(busy: bool) -> Iterator[None]:
    """Run a process that computes all the time beside the block, if `busy`."""
    if not busy:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()
