"""How soon the command lines answer: --help and a mistyped key, against `import torch`.

    python -m benchmarks start_up [KEY=VALUE ...]

Each command is a process of its own, and they take turns, so that other load falls on all alike.
Prints the medians of wall-clock and CPU seconds, each also as a share of what torch's import takes.
"""

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

PROJECT = Path(__file__).resolve().parent.parent
TORCH = "import torch"
COMMANDS = {
    TORCH: ("-c", "import torch"),
    "train.py --help": ("train.py", "--help"),
    "train.py n_layers=2": ("train.py", "n_layers=2"),
    "train.py, TAB": ("train.py", "-sc", "query=bash"),
    "sample.py --help": ("sample.py", "--help"),
    "sample.py tempreature=1": ("sample.py", "tempreature=1"),
    "profiling --help": ("-m", "profiling", "--help"),
    "profiling report --help": ("-m", "profiling", "report", "--help"),
}


@dataclass
class StartUpConfig:
    repetitions: int = field(default=5, metadata={"help": "of each command, in turns"})

    def __post_init__(self) -> None:
        if self.repetitions < 1:
            raise ValueError(f"repetitions={self.repetitions}: must be at least 1")


def main(config: StartUpConfig) -> None:
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(config.repetitions):
        for name, words in COMMANDS.items():
            times[name].append(wall_and_cpu_s(words))
    medians = {
        name: [median(seconds) for seconds in zip(*rows, strict=True)]
        for name, rows in times.items()
    }
    print("| command | wall s | of import torch | CPU s | of import torch |")
    print("|---|---:|---:|---:|---:|")
    for name, (wall_s, cpu_s) in medians.items():
        shares = wall_s / medians[TORCH][0], cpu_s / medians[TORCH][1]
        print(f"| {name} | {wall_s:.2f} | {shares[0]:.0%} | {cpu_s:.2f} | {shares[1]:.0%} |")


def wall_and_cpu_s(words: tuple[str, ...]) -> tuple[float, float]:
    """Of one process, which may end with a mistake."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=PROJECT,
        env=os.environ | {"COMP_LINE": "python train.py n_la"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, _, used = os.wait4(process.pid, 0)
    return time.perf_counter() - began, used.ru_utime + used.ru_stime
