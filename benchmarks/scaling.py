"""Efficiency of a training step on more GPUs, with another checkout of nanoGPT beside it.

    python -m benchmarks scaling ranks=1,2,4 config=gpt2_124m \\
        words="dataset=FOLDER attention=triton kernels=fused compile=false"
    python -m benchmarks scaling ranks=1,4 config=gpt2_124m words="dataset=FOLDER" \\
        ways="parallel=ddp; parallel=fsdp" against=../nanoGPT \\
        theirs="config/train_gpt2.py --batch_size=12 --wandb_log=False"
    python -m benchmarks scaling ranks=1,2 alone=0,1 words="dataset=FOLDER"

Each process trains one micro-step of batch_size sequences on each GPU. All take turns, round by
round, and are timed alike, from outside: from line to line of what they print, after a warm-up.
`ways` are for several ranks. Prints a row for each way and number of ranks; `kept` is the step of
the fewest ranks, of one rank where it is among them, over this one. stderr gets a line for each
process, and Ctrl-C or SIGTERM ends with the rows so far, once each kind has run. GPUs of one kind
differ, at their power limits by some per cent of clock, and the slowest leads: name them in
`alone`, and several are held against the slowest by itself.
"""

import os
import re
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median

from benchmarks.measuring import (
    PROJECT,
    Keys,
    key,
    launcher,
    measure_in_turns,
    numbers,
    say,
    spread,
)
from benchmarks.timed_training import check_keys, time_training
from profiling.launch.experiment.plan import LOG_INTERVAL
from profiling.shared.units import percent

HEADER = "| | ranks | ms per step (least, most) | kept |\n|---|---:|---:|---:|"
THEIRS = "nanoGPT"


@dataclass
class ScalingConfig(Keys):
    ranks: str = key("1,2", "numbers of GPUs of one host, by comma")
    alone: str = key("", "GPUs to time one rank on, by comma")
    config: str = key("gpt2_124m", "experiment to train")
    words: str = key("", "further words of train.py, by blanks, for each way")
    ways: str = key("", "words of train.py for several ranks, to compare, by semicolon")
    against: str = key("", "a checkout of nanoGPT, to be run as it stands")
    theirs: str = key("config/train_gpt2.py --wandb_log=False", "words of its train.py, by blanks")
    iterations: int = key(80, "of each process", least=40)
    warm_up: int = key(30, "of them, not timed", least=0)
    rounds: int = key(2, "processes of each kind", least=1)
    out: str = key("out-scaling", "folder of runs and logs")


@dataclass(frozen=True)
class Process:
    """A process to run: one of our ways, or the other checkout, on `ranks` GPUs."""

    way: str
    ranks: int
    gpu: int | None = None  # index of the only GPU; None: the first `ranks`

    @property
    def label(self) -> str:
        return self.way or "as it is"

    @property
    def where(self) -> str:
        return str(self.ranks) if self.gpu is None else f"{self.ranks} (GPU {self.gpu})"

    @property
    def environ(self) -> dict[str, str]:
        chosen = {} if self.gpu is None else {"CUDA_VISIBLE_DEVICES": str(self.gpu)}
        return {**os.environ, **chosen}


def main(config: ScalingConfig) -> None:
    ranks = numbers("ranks", config.ranks, least=1)
    check_keys(config.against, config.iterations, config.warm_up)
    processes = processes_of(config, ranks)
    out = Path(config.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    times_ms: dict[Process, list[float]] = {process: [] for process in processes}

    def keep(number: int, process: Process, ms: float) -> None:
        times_ms[process].append(ms)
        of_round = f"round {number} of {config.rounds}: {process.label}, ranks {process.where}"
        say(f"{of_round}: {ms:.2f} ms per step")

    try:
        measures = {p: partial(step_ms, p, config, out) for p in processes}
        measure_in_turns(measures, config.rounds, keep)
    finally:  # a stopped measurement has rows, too
        if all(times_ms.values()):
            print_table(times_ms, ranks[0])


def print_table(times_ms: dict[Process, list[float]], fewest_ranks: int) -> None:
    print(HEADER)
    for process, ms in times_ms.items():
        fewest = [each for each in times_ms if is_held_against(process, each, fewest_ranks)]
        print(row(process, ms, max(median(times_ms[each]) for each in fewest)))


def processes_of(config: ScalingConfig, ranks: list[int]) -> list[Process]:
    gpus = numbers("alone", config.alone) if config.alone else [None]
    ways = [way.strip() for way in config.ways.split(";")]
    theirs = [THEIRS] if config.against else []
    alone = [Process(way, 1, gpu) for way, gpu in product(["", *theirs], gpus) if 1 in ranks]
    several = [count for count in ranks if count > 1]
    return alone + [Process(way, count) for way, count in product([*ways, *theirs], several)]


def is_held_against(process: Process, other: Process, fewest: int) -> bool:
    """Whether `kept` of `process` compares it with `other`.

    `other` has the fewest ranks and is of the same checkout and way; but a single rank of ours has
    no way.
    """
    of_one_side = (process.way == THEIRS) == (other.way == THEIRS)
    return other.ranks == fewest and of_one_side and (fewest == 1 or process.way == other.way)


def row(process: Process, times_ms: list[float], fewest_ms: float) -> str:
    kept = percent(100 * fewest_ms / median(times_ms))
    return f"| {process.label} | {process.where} | {spread(times_ms, 2)} | {kept} |"


def step_ms(process: Process, config: ScalingConfig, out: Path) -> float:
    """Median step in ms of a process, over the rows after the warm-up. Raises ValueError."""
    name = re.sub(r"\W+", "-", f"{process.label} {process.where}").strip("-")
    folder, words = command(process, config, out / name)
    log = out / f"{name}.log"
    label = f"{process.label}, {process.ranks} ranks"
    with open(log, "wb") as file:
        timed = time_training(words, folder, process.environ, file, label, config.warm_up)
    return timed.step_ms


def command(process: Process, config: ScalingConfig, out_dir: Path) -> tuple[Path, list[str]]:
    """(folder to start the process in, arguments of python)."""
    started, never, each = launcher(process.ranks), 10 * config.iterations, process.ranks
    if process.way == THEIRS:
        keys = {"max_iters": config.iterations, "log_interval": LOG_INTERVAL, "eval_iters": 1}
        keys |= {"eval_interval": never, "gradient_accumulation_steps": each}
        said = [f"--{name}={value}" for name, value in keys.items()] + [f"--out_dir={out_dir}"]
        return Path(config.against).resolve(), [*started, "train.py", *config.theirs.split(), *said]
    own = [
        *(f"max_iters={config.iterations}", f"log_interval={LOG_INTERVAL}", "eval_iters=1"),
        *(f"eval_interval={never}", f"gradient_accumulation_steps={each}"),
        *("always_save_checkpoint=false", "wandb.mode=disabled", f"out_dir={out_dir}"),
    ]
    words = [config.config, *config.words.split(), *process.way.split(), *own]
    return PROJECT, [*started, "train.py", *words]
