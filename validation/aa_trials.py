"""Counts how often `ab` would call a difference where there is none, in trials from recorded times.

    python -m profiling ab config/shakespeare_char.yaml attention=flash,flash --out out-ab/aa
    python -m validation aa_trials records=out-ab/aa/results.json

Each trial deals recorded processes of one and the same configuration into two groups, as if they
had been an A and a B, and judges them as `ab` does. Every value of every record counts as a
configuration by itself, unless it is the same one given twice; groups of five need ten processes.
The table also says what an interval that only has to exclude 1 would have called, and one that
takes steps for independent: why `ab` asks for more.
"""

import statistics
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from benchmarks.measuring import Keys, key
from profiling.analysis.difference.comparison_records import Experiment
from profiling.analysis.statistics import noise_of_processes, ratio_over_processes
from profiling.shared.json_records import read_json
from profiling.shared.units import percent

Process = list[float]  # step times of one process in ms, each a median of ten steps


@dataclass
class TrialsConfig(Keys):
    records: str = key(
        "",
        "results.json of experiments, by comma",
        needed="the results.json of an experiment (python -m profiling ab)",
    )
    trials: int = key(40, "A/A trials of each configuration", least=1)
    size: int = key(5, "processes of each group", least=2)
    seed: int = key(0, "of the dealing")


def main(config: TrialsConfig) -> None:
    paths = [Path(word) for word in config.records.split(",")]
    print(f"{config.trials} A/A trials of {config.size} against {config.size} processes\n")
    print("| configuration | processes | called a difference | interval alone | steps as units |")
    print("|---|---:|---:|---:|---:|")
    for name, processes in read_processes(paths).items():
        if len(processes) < 2 * config.size:
            print(f"| {name} | {len(processes)} | too few for {config.size} a side | | |")
            continue
        called = count_called(processes, config.trials, config.size, config.seed)
        shares = " | ".join(f"{n} ({percent(100 * n / config.trials)})" for n in called)
        print(f"| {name} | {len(processes)} | {shares} |")


def read_processes(paths: list[Path]) -> dict[str, list[Process]]:
    """Configuration -> its processes in all records. Raises ValueError that names a bad file."""
    processes: dict[str, list[Process]] = {}
    for path in paths:
        experiment = read_json(path, Experiment)
        factor = experiment.factor
        values = dict(zip(factor.labels, factor.values, strict=True))
        for run in experiment.runs:
            words = [*experiment.words, f"{factor.key}={values[run.label]}"]
            processes.setdefault(" ".join(words), []).append(run.step_ms)
    return processes


def count_called(
    processes: list[Process], trials: int, size: int, seed: int
) -> tuple[int, int, int]:
    """Number of trials called a difference: (by `ab`, by the interval alone, by steps as units)."""
    random = np.random.default_rng(seed)
    medians = np.array([statistics.median(process) for process in processes])
    by_ab = by_interval = by_steps = 0
    for _ in range(trials):
        dealt = random.permutation(len(processes))[: 2 * size]
        one, other = dealt[:size], dealt[size:]
        groups = medians[one].tolist(), medians[other].tolist()
        ratio = ratio_over_processes(*groups)
        by_ab += ratio.excludes(noise_of_processes(*groups))
        by_interval += ratio.excludes()
        steps = [list(chain(*(processes[i] for i in group))) for group in (one, other)]
        by_steps += ratio_over_processes(*steps).excludes()
    return by_ab, by_interval, by_steps
