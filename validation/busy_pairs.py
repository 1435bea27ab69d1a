"""Counts how often `compare` and `ab` call chance a difference, of CPU runs beside other work.

    python -m validation busy_pairs folder=out-pairs

Trains pairs of runs that do equal work (by turns nothing, the seed or the learning rate differs),
then processes of `ab` with four and seven layers, which take about 1 to 1.5 in a step, all beside
processes that compute and sleep in bursts. What is in the folder already is not trained again. Any
2 * size processes in a row are an experiment, judged as `ab` does; neighbouring ones share all but
two of them. The table also says what an interval over the steps of two runs would have called, and
what `ab` says of the equal runs dealt into groups.
"""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.measuring import PROJECT, Keys, key
from profiling.analysis.difference.compared import compared_run
from profiling.analysis.difference.comparison import compare
from profiling.analysis.difference.comparison_records import Against
from profiling.analysis.difference.experiment import analyse
from profiling.analysis.runs.folder import RunFolder, read_run
from profiling.analysis.statistics import BETWEEN_PROCESSES, ratio_over_steps
from profiling.launch.experiment.plan import order, plan_experiment, quote_path, training_command
from profiling.launch.experiment.processes import (
    measure,
    open_experiment,
    run_process,
    timed_by,
)
from validation.aa_trials import count_called

TRAINER = PROJECT / "train.py"
MODEL = ["device=cpu", "compile=false", "n_head=2", "n_embd=32", "block_size=32", "batch_size=4"]
MODEL += [f"data_source={quote_path(PROJECT / 'CONTRIBUTING.md')}"]
RUN = ["n_layer=2", "max_iters=200", "log_interval=5", "eval_interval=1000000", "eval_iters=1"]
RUN += ["wandb.mode=disabled"]
EQUAL = ((), ("seed=2",), ("learning_rate=0.003",))  # words of a pair's second run, by turns
LAYERS = "n_layer=4,7"
TRIALS = 40
NEIGHBOUR = """
import random, sys, time
draw = random.Random(int(sys.argv[1]))
while True:
    end = time.perf_counter() + draw.uniform(0.1, 2)
    while time.perf_counter() < end:
        pass
    time.sleep(draw.uniform(0.1, 2))
"""


@dataclass
class PairsConfig(Keys):
    folder: str = key("", "where the runs lie, or are to lie", needed="a folder for the runs")
    pairs: int = key(60, "pairs of equal runs", least=0)
    differing: int = key(20, "experiments of `ab` with values that differ", least=0)
    size: int = key(5, "processes of each value in these, runs in a group of equal ones", least=2)
    steps: int = key(300, "timed steps of each of these processes", least=20)
    neighbours: int = key(2, "processes that compute in bursts beside each run", least=0)
    seed: int = key(0, "of the neighbours' bursts and of the dealing", least=0)


def main(config: PairsConfig) -> None:
    folder = Path(config.folder)
    pairs = [equal_pair(folder, number, config) for number in range(config.pairs)]
    differing = experiments(folder, config) if config.differing else []
    print("| | judged | faster or slower | equal | cannot tell |\n|---|---:|---:|---:|---:|")
    if pairs:
        print_equal(pairs, config)
    if differing:
        print(table_row(f"`ab {LAYERS}`, {config.size} processes each", answers(differing)))
        ratios = sorted(each.ratio for each in differing)
        print(f"\nratios of {LAYERS}: {ratios[0]:.2f} to {ratios[-1]:.2f}, {median(ratios):.2f}")


def print_equal(pairs: Sequence[tuple[RunFolder, RunFolder]], config: PairsConfig) -> None:
    sides = [(compared_run(one, None), compared_run(other, None)) for one, other in pairs]
    compared = [compare(*pair).verdict for pair in sides]
    print(table_row("equal runs, `compare`", compared))
    by_steps = [ratio_over_steps(one.step_ms, other.step_ms) for one, other in pairs]
    called = sum(ratio is not None and ratio.excludes(BETWEEN_PROCESSES) for ratio in by_steps)
    print(f"| the same, were steps taken as the unit | {len(pairs)} | {called} | | |")
    runs = [run.step_ms.tolist() for pair in pairs for run in pair]
    if len(runs) >= 2 * config.size:
        called = count_called(runs, TRIALS, config.size, config.seed)[0]
        print(
            f"| the same, dealt as {config.size} against {config.size} | {TRIALS} | {called} | | |"
        )


def answers(experiments: Sequence[Against]) -> list[str]:
    """Verdicts, with `wrong` for a difference in the wrong direction."""
    return ["wrong" if each.verdict == "faster" else each.verdict for each in experiments]


def table_row(name: str, outcomes: Sequence[str]) -> str:
    counts = Counter(outcomes)
    called = str(counts["faster"] + counts["slower"])
    called += f" and {counts['wrong']} the wrong way" if counts["wrong"] else ""
    return f"| {name} | {len(outcomes)} | {called} | {counts['equal']} | {counts['cannot_tell']} |"


def equal_pair(folder: Path, number: int, config: PairsConfig) -> tuple[RunFolder, RunFolder]:
    """Two runs of equal work, one after the other. Raises ValueError where one fails."""
    runs = []
    for side, words in enumerate(((), EQUAL[number % len(EQUAL)])):
        out_dir = folder / f"equal-{number:02d}" / "ab"[side]
        if not (out_dir / "summary.json").exists():
            command = training_command(
                TRAINER, [*MODEL, *RUN, *words, f"out_dir={quote_path(out_dir)}"]
            )
            with neighbours(config, 2 * number + side):
                run_process(command, out_dir.with_name(out_dir.name + ".log"), str(out_dir))
        runs.append(read_run(out_dir))
    return runs[0], runs[1]


def experiments(folder: Path, config: PairsConfig) -> list[Against]:
    """Verdicts of `ab` on values that really differ, with `size` processes of each, run in turns.

    Raises ValueError where a process fails.
    """
    asked = plan_experiment([*MODEL, LAYERS], config.steps)
    place = folder / "differing"
    with neighbours(config, 1000):
        values = order(len(asked.factor.values), config.differing + config.size - 1)
        measured = measure(open_experiment(place, asked), values, timed_by(TRAINER), place)
    in_turns = sorted(measured.runs, key=lambda run: run.number)
    windows = (in_turns[2 * first :][: 2 * config.size] for first in range(config.differing))
    each = (analyse(msgspec.structs.replace(measured, runs=window)) for window in windows)
    return [result.comparisons[0] for result in each]


@contextmanager
def neighbours(config: PairsConfig, number: int) -> Iterator[None]:
    """Run other work beside the block, the same for each pair of `config.seed` and `number`."""
    with ExitStack() as beside:
        for each in range(config.neighbours):
            seed = str((config.seed * 10_000 + number) * 10 + each)
            process = subprocess.Popen([sys.executable, "-c", NEIGHBOUR, seed])
            beside.enter_context(process)
            beside.callback(process.kill)
        yield
