"""Time of a training command as typed: its first process, with empty caches, and the second.

    python -m benchmarks as_typed against=../nanoGPT
    python -m benchmarks as_typed ways="attention=flash; attention=slow" iterations=1000 rounds=3

Each way of ours is `config` with its keys, `theirs` is nanoGPT's train.py as it stands, whose text
has to be prepared. All take turns, round by round. A first process has no compiled kernel of an
earlier one: Triton's and inductor's caches are new folders, which its second process finds full.
Steps are timed from outside, from line to line of what is printed, after a warm-up; a process by
its whole time on the wall. Both sides evaluate at their two ends alone, each in its own way. Prints
a row for each way: the median of the rounds, and the least and the most.

What was measured is in OUT/pairs.jsonl as soon as it is there: a command that was stopped goes on
where it is typed again, with the same `rounds` or more.
"""

import os
import shutil
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.measuring import PROJECT, Keys, key, measure_in_turns, spread
from benchmarks.timed_training import check_keys, time_training
from profiling.launch.experiment.plan import LOG_INTERVAL
from profiling.shared.json_records import append_lines, read_lines

HEADER = (
    "| | ms per step | first process, s | second process, s | validation loss |\n"
    "|---|---:|---:|---:|---:|"
)
CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
THEIRS = "nanoGPT"
RECORD = "pairs.jsonl"


@dataclass
class AsTypedConfig(Keys):
    config: str = key("config/shakespeare_char.yaml", "experiment to train")
    ways: str = key(
        "attention=flash; attention=slow; attention=triton", "keys of ours, by semicolon"
    )
    words: str = key("", "further words of train.py, by blanks, for each way")
    against: str = key("", "a checkout of nanoGPT, to be run as it stands")
    theirs: str = key("config/train_shakespeare_char.py", "words of its train.py, by blanks")
    iterations: int = key(1000, "of each process", least=40)
    warm_up: int = key(100, "of them, in no step time", least=0)
    rounds: int = key(3, "first and second processes of each way", least=1)
    out: str = key("out-as-typed", "folder of runs, logs and caches")


@dataclass(frozen=True)
class Process:
    """Measured times and loss of a process that has ended."""

    wall_s: float
    step_ms: float
    val_loss: float  # at its last evaluation


@dataclass(frozen=True)
class Pair:
    """One way's two processes of a round."""

    first: Process
    second: Process


@dataclass(frozen=True)
class MeasuredPair:
    """A line of pairs.jsonl."""

    way: str
    work: str  # what all ways share: experiment, words, iterations
    pair: Pair


def main(config: AsTypedConfig) -> None:
    check_keys(config.against, config.iterations, config.warm_up)
    out = Path(config.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    ways = [way.strip() for way in config.ways.split(";")]
    names = [*ways, *([THEIRS] if config.against else [])]
    earlier = read_lines(out / RECORD, MeasuredPair) if (out / RECORD).exists() else []
    measures = {name: partial(next_pair, name, earlier, config, out) for name in names}
    pairs = measure_in_turns(measures, config.rounds)
    print(HEADER)
    for name in names:
        print(row(name, pairs[name]))


def next_pair(name: str, earlier: list[MeasuredPair], config: AsTypedConfig, out: Path) -> Pair:
    """Next pair of this way: taken out of `earlier`, or measured now and appended to RECORD."""
    work = f"{config.config} {config.words} {config.iterations}"
    for known in earlier:
        if (known.way, known.work) == (name, work):
            earlier.remove(known)
            return known.pair
    measured = MeasuredPair(name, work, measure_pair(name, config, out))
    append_lines(out / RECORD, [measured])
    print(row(name, [measured.pair]), file=sys.stderr)
    return measured.pair


def row(name: str, pairs: list[Pair]) -> str:
    both = [process for pair in pairs for process in (pair.first, pair.second)]
    columns = (
        spread([process.step_ms for process in both], 2),
        spread([pair.first.wall_s for pair in pairs], 1),
        spread([pair.second.wall_s for pair in pairs], 1),
        spread([process.val_loss for process in both], 3),
    )
    return f"| {name or 'as it is'} | {' | '.join(columns)} |"


def measure_pair(name: str, config: AsTypedConfig, out: Path) -> Pair:
    """Run two processes, one after the other: the second finds what the first has compiled."""
    caches = out / "caches"
    shutil.rmtree(caches, ignore_errors=True)
    environ = os.environ | {variable: str(caches / variable) for variable in CACHES}
    return Pair(run_training(name, config, out, environ), run_training(name, config, out, environ))


def run_training(name: str, config: AsTypedConfig, out: Path, environ: dict[str, str]) -> Process:
    """Run one process to its end. Raises ValueError where it fails or prints no step."""
    label = "-".join(name.replace("=", "-").split()) or "as-it-is"
    folder, words = command(name, config, out / label)
    log = out / f"{label}.log"
    with open(log, "ab") as file:
        timed = time_training(words, folder, environ, file, name, config.warm_up)
    if not timed.run.evaluations:
        raise ValueError(f"{log}: lacks a line such as 'step 10: train loss 4.1, val loss 4.1'")
    return Process(timed.wall_s, timed.step_ms, timed.run.evaluations[-1].val_loss)


def command(name: str, config: AsTypedConfig, out_dir: Path) -> tuple[Path, list[str]]:
    """(folder to start the process in, arguments of python)."""
    keys: dict[str, object] = {"max_iters": config.iterations, "eval_interval": config.iterations}
    keys |= {"log_interval": LOG_INTERVAL, "out_dir": out_dir}
    if name == THEIRS:
        words = [f"--{key}={value}" for key, value in keys.items()]
        return Path(config.against).resolve(), ["train.py", *config.theirs.split(), *words]
    words = [f"{key}={value}" for key, value in keys.items()] + ["wandb.mode=disabled"]
    return PROJECT, ["train.py", config.config, *name.split(), *config.words.split(), *words]
