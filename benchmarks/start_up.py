"""How soon the command lines answer: --help and a mistyped key, against `import torch`.

    python -m benchmarks start_up [KEY=VALUE ...]

Each command is a process of its own, and they take turns, so that other load falls on all alike.
Prints the medians of wall-clock and CPU seconds, each also as a share of what torch's import takes.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from statistics import median

from benchmarks.measuring import Keys, Process, key, measure_in_turns, run_process

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
class StartUpConfig(Keys):
    repetitions: int = key(5, "of each command, in turns", least=1)


def main(config: StartUpConfig) -> None:
    measures = {name: partial(run_command, words) for name, words in COMMANDS.items()}
    processes = measure_in_turns(measures, config.repetitions)
    wall_s = {name: median(p.wall_s for p in processes[name]) for name in COMMANDS}
    cpu_s = {name: median(p.cpu_s for p in processes[name]) for name in COMMANDS}
    print("| command | wall s | of import torch | CPU s | of import torch |")
    print("|---|---:|---:|---:|---:|")
    for name in COMMANDS:
        wall, cpu = (f"{s[name]:.2f} | {s[name] / s[TORCH]:.0%}" for s in (wall_s, cpu_s))
        print(f"| {name} | {wall} | {cpu} |")


def run_command(words: tuple[str, ...]) -> Process:
    """Run a command to its end, whatever its exit code."""
    environ = os.environ | {"COMP_LINE": "python train.py n_la"}
    return run_process([sys.executable, *words], subprocess.DEVNULL, environ=environ)
