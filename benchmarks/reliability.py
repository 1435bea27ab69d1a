"""Whether nothing is lost and everything is reported, however runs and commands are ill-treated.

    python -m benchmarks reliability part=inputs count=600 seed=1

A part tries `count` times, each trial from a seed of its own, and prints a table of what came of
them and every failure with the seed that repeats it. Parts:

{parts}

exit code: 0 where no trial failed, else 1
"""

import itertools
import multiprocessing
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.queues import Queue
from queue import Empty

from benchmarks.measuring import Keys, key
from benchmarks.reliability_parts.trial import Trial
from cli.keys import choice

POLL_S = 1.0  # interval at which jobs are checked to be alive
Trials = Callable[[int, int, float], Iterator[Trial]]  # (count, seed, limit_s)

# module in benchmarks.reliability_parts -> (what it tries, usual number of trials)
PARTS = {
    "inputs": ("bad inputs of all programs: one line and exit code 2, or valid", 600),
    "clock_kills": ("SIGKILL at random moments of README's CPU run: at most an interval lost", 100),
    "damaged_files": ("damaged checkpoints and metrics files: as they were, or one line", 10_000),
    "disk_full": ("a small disk that fills at random moments: nothing lost, all told", 100),
    "kills": ("SIGKILL at random moments, resumed: the end is bitwise the same", 1000),
    "lossy_captures": ("captures that lost records, no verdict; whole ones, no warning", 400),
    "pairs": ("two processes on one folder: one runs, the other is refused", 50),
    "signals": ("SIGINT and SIGTERM at random moments: quiet, and the same end", 500),
    "wrong_inputs": ("wrong commands of all programs: exit code 2 and one line, always", 659),
    "wandb_deaths": ("wandb-core killed or stopped: all rows in metrics.jsonl, one warning", 40),
}
__doc__ = (__doc__ or "").format(
    parts="\n".join(f"  {name:16}{what} ({count})" for name, (what, count) in PARTS.items())
)


@dataclass
class ReliabilityConfig(Keys):
    part: str = key("", "which", needed=f"one of {', '.join(PARTS)}")
    count: int = key(0, "trials; 0: as many as the part makes as a rule", least=0)
    seed: int = key(1, "of the first trial; each next has one more", least=0)
    limit_s: int = key(20, "that a process may take", least=1)
    jobs: int = key(
        1, "processes that make trials side by side, each in a folder of its own", least=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        choice("part", self.part, PARTS)


def main(config: ReliabilityConfig) -> None:
    began, trials = time.perf_counter(), list[Trial]()
    usual = PARTS[config.part][1]
    count = config.count or usual
    part = import_module(f"benchmarks.reliability_parts.{config.part}")
    for trial in run_side_by_side(part.trials, count, config):
        trials.append(trial)
        if trial.failure:
            print(f"seed={trial.seed}: {trial.outcome}: {trial.failure}", flush=True)
    print_table(trials)
    failed = sum(trial.failure is not None for trial in trials)
    wall_s = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime
    print(
        f"\n{config.part}, seeds {config.seed} to {config.seed + count - 1}: {failed} of "
        f"{len(trials)} failed; {wall_s:.0f} s, {cpu_s:.0f} s of CPU"
    )
    if count < usual:
        print(f"{usual} trials at this rate: {wall_s / count * usual / 60:.0f} min")
    if failed:
        sys.exit(1)


def run_side_by_side(trials: Trials, count: int, config: ReliabilityConfig) -> Iterator[Trial]:
    """Make the trials in `config.jobs` forks of this process, each with a share of the seeds.

    Forks and not threads, since a process has one current folder.
    """
    jobs = min(config.jobs, count)
    if jobs == 1:
        yield from trials(count, config.seed, config.limit_s)
        return
    context = multiprocessing.get_context("fork")
    queue: Queue[Trial | ValueError | None] = context.Queue()
    edges = [config.seed + count * number // jobs for number in range(jobs + 1)]

    def work(first: int, end: int) -> None:
        try:
            for trial in trials(end - first, first, config.limit_s):
                queue.put(trial)
        except ValueError as error:
            queue.put(error)
        finally:
            queue.put(None)

    workers = [context.Process(target=work, args=edge) for edge in itertools.pairwise(edges)]
    for worker in workers:
        worker.start()
    working = jobs
    while working:
        try:
            came = queue.get(timeout=POLL_S)
        except Empty:
            if any(worker.exitcode for worker in workers):
                break  # one was killed, and will not say that it is done
            continue
        if isinstance(came, ValueError):
            raise came
        if came is None:
            working -= 1
        else:
            yield came
    for worker in workers:
        worker.join()
        if worker.exitcode:
            raise RuntimeError("a job ended before its trials were made")


def print_table(trials: list[Trial]) -> None:
    outcomes = sorted({trial.outcome for trial in trials}, key=[t.outcome for t in trials].count)
    counts = Counter((trial.kind, trial.outcome) for trial in trials)
    print(f"\n| kind | trials | {' | '.join(outcomes[::-1])} | failed |")
    print(f"|---|{'---:|' * (len(outcomes) + 2)}")
    for kind in dict.fromkeys(sorted(trial.kind for trial in trials)):
        cells = [counts[kind, outcome] for outcome in outcomes[::-1]]
        failed = sum(trial.kind == kind and trial.failure is not None for trial in trials)
        print(f"| {kind} | {sum(cells)} | {' | '.join(map(str, cells))} | {failed} |")
