"""Trials of a soak test, made side by side from seeds, and the table of what came of them."""

import itertools
import multiprocessing
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.queues import Queue
from queue import Empty
from types import ModuleType

from benchmarks.measuring import Keys, key

POLL_S = 1.0  # interval at which jobs are checked to be alive


@dataclass(frozen=True)
class Trial:
    """Result of one trial, as every soak test yields it."""

    seed: int  # repeats it: python -m tests.soak NAME count=1 seed=SEED
    kind: str  # a row of the table
    outcome: str  # a column of it
    failure: str | None = None  # what went wrong, in a line, or None


Trials = Callable[[int, int, float], Iterator[Trial]]  # (count, seed, limit_s)


@dataclass
class SoakConfig(Keys):
    count: int = key(100, "trials", least=1)
    seed: int = key(1, "of the first trial; each next has one more", least=0)
    limit_s: int = key(20, "that a process may take", least=1)
    jobs: int = key(
        1, "processes that make trials side by side, each in a folder of its own", least=1
    )


def main_of(module: ModuleType) -> Callable[[SoakConfig], None]:
    """Program that makes the trials of a module, which has trials(count, seed, limit_s)."""

    def main(config: SoakConfig) -> None:
        soak(module.trials, config)

    return main


def soak(trials: Trials, config: SoakConfig) -> None:
    """Make the trials, print failures and table. Raises SystemExit where a trial failed."""
    began, made = time.perf_counter(), list[Trial]()
    for trial in run_side_by_side(trials, config):
        made.append(trial)
        if trial.failure:
            print(f"seed={trial.seed}: {trial.outcome}: {trial.failure}", flush=True)
    print_table(made)
    failed = sum(trial.failure is not None for trial in made)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"\nseeds {config.seed} to {config.seed + config.count - 1}: {failed} of {len(made)} "
        f"failed; {time.perf_counter() - began:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of CPU"
    )
    if failed:
        sys.exit(1)


def run_side_by_side(trials: Trials, config: SoakConfig) -> Iterator[Trial]:
    """Make the trials in `config.jobs` forks of this process, each with a share of the seeds.

    Forks and not threads, since a process has one current folder.
    """
    count, jobs = config.count, min(config.jobs, config.count)
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
